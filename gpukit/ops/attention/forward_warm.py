"""The short way through a call of the Hopper forward kernel that has been made before.

A call of CuPy arrays whose key has been seen goes straight to its bound launch; anything else takes
the long way, with its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit.ops.attention import forward, fp8, run, warm
from gpukit.ops.attention.problem import Problem
from gpukit.ops.attention.warm import Cupy

_CAPACITY = 4096  # a program that never repeats a shape must not grow without bound


class Given(NamedTuple):
    """The arrays of a call as the caller passed them, and what else it said."""

    q: Any
    k: Any
    v: Any
    out: Any
    sinks: Any
    slopes: Any
    bias: Any
    relative: Any
    q_offsets: Any
    q_lengths: Any
    k_offsets: Any
    k_lengths: Any
    table: Any
    words: tuple[Any, ...]  # the last one: whether the LSE is wanted


class _Entry(NamedTuple):
    """A bound launch, the results it makes, and what q, k, v and out span."""

    launch: Callable[..., None]
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int
    lse_shape: tuple[int, ...]
    spans: warm.Spans


_entries: dict[tuple[Any, ...], _Entry] = {}


def call(given: tuple[Any, ...]) -> Any:
    """Launch and return (out, lse), or None: go the long way.

    Args:
        given: what a `Given` holds; making one takes its time.
    """
    q, k, v, out, *rest, words = given
    others = warm.some(rest)
    entry = _find(warm.key(q, k, v, out, others, words))
    if entry is None or not warm.on_current_device(q):
        return None
    at_q, at_k, at_v = q.data.ptr, k.data.ptr, v.data.ptr
    if out is None:
        out = Cupy.ndarray(entry.shape, entry.dtype, Cupy.alloc(entry.nbytes))
    elif not warm.apart(entry.spans, at_q, at_k, at_v, out.data.ptr, same=False):
        return None
    at_others = [x.data.ptr for x in others if x is not None]
    if not words[-1]:
        entry.launch(at_q, at_k, at_v, out.data.ptr, *at_others)
        return out, None
    lse = Cupy.ndarray(entry.lse_shape, "f4")
    entry.launch(at_q, at_k, at_v, out.data.ptr, lse.data.ptr, *at_others)
    return out, lse


def keep(given: Given, problem: Problem, kernel: str | None, out: Any, lse: Any) -> None:
    """Remember the launch of a call that has passed every check, if nothing but the kernel ran.

    Args:
        out, lse: as the caller gets them.
    """
    gpu = problem.device.properties.capability
    if (problem.device.emulated or gpu != (9, 0) or kernel not in (None, "k5", "k6")
            or not run.direct(problem)):
        return
    Cupy.learn()
    key = key_of(given)
    if key is None:
        return
    if len(_entries) >= _CAPACITY:
        _entries.clear()
    spans = warm.spans((problem.q, problem.k, problem.v, problem.out), problem.device)
    bind = fp8.bind if problem.dtype == "e4m3" else forward.bind
    _entries[key] = _Entry(bind(problem), out.shape, out.dtype, out.nbytes,
                           () if lse is None else lse.shape, spans)


def key_of(given: Given) -> tuple[Any, ...] | None:
    """What calls with the same launch have in common."""
    q, k, v, out, *others, words = given
    return warm.key(q, k, v, out, warm.some(others), words)


def _find(key: tuple[Any, ...] | None) -> _Entry | None:
    try:
        return _entries.get(key)  # type: ignore[arg-type]
    except TypeError:  # a word that cannot be one
        return None
