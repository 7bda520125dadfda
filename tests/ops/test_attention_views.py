"""Arrays of any strides, alignment and row length, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError

Array = np.ndarray[Any, Any]
BF16 = dtypes.parse("bf16").numpy


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


Q, K, V = normal(1, 1, 20, 2, 64), normal(2, 1, 30, 2, 64), normal(3, 1, 30, 2, 64)


@pytest.fixture(scope="module")
def want() -> Array:
    out: Array = gpukit.attention(Q, K, V)
    return out


def spread(x: Array) -> Array:
    """Every second row and head of something larger, NaN between."""
    big = np.full((x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), np.nan, BF16)
    big[:, ::2, ::2] = x
    return big[:, ::2, ::2]


def shifted(x: Array) -> Array:
    """At an odd address of elements: no copy by TMA or 16 bytes can start there."""
    flat = np.empty(x.size + 1, BF16)
    flat[1:] = x.ravel()
    return flat[1:].reshape(x.shape)


def columns_apart(x: Array) -> Array:
    big = np.full((*x.shape[:3], 2 * x.shape[3]), np.nan, BF16)
    big[..., ::2] = x
    return big[..., ::2]


def padded_rows(x: Array) -> Array:
    big = np.full((*x.shape[:3], x.shape[3] + 1), np.nan, BF16)
    big[..., :-1] = x
    return big[..., :-1]


def reversed_rows(x: Array) -> Array:
    return np.ascontiguousarray(x[:, ::-1])[:, ::-1]


@pytest.mark.parametrize("kernel", [None, "k2"])
@pytest.mark.parametrize("view", [spread, shifted, columns_apart, padded_rows, reversed_rows],
                         ids=lambda view: view.__name__)
def test_views(view: Any, kernel: str | None, want: Array) -> None:
    got = gpukit.attention(view(Q), view(K), view(V), kernel=kernel)
    assert np.abs(got.astype(np.float32) - want.astype(np.float32)).max() < 0.02


def test_out_of_any_strides(want: Array) -> None:
    for view in (spread, columns_apart, shifted):
        out = view(np.zeros_like(Q))
        assert gpukit.attention(Q, K, V, out=out) is out
        np.testing.assert_array_equal(out, want)


def test_keys_that_all_sequences_share() -> None:
    q = normal(4, 3, 20, 2, 64)
    k, v = (np.broadcast_to(x, (3, *x.shape[1:])) for x in (K, V))
    got = gpukit.attention(q, k, v)
    np.testing.assert_array_equal(got, gpukit.attention(q, k.copy(), v.copy()))


@pytest.mark.parametrize(("shape", "keys"), [((2, 0, 2, 64), 5), ((0, 3, 2, 64), 5),
                                             ((1, 3, 2, 64), 0)], ids=str)
def test_nothing_to_do(shape: tuple[int, ...], keys: int) -> None:
    k = np.zeros((shape[0], keys, 2, 64), BF16)
    out, lse = gpukit.attention(np.ones(shape, BF16), k, k, return_lse=True)
    assert out.shape == shape
    assert (out == 0).all()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize(("change", "message"), [
    ({"q": Q[0]}, r"q has shape \(20, 2, 64\); accepted: 4 dimensions"),
    ({"q": Q.astype(np.float32)}, "q has dtype float32; accepted: float16, bfloat16"),
    ({"k": K.astype(np.float16)}, "k has dtype float16, q has bfloat16"),
    ({"k": K[..., :32]}, "k has 32 columns per head, q has 64"),
    ({"v": V[:, :9]}, r"v has shape \(1, 9, 2, 64\), k \(1, 30, 2, 64\)"),
    ({"q": normal(1, 1, 20, 3, 64)}, "q has 3 heads, k has 2; accepted: a multiple"),
    ({"q": normal(1, 1, 20, 2, 264), "k": normal(1, 1, 30, 2, 264)}, "q has 264 columns"),
    ({"q": normal(1, 2, 20, 2, 64)}, "k has a batch of 1, q of 2"),
    ({"mask": "diagonal"}, "mask='diagonal' is unknown; accepted: null, causal"),
    ({"mask": "causal", "window": 3}, "window=3 is for mask='sliding_causal'"),
    ({"mask": "sliding", "window": 0}, "window=0 is not accepted"),
    ({"scale": 0.0}, r"scale=0.0 is not accepted; 1e-18 to 1e\+18"),
    ({"softcap": -1.0}, "softcap=-1.0 is not accepted"),
    ({"layout": "sbhd"}, "layout='sbhd' is unknown; accepted: bshd, bhsd"),
    ({"kernel": "k9"}, "kernel='k9' is unknown; accepted: k1, k2"),
    ({"sinks": np.zeros(3, np.float32)}, r"sinks has shape \(3,\); accepted: \(2\)"),
    ({"kv_lengths": np.zeros(1, np.int32)}, "kv_lengths has dtype int32; accepted: uint32"),
    ({"page_table": np.zeros((1, 1), np.uint32)}, "page_table needs kv_lengths"),
    ({"relative": normal(1, 1, 20, 2, 4)}, "relative is for mask='causal'"),
    ({"mask": "causal", "relative": normal(1, 1, 20, 2, 4), "sinks": np.zeros(2, np.float32)},
     "relative and sinks exclude each other"),
    ({"bias": normal(1, 1, 20, 29)}, r"bias has shape \(1, 1, 20, 29\)"),
    ({"out": np.zeros((1, 20, 2, 32), BF16)}, "out has shape"),
    ({"out": Q}, "out overlaps q"),
], ids=str)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gpukit.attention(**{"q": Q, "k": K, "v": V, **change})
