"""The short way through an elementwise call that has been made before.

A launch costs the driver about 4.5 us and an allocation CuPy about 3 us; checking arguments the
long way would double that. What the checks depend on is small: the array type, density, dtype,
size, alignment and device. A call whose arrays are plain (dense C-order CuPy arrays on the current
device) and whose key has been seen goes straight to the bound launch; anything else takes the long
way, with its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpukit.ops.launch import Plan

_CAPACITY = 4096  # a program that never repeats a size must not grow without bound


@dataclass
class _State:
    """Bound launches by key, and what of CuPy the short way needs, known after the first call."""

    calls: dict[tuple[Any, ...], Callable[..., None]] = field(default_factory=dict)
    ndarray: Any = None
    alloc: Any = None
    current_device: Callable[[], int] | None = None  # None with one GPU: nothing to ask


_state = _State()


def unary(op: str, x: Any, a: float, out: Any) -> Any:
    """Launch and return the output, or None: go the long way."""
    if not _plain(x):
        return None
    if out is None:
        out = _state.ndarray(x.shape, x.dtype, _state.alloc(x.nbytes))
    elif not _fits(out, x):
        return None
    source, target, size = x.data, out.data.ptr, x.size
    call = _state.calls.get((op, x.dtype, size, (source.ptr | target) & 31, source.device_id))
    if call is None:
        return None
    call(source.ptr, target, size, a)
    return out


def binary(op: str, x: Any, y: Any, a: float, out: Any) -> Any:
    """`unary` for two inputs."""
    if not (_plain(x) and _like(y, x)):
        return None
    if out is None:
        out = _state.ndarray(x.shape, x.dtype, _state.alloc(x.nbytes))
    elif not (_fits(out, x) and _apart(out, y)):
        return None
    source, second, target, size = x.data, y.data.ptr, out.data.ptr, x.size
    call = _state.calls.get(
        (op, x.dtype, size, (source.ptr | second | target) & 31, source.device_id))
    if call is None:
        return None
    call(source.ptr, second, target, size, a)
    return out


def keep(op: str, operands: tuple[Any, ...], plan: Plan) -> None:
    """Remember the launch of a call that has passed every check."""
    _learn_cupy()
    if len(_state.calls) >= _CAPACITY:
        _state.calls.clear()
    low = 0
    for array in operands:
        low |= array.data.ptr
    x = operands[0]
    key = (op, x.dtype, x.size, low & 31, x.data.device_id)
    _state.calls[key] = plan.kernel.bind(plan.grid, plan.block)


def _learn_cupy() -> None:
    if _state.ndarray is None:
        import cupy

        from gpukit.devices.cuda import device_count

        _state.alloc = cupy.cuda.alloc
        _state.current_device = cupy.cuda.runtime.getDevice if device_count() > 1 else None
        _state.ndarray = cupy.ndarray


def _plain(array: Any) -> bool:
    """A CuPy array, dense in C order, on the current device. The private flag is an attribute
    read; `flags` builds an object each time."""
    if type(array) is not _state.ndarray or not array._c_contiguous:
        return False
    current = _state.current_device
    return current is None or current() == array.data.device_id


def _fits(array: Any, x: Any) -> bool:
    """`array` is plain like x, matches it, and is x itself or memory apart from it."""
    return _like(array, x) and _apart(array, x)


def _like(array: Any, x: Any) -> bool:
    """`array` is plain like x and matches it; it may overlap x, as two inputs may."""
    return bool(type(array) is _state.ndarray and array._c_contiguous and array.shape == x.shape
                and array.dtype == x.dtype
                and (_state.current_device is None or array.data.device_id == x.data.device_id))


def _apart(a: Any, b: Any) -> bool:
    """The two arrays of one size are the same memory or do not overlap."""
    distance = abs(a.data.ptr - b.data.ptr)
    return distance == 0 or bool(distance >= a.nbytes)
