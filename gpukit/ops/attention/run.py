"""From a checked problem to a launch: copies where kernels cannot address arrays, empty calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels import attention as specs
from gpukit.kernels.attention_fp8 import TRANSPOSED
from gpukit.ops.attention import blackwell, fa2, forward, fp8, naive, rungs
from gpukit.ops.attention.problem import Problem
from gpukit.ops.matmul import workspace

_ALIGN = 16  # bytes: what TMA and 16-byte copies ask of rows
_MAX_PITCH = 1 << 40
KERNELS = ("k1", "k2", "k3", "k4", "k5")
KERNELS_8 = ("k6",)  # of e4m3 operands
_HOPPER, _BLACKWELL = (9, 0), (10, 0)
_RUNGS = {"k3": specs.K3, "k4": specs.K4}


def run(function: str, problem: Problem, kernel: str | None) -> None:
    """Fill out and lse.

    Raises:
        ArgumentError: an unknown kernel.
        UnsupportedError: a rung of another GPU, or what it leaves out; pages without TMA.
    """
    accepted = KERNELS_8 if problem.dtype == "e4m3" else KERNELS
    if kernel is not None and kernel not in accepted:
        raise ArgumentError(f"{function}: kernel={kernel!r} is unknown; accepted: "
                            f"{', '.join(accepted)}, or None")
    if not problem.out.size:
        return
    if not problem.keys or not problem.k.size:
        _without_keys(problem)
        return
    ready = _addressable(problem)
    if problem.lengths.q_lengths is not None:
        _clear(ready)  # rows that nobody writes
    _launch(function, ready, kernel or _best(ready))
    if ready.out is not problem.out:
        _bits(problem.out)[...] = _bits(ready.out)[..., :problem.dv]


def _best(problem: Problem) -> str:
    """The rung that a problem gets."""
    if problem.dtype == "e4m3":
        return "k6"
    gpu = problem.device.properties.capability
    if gpu == _BLACKWELL and blackwell.takes(problem):
        return "k4"
    return "k5" if gpu == _HOPPER else "k2"


def _launch(function: str, problem: Problem, kernel: str) -> None:
    on_blackwell = problem.device.properties.capability == _BLACKWELL
    if kernel == "k6":
        if problem.device.properties.capability != _HOPPER:
            raise UnsupportedError(f"{function}: e4m3 operands need a Hopper GPU; this GPU is "
                                   f"{problem.device.properties.arch}")
        fp8.launch(problem)
    elif kernel == "k1":
        naive.launch(problem)
    elif kernel == "k2":
        if problem.lengths.policy == "paged":
            raise UnsupportedError(
                f"{function}: pages need kernel k5 of Hopper, or k4 of Blackwell and its head "
                f"dimensions; this GPU is {problem.device.properties.arch}")
        fa2.launch(problem)
    elif on_blackwell and kernel == "k3":
        blackwell.launch_k3(problem)
    elif on_blackwell and kernel == "k4":
        blackwell.launch(problem)
    elif kernel in _RUNGS:
        rungs.launch(_RUNGS[kernel], problem)
    else:
        forward.launch(problem)


def direct(problem: Problem) -> bool:
    """Whether a launch is all there is to do: nothing to copy, to clear or to leave out."""
    p = problem
    return bool(p.out.size and p.keys and p.k.size and p.lengths.q_lengths is None
                and p.v.shape[3] == p.out.shape[3]
                and all(_fits(p, array) for array in (p.q, p.k, p.v, p.out)))


def _bits(array: Any) -> Any:
    """Elements as integers, which every array library copies and clears."""
    return array.view(f"u{array.dtype.itemsize}")


def _clear(problem: Problem) -> None:
    _bits(problem.out)[...] = 0
    if problem.lse is not None:
        problem.lse.fill(-float("inf"))


def _without_keys(problem: Problem) -> None:
    """Zeros, and of sums the sinks alone, in rows that count; a ragged call leaves the others."""
    p, xp, sinks = problem, problem.device.xp, problem.terms.sinks
    counts, ragged = p.lengths.q_lengths, p.lengths.q_offsets is not None
    if ragged:
        counts = p.lengths.q_offsets[-1:]
    rows = xp.arange(p.out.shape[1])
    valid = rows[None] < (counts[:, None] if counts is not None else rows.size)
    bits = _bits(p.out)
    bits[...] = xp.where(valid[:, :, None, None], 0, bits) if ragged else 0
    if p.lse is not None:
        empty = -float("inf") if sinks is None else sinks[None, :, None]
        p.lse[...] = xp.where(valid[:, None], empty, p.lse if ragged else -float("inf"))


def _addressable(problem: Problem) -> Problem:
    """The same with rows that start at multiples of 16 bytes, in copies where they do not."""
    q, k, v = (_rows(problem, array) for array in (problem.q, problem.k, problem.v))
    out = problem.out
    if v.shape[3] != problem.dv or not _fits(problem, out):
        out = workspace.empty(problem.device, (*out.shape[:3], v.shape[3]), out.dtype)
        if problem.lengths.q_offsets is not None:  # rows past the last offset stay as they are
            _bits(out)[..., :problem.dv] = _bits(problem.out)
    return replace(problem, q=q, k=k, v=v, out=out)


def _rows(problem: Problem, array: Any) -> Any:
    if _fits(problem, array):
        return array
    columns, unit = array.shape[3], _unit(problem)
    wide = workspace.empty(problem.device, (*array.shape[:3], -(-columns // unit) * unit),
                           array.dtype)
    _bits(wide)[..., columns:] = 0
    _bits(wide)[..., :columns] = _bits(array)
    return wide


def _fits(problem: Problem, array: Any) -> bool:
    size = array.dtype.itemsize
    outer = [stride for extent, stride in zip(array.shape[:3], array.strides[:3], strict=True)
             if extent > 1]
    return (array.shape[3] % _unit(problem) == 0 and array.strides[3] == size
            and all(0 <= stride < _MAX_PITCH and stride % _ALIGN == 0 for stride in outer)
            and problem.device.phase(array) % _ALIGN == 0)


def _unit(problem: Problem) -> int:
    """Columns of which kernels take multiples."""
    return TRANSPOSED if problem.dtype == "e4m3" else 8
