"""The short way through `sample` launches exactly what the long way does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukit import sampling
from gpukit.devices import emulated
from gpukit.errors import ArgumentError
from gpukit.ops.sampling import warm


class OnGpu(np.ndarray):
    """A host array that has an address, as CuPy's have."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


def on_gpu(values: Any) -> Any:
    return np.ascontiguousarray(values).view(OnGpu)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is launched, the long way or the short one, arrays as their addresses."""
    found: list[tuple[Any, ...]] = []

    def launch(self: Any, grid: Any, block: Any, args: Any) -> None:
        addresses = (x.ctypes.data if isinstance(x, np.ndarray) else 0 if x is None else x
                     for x in args)
        found.append(("long", grid, block, *addresses))

    def bind(self: Any, grid: Any, block: Any) -> Any:
        return lambda *values: found.append(("short", grid, block, *values))

    state = warm._State()
    state.ndarray = OnGpu
    monkeypatch.setattr(warm, "_state", state)
    monkeypatch.setattr(emulated.EmulatedDevice, "emulated", False)
    monkeypatch.setattr(emulated.EmulatedKernel, "launch", launch)
    monkeypatch.setattr(emulated.EmulatedKernel, "bind", bind)
    return found


def call(x: Any, seed: Any, **options: Any) -> None:
    sampling.sample(x, seed=seed, position=4, out=options.pop("out"), **options)


def test_the_second_call_is_short_and_the_same(launches: list[tuple[Any, ...]]) -> None:
    x, out = on_gpu(np.zeros((2, 64), np.float32)), on_gpu(np.zeros(2, np.int64))
    top_p = on_gpu(np.ones(2, np.float32))
    mask, status = on_gpu(np.ones((2, 2), np.uint32)), on_gpu(np.zeros(2, np.uint8))
    for seed in (7, 7, 8):
        call(x, seed, out=out, temperature=0.7, top_k=3, top_p=top_p, bitmask=mask, status=status)
    long, short, other = launches
    assert (long[0], short[0], other[0]) == ("long", "short", "short")
    assert short[1:] == long[1:]
    assert other[-2:] == (8, 4)
    assert other[:-2] == short[:-2]


@pytest.mark.parametrize("change", [
    {"temperature": 0.8}, {"top_k": 4}, {"joint": True}, {"tunables": {"cluster": 1}},
    {"seed": np.uint64(3)}, {"x": np.zeros((3, 64), np.float32)},
    {"x": np.zeros((2, 64), np.float16)}, {"x": np.zeros((2, 128), np.float32)[:, 1:65]}], ids=str)
def test_what_matters_takes_the_long_way(change: dict[str, Any],
                                         launches: list[tuple[Any, ...]]) -> None:
    x = on_gpu(np.zeros((2, 64), np.float32))
    call(x, 7, out=on_gpu(np.zeros(2, np.int64)), temperature=0.7, top_k=3)
    options = {"temperature": 0.7, "top_k": 3, "seed": 7, "x": x, **change}
    given = options.pop("x").view(OnGpu)
    call(given, options.pop("seed"), out=on_gpu(np.zeros(len(given), np.int64)), **options)
    assert [launch[0] for launch in launches] == ["long", "long"]


def test_refusals_stay(launches: list[tuple[Any, ...]]) -> None:
    x, out = on_gpu(np.zeros((2, 64), np.float32)), on_gpu(np.zeros(2, np.int64))
    call(x, 7, out=out)
    with pytest.raises(ArgumentError, match="seed=-1 is not accepted"):
        call(x, -1, out=out)





OTHERS = {
    "argmax": lambda x, t, seed, out: sampling.argmax(x, out=out),
    "softmax": lambda x, t, seed, out: sampling.softmax(x, t, out=out),
    "gumbel": lambda x, t, seed, out: sampling.gumbel_argmax(x, temperature=t, seed=seed, out=out),
}


@pytest.mark.parametrize("op", OTHERS)
def test_other_ops_go_the_short_way_too(op: str, launches: list[tuple[Any, ...]]) -> None:
    x = on_gpu(np.zeros((2, 64), np.float32))
    out = on_gpu(np.zeros((2, 64), np.float32) if op == "softmax" else np.zeros(2, np.int64))
    for t, seed in ((0.7, 7), (0.7, 7), (0.7, 8), (0.8, 8)):
        OTHERS[op](x, t, seed, out)
    first, second, third, fourth = launches
    assert [launch[0] for launch in (first, second, third)] == ["long", "short", "short"]
    assert second[1:] == first[1:]
    assert (third[-2:] == (8, 0)) if op == "gumbel" else (third == second)
    assert fourth[0] == ("short" if op == "argmax" else "long")
