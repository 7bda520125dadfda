"""What attention is not to be given is refused in one line that names it; what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit.errors import ArgumentError
from gpukit.ops.attention import paged
from gpukit.ops.attention.decode import DecodePlan
from gpukit.ops.attention.plan import Config

_rng = np.random.default_rng(3)


def _random(*shape: int) -> Any:
    return _rng.standard_normal(shape).astype(np.float16)


Q, K, V = _random(1, 5, 4, 64), _random(1, 9, 2, 64), _random(1, 9, 2, 64)
BYTES = np.zeros((1, 9, 2, 64), np.uint8)
STATE = Q, np.zeros((1, 4, 5), np.float32)
MEMORY = np.zeros(Q.size + 64, np.float16)
OUT, WORDS = MEMORY[:Q.size].reshape(Q.shape), MEMORY[:8].view(np.uint32)  # of one memory
attention: Any = gpukit.attention
decode: Any = gpukit.attention_decode
merge: Any = gpukit.merge_states
layer: Any = paged.layer


def _broadcast() -> Any:
    return np.lib.stride_tricks.as_strided(_random(1, 1, 4, 64), (1, 5, 4, 64), (0, 0, 128, 2))


def _wider(q: Any) -> Any:
    """q's memory by other strides."""
    return np.lib.stride_tricks.as_strided(q, (1, 2, 64), (0, 256, 2))


@pytest.mark.parametrize(("call", "names"), [
    (lambda: attention(Q, K, V, mask=np.ones((5, 9), bool)), "mask="),
    (lambda: attention(Q, K, V, out=_broadcast()), "out has strides"),
    (lambda: attention(Q, K, V, bias=MEMORY[:45].reshape(1, 5, 9), out=MEMORY[:1280].reshape(
        Q.shape)), "out overlaps bias"),
    (lambda: merge(None), "states is a NoneType"),
    (lambda: merge([5]), "states has 1 entries"),
    (lambda: merge([None]), "states has 1 entries"),
    (lambda: merge([(MEMORY[:1280].reshape(Q.shape), STATE[1]), STATE],
                   out=MEMORY[64:].reshape(Q.shape)), "out overlaps states[0][0]"),
    (lambda: decode(Q[:, 0], None, V), "k must be"),
    (lambda: decode(Q[:, 0], K, None), "v must be"),
    *((lambda x=x: decode(Q[:, 0], K, V, scale=x), "scale=") for x in (0, -1, float("nan"))),
    *((lambda f=f: f(Q, K, V, scale=1e-38), "scale=1e-38") for f in (attention, decode)),
    *((lambda f=f: f(Q, K, V, softcap=1e-38), "softcap=1e-38") for f in (attention, decode)),
    (lambda: decode(Q[:, 0], K, V, softcap=float("inf")), "softcap=inf"),
    *((lambda name=name, f=f: f(Q, K, V, out=OUT, **{name: WORDS[:1]}), f"out overlaps {name}")
      for name, f in (("q_lengths", attention), ("kv_lengths", attention), ("lengths", decode))),
    (lambda: decode(Q, K, V, out=OUT, sinks=WORDS[:4].view(np.float32)), "out overlaps sinks"),
    (lambda: decode(Q, BYTES, BYTES, out=OUT, k_scale=WORDS[:1].view(np.float32)),
     "out overlaps k_scale"),
    (lambda: decode(Q, K[:0, :8], V[:0, :8], page_table=np.zeros((1, 2), np.uint32)),
     "k has no pages"),
    *((lambda c=c: DecodePlan.of(Q, K, V, config=c), said) for c, said in (
        ("even", "config='even'"), (Config("foo", 4, 2, 1, 1, 1), "form='foo'"),
        (Config("narrow_8", 4, 2, 1, 1, 1), "form='narrow_8'"),
        (Config("warpgroup_8", 2, 2, 1, 1, 1), "warps=2"),
        (Config("plain", 4, 2, 1, 1, 0), "parts=0"), (Config("plain", 4, 2, 3, 1, 1), "cluster=3"),
        (Config("plain", 4, 2, 2, 1, 1, "even"), "cluster=2"))),
    *((lambda x=x: decode(Q[:, 0], BYTES, BYTES, k_scale=x), "k_scale=") for x in
      (0, -1.0, float("nan"))),
    (lambda: decode(Q, K, V, out=_broadcast()), "out has strides"),
    (lambda: decode(_wider(Q), K, V, out=Q[:, 0, :2]), "out overlaps q"),
    (lambda: decode(Q[:, 0], K, V, plan="fast"), "plan must be"),
    (lambda: layer([1], 0), "blocks has shape None"),
    (lambda: layer(np.zeros((2, 2, 3, 4, 1, 64)), 1.0), "index=1.0"),
])
def test_one_line_names_the_argument(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert names in str(caught.value) and "\n" not in str(caught.value)


def test_numpy_integers_are_integers() -> None:
    wide = attention(Q, K, V, mask="sliding", window=np.int64(3))
    assert (wide == attention(Q, K, V, mask="sliding", window=3)).all()


@pytest.mark.parametrize("keys", [0, 9])
def test_ragged_rows_past_the_last_offset_are_not_written(keys: int) -> None:
    q, k, v = _random(7, 2, 64), _random(keys, 1, 64), _random(keys, 1, 13)
    out = np.full((7, 2, 13), 7, np.float16)  # 13 columns: worked on in a copy
    gpukit.attention_ragged(q, k, v, np.array([0, 4], np.uint32), np.array([0, keys], np.uint32),
                            max_queries=5, out=out)
    assert (out[4:] == 7).all() and not (out[:4] == 7).any()


def test_queries_that_do_not_count_have_no_sum_without_keys_either() -> None:
    sinks = np.array([1, 2], np.float32)
    out, lse = attention(_random(2, 3, 2, 64), K[:1, :0].repeat(2, 0), V[:1, :0].repeat(2, 0),
                         sinks=sinks, q_lengths=np.array([2, 0], np.uint32), return_lse=True)
    assert (lse[0] == [[1, 1, -np.inf], [2, 2, -np.inf]]).all() and np.isneginf(lse[1]).all()
    assert not out.any()
