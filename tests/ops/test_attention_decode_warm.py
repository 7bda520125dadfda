"""Decode calls that have been made before: what goes the short way, and with what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukit.ops.attention import decode_warm, warm

SHAPE, CACHE = (1, 2, 64), (1, 8, 2, 64)
SPANS = ((0, 256), (0, 2048), (0, 2048), (0, 256))
Q, K, V, OUT, LSE, LENGTHS, TERM, SCALE = (4096 * i for i in range(1, 9))
NAMES = ("q", "k", "v", "out", "lengths", "table", "sinks", "slopes", "bias", "relative", "q_scale",
         "k_scale", "v_scale")
WORDS = ("causal", None, None, None, 0.0, True)


class Stand:
    """An array that is somewhere on a GPU."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "f2", at: int = LSE) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.strides = np.empty(shape, dtype).strides
        self.data = SimpleNamespace(ptr=at, device_id=0)


def given(**arrays: Any) -> tuple[Any, ...]:
    plain = {"q": Stand(SHAPE, at=Q), "k": Stand(CACHE, at=K), "v": Stand(CACHE, at=V)}
    return tuple((plain | arrays).get(name) for name in NAMES)


LONG = given(lengths=Stand((1,), "u4", LENGTHS), relative=Stand((1, 2, 9), at=TERM), k_scale=2.0,
             v_scale=Stand((1, 2), "f4", SCALE))


class Plan:
    """Entries of its own, and where launches of each arrive."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, ...]] = []
        self.entries = {read(call): decode_warm._Entry(
            lambda *places: self.launched.append(places), self, SHAPE, np.dtype("f2"), 256,
            (1, 2), SPANS, 3 * (call is LONG)) for call in (given(), given(out=Stand(SHAPE)), LONG)}


def read(call: tuple[Any, ...]) -> tuple[Any, ...]:
    found = decode_warm._read(call, WORDS)
    assert found is not None
    return found[0]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(warm.Cupy, "ndarray", Stand)
    monkeypatch.setattr(warm.Cupy, "alloc", lambda size: SimpleNamespace(ptr=OUT))
    monkeypatch.setattr(Stand, "__init__", made_anywhere(Stand.__init__))
    return Plan()


def made_anywhere(init: Any) -> Any:
    """CuPy's constructor takes memory where this one takes an address."""
    def initialise(self: Stand, shape: tuple[int, ...], dtype: str = "f2", at: Any = LSE) -> None:
        init(self, shape, dtype, getattr(at, "ptr", at))
    return initialise


def test_results_are_new_arrays(plan: Plan) -> None:
    out, lse = decode_warm.call(given(), WORDS, plan)
    assert (out.shape, out.data.ptr, lse.shape, lse.dtype) == (SHAPE, OUT, (1, 2), "f4")
    assert plan.launched == [(Q, K, V, OUT, LSE, *[0] * 5)]


def test_every_array_arrives_at_its_parameter(plan: Plan) -> None:
    decode_warm.call(LONG, WORDS, plan)
    assert plan.launched == [(Q, K, V, OUT, LSE, LENGTHS, 0, 0, 0, TERM, 0, 0, SCALE)]


def test_q_may_be_the_output(plan: Plan) -> None:
    own = Stand(SHAPE, at=Q)
    out, _ = decode_warm.call(given(q=own, out=own), WORDS, plan)
    assert out is own and plan.launched[0][:4] == (Q, K, V, Q)


@pytest.mark.parametrize("change", [
    {"q": Stand(SHAPE, at=Q + 8)}, {"q": Stand((2, 2, 64), at=Q)}, {"k": Stand(CACHE, "u1", K)},
    {"sinks": Stand((2,), "f4")}, {"q": np.zeros(SHAPE, "f2")}, {"k_scale": 2.0}, {"v_scale": 2},
    {"out": Stand(SHAPE, at=K)}, {"out": Stand(SHAPE, at=V + 2048 - 16)},
    {"bias": Stand((1, 2, 9), at=TERM), "lengths": Stand((1,), "u4")},
], ids=lambda change: next(iter(change)))
def test_whatever_differs_goes_the_long_way(change: dict[str, Any], plan: Plan) -> None:
    assert decode_warm.call(given(**change), WORDS, plan) is None
    assert not plan.launched


@pytest.mark.parametrize("words", [("null", *WORDS[1:]), (["causal"], *WORDS[1:])])
def test_other_words_go_the_long_way(words: tuple[Any, ...], plan: Plan) -> None:
    assert decode_warm.call(given(), words, plan) is None


def test_without_a_plan_a_stream_has_its_own(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, captured = SimpleNamespace(ptr=7), False
    monkeypatch.setattr(warm.Cupy, "stream", lambda: stream)
    monkeypatch.setattr(warm.Cupy, "capturing", lambda pointer: captured)
    entry = next(iter(plan.entries.values()))
    monkeypatch.setattr(decode_warm, "_entries", {(*read(given()), (7, 0)): entry})
    assert decode_warm.call(given(), WORDS, None) is not None
    captured = True
    assert decode_warm.call(given(), WORDS, None) is None
    captured, stream = False, SimpleNamespace(ptr=8)
    assert decode_warm.call(given(), WORDS, None) is None
