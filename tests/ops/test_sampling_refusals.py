"""What the sampling family refuses, in one line that names the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukit import sampling
from gpukit.errors import ArgumentError, UnsupportedError

RESIDENT = {"threads": 128, "cluster": 2, "stage": 16}  # rows kept in shared memory


def random(count: int, width: int) -> Any:
    return np.random.default_rng(0).standard_normal((count, width)).astype(np.float32)


@pytest.mark.parametrize(("attempt", "error", "words"), [
    (lambda: sampling.sample(random(1, 8)[0]), ArgumentError, "accepted: [B, V]"),
    (lambda: sampling.sample(random(2, 8), temperature=np.ones(2)), ArgumentError,
     "temperature is float64[2]; accepted: float32[2]"),
    (lambda: sampling.sample(random(2, 8), top_k=np.ones(3, np.int32)), ArgumentError,
     "top_k is int32[3]; accepted: int32[2]"),
    (lambda: sampling.sample(random(2, 8), seed=-1), ArgumentError, "seed=-1 is not accepted"),
    (lambda: sampling.sample(random(2, 64), bitmask=np.zeros((2, 1), np.uint32)), ArgumentError,
     "int32 or uint32 [2, 2 or more]"),
    (lambda: sampling.argmax(np.zeros((2, 0), np.float32)), ArgumentError, "has 0 columns"),
    (lambda: sampling.softmax(np.broadcast_to(np.float32(0), (1, 10**6))), ArgumentError,
     "consecutive elements"),
    (lambda: sampling.sample(np.zeros((1, 500_000), np.float32), tunables=RESIDENT),
     UnsupportedError, "rows of 500000 tokens do not fit"),
    (lambda: sampling.top_k(random(1, 8), 0), ArgumentError, "k=0 is not accepted"),
    (lambda: sampling.top_k(random(1, 8), 1025), UnsupportedError, "at most 1024"),
    (lambda: sampling.verify_drafts(np.zeros((2, 3), np.int16), random(2, 8)), ArgumentError,
     "int32 or int64 [B, n]"),
    (lambda: sampling.beam_step(random(4, 8), np.zeros((3, 1), np.float32), 2), ArgumentError,
     "B * beams = 4"),
    (lambda: sampling.scatter(random(2, 8), np.zeros(3, np.int32), 0.0), ArgumentError,
     "int32 or int64 [n, 2]"),
])
def test_refusals_name_the_argument(attempt: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        attempt()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
