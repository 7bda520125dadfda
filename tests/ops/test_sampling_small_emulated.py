"""A small k on the emulator: rows that fit the registers of their cluster, in one reading.

A call that asks for the distribution takes the long way, which other tests hold against the oracle:
both ways give the same token and status.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sampling_ways import both, padded, random

from gpukit import emulator

WAYS = {"one piece": {"threads": 512, "cluster": 8}, "two": {"threads": 256, "cluster": 8},
        "four CTAs": {"threads": 512, "cluster": 4}}
TWO = WAYS["two"]
K50: dict[str, Any] = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}


class Readings:
    """How many bytes the emulator's launches read from global memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.bytes: list[int] = []
        run: Any = partial(emulator.run, **options)

        def counted(*args: Any, **given: Any) -> Any:
            result = run(*args, **given)
            self.bytes.append(result.counters.global_loads.bytes)
            return result

        monkeypatch.setattr(emulator, "run", counted)


def test_one_reading_gives_the_token_of_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = padded(random(1, 2403))
    readings = Readings(monkeypatch, policy="late", seed=5)
    both(x, TWO, **K50)
    assert readings.bytes[0] == x.nbytes < readings.bytes[1]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("tunables", WAYS.values(), ids=WAYS)
def test_shapes_of_clusters_types_and_odd_addresses(tunables: dict[str, int], dtype: Any) -> None:
    x = random(2, 9003, 2).astype(dtype)
    both(padded(x), tunables, **K50)
    both(x[:1, 1:], tunables, **K50)


def test_rows_settings_and_masks_of_all_kinds() -> None:
    x = padded(random(4, 2403, 1))
    x[0] = np.round(x[0])           # ties at the threshold
    x[1, ::3] = -np.inf
    x[1, 1::9] = np.nan
    x[1, [701, 32]] = np.inf        # the first of them
    x[3] = 1.0                      # more ties than the list holds: the long way after all
    mask = np.full((4, 76), 0xFFFFFFFF, np.uint32)
    mask[0, 1::2] = 0
    mask[2] = 0                     # fewer warps with logits than k: also the long way
    mask[2, [31, 35, 75]] = 1 << 2  # the last token, of no whole piece, too
    both(x, TWO, bitmask=mask, temperature=np.array([1, 0.5, 9, 1], np.float32),
         top_k=np.array([20, 40, 5, 3], np.int32), top_p=np.array([0.5, 0.9, 1, 0.9], np.float32),
         min_p=np.array([0.1, 0, 0, 0], np.float32))
