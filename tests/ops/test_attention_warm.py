"""Forward calls that have been made before: what goes the short way, and with what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit.errors import ArgumentError
from gpukit.ops.attention import forward_warm, warm
from gpukit.ops.attention.forward_warm import Given

SHAPE, BYTES = (1, 8, 2, 64), 2 * 8 * 2 * 64
Q, K, V, OUT, LSE = (4096 * i for i in range(1, 6))


class Stand:
    """An array that is somewhere on a GPU."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "f2", at: int = LSE) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.strides = np.empty(shape, dtype).strides
        self.data = SimpleNamespace(ptr=at, device_id=0)
        self._c_contiguous = True


def given(**arrays: Any) -> Given:
    plain = {"q": Stand(SHAPE, at=Q), "k": Stand(SHAPE, at=K), "v": Stand(SHAPE, at=V),
             "words": ("dense", "null", True)}
    return Given(**(dict.fromkeys(Given._fields) | plain | arrays))


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What has been launched, by address. Calls with and without `out` have been made before."""
    launches: list[tuple[int, ...]] = []
    entry = forward_warm._Entry(lambda *places: launches.append(places), SHAPE, np.dtype("f2"),
                                BYTES, (1, 2, 8), ((0, BYTES),) * 4)
    monkeypatch.setattr(warm.Cupy, "ndarray", Stand)
    monkeypatch.setattr(warm.Cupy, "alloc", lambda size: OUT)
    monkeypatch.setattr(forward_warm, "_entries", {
        forward_warm.key_of(call): entry for call in (given(), given(out=Stand(SHAPE)))})
    return launches


def test_results_are_new_arrays(launched: list[tuple[int, ...]]) -> None:
    out, lse = forward_warm.call(given())
    assert (out.shape, out.data.ptr, lse.shape, lse.dtype) == (SHAPE, OUT, (1, 2, 8), "f4")
    assert launched == [(Q, K, V, OUT, LSE)]


def test_other_memory_is_the_same_call(launched: list[tuple[int, ...]]) -> None:
    own = Stand(SHAPE, at=OUT)
    out, _ = forward_warm.call(given(q=Stand(SHAPE, at=Q + 16), out=own))
    assert out is own
    assert launched[0][:4] == (Q + 16, K, V, OUT)


@pytest.mark.parametrize("change", [
    {"q": Stand(SHAPE, at=Q + 8)}, {"q": Stand((1, 9, 2, 64), at=Q)}, {"k": Stand(SHAPE, "f4", K)},
    {"sinks": Stand((2,), "f4")}, {"q": np.zeros(SHAPE, "f2")},
    {"words": ("dense", "causal", True)}, {"words": ("dense", [], True)},
    {"out": Stand(SHAPE, at=Q)}, {"out": Stand(SHAPE, at=V + BYTES - 16)},
], ids=lambda change: next(iter(change)))
def test_whatever_differs_goes_the_long_way(change: dict[str, Any],
                                            launched: list[tuple[int, ...]]) -> None:
    assert forward_warm.call(given(**change)) is None
    assert not launched


@pytest.mark.gpu
@pytest.mark.parametrize("options", [
    {}, {"mask": "causal"}, {"mask": "sliding_causal", "window": 40}, {"layout": "bhsd"},
    {"kernel": "k2"}], ids=str)
def test_the_second_call_gives_the_first_ones_bits(options: dict[str, Any]) -> None:
    cupy = pytest.importorskip("cupy")
    rng = cupy.random.default_rng(1)
    q, k, v, more = (rng.standard_normal((2, 130, 4, 64)).astype("f2") for _ in range(4))
    first, lse = gpukit.attention(q, k, v, return_lse=True, **options)
    gpukit.attention(more, k, v, return_lse=True, **options)
    for copies in range(3):
        q = q.copy()
        out = cupy.empty_like(q) if copies else None
        again, lse_again = gpukit.attention(q, k, v, out=out, return_lse=True, **options)
        assert bool((again == first).all())
        assert bool((lse_again == lse).all())


@pytest.mark.gpu
def test_ragged_calls_again() -> None:
    cupy = pytest.importorskip("cupy")
    rng = cupy.random.default_rng(1)
    q, k, v = (rng.standard_normal((300, 4, 64)).astype("f2") for _ in range(3))
    results = []
    for cut in (100, 100, 250):
        offsets = cupy.array([0, cut, 300], "u4")
        results.append(gpukit.attention_ragged(q, k, v, offsets, offsets, max_queries=300))
    assert bool((results[0] == results[1]).all())
    assert not bool((results[0] == results[2]).all())
    alone = gpukit.attention(q[None, :250], k[None, :250], v[None, :250])
    assert float(abs(results[2][:250].astype("f4") - alone[0].astype("f4")).max()) < 4e-3


@pytest.mark.gpu
def test_the_short_way_refuses_what_the_long_one_does() -> None:
    cupy = pytest.importorskip("cupy")
    q, k, v = (cupy.zeros((1, 64, 2, 64), "f2") for _ in range(3))
    gpukit.attention(q, k, v, out=cupy.empty_like(q))
    with pytest.raises(ArgumentError, match="out"):
        gpukit.attention(q, k, v, out=k)
