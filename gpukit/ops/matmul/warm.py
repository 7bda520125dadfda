"""The short way through a call that has been made before.

All that the checks and the choice depend on is in a key: types, shapes, strides, alignment, device
and the words. A call of CuPy arrays on the current device whose key has been seen goes straight to
its bound launch; anything else takes the long way, with its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpukit.ops import arrays
from gpukit.ops.matmul.arguments import Call

_CAPACITY = 4096  # a program that never repeats a shape must not grow without bound
_F32_MAX = float(np.finfo(np.float32).max)
_RESIDUAL = 1  # of bias, residual, scale_a and scale_b


class _Entry(NamedTuple):
    """A bound launch, the output it makes, and what each array spans: (lowest byte, byte past the
    highest) from its address, for a, b and out, and for bias, residual, scale_a and scale_b."""

    launch: Callable[..., None]
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int
    span_a: tuple[int, int]
    span_b: tuple[int, int]
    span_out: tuple[int, int]
    others: tuple[tuple[int, int], ...]


class _State:
    """Entries by key, and what of CuPy the short way needs, known after the first call."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Any, ...], _Entry] = {}
        self.ndarray: Any = None
        self.alloc: Any = None
        self.current_device: Callable[[], int] | None = None  # None with one GPU


_state = _State()


def call(a: Any, b: Any, out: Any, bias: Any, activation: Any, residual: Any, alpha: Any,
         scale_a: Any, scale_b: Any, *words: Any) -> Any:
    """Launch and return the output, or None: go the long way.

    Args:
        words: out_dtype, tf32, dtype_a, dtype_b, fast_accum, config.
    """
    if type(alpha) is not float:
        return None
    if type(scale_a) is float:
        alpha, scale_a = alpha * scale_a, None
    if type(scale_b) is float:
        alpha, scale_b = alpha * scale_b, None
    if not -_F32_MAX <= alpha <= _F32_MAX:
        return None
    others = _others(bias, residual, scale_a, scale_b)
    entry = _find(a, b, out, others, activation, words)
    if entry is None:
        return None
    if out is None:
        out = _state.ndarray(entry.shape, entry.dtype, _state.alloc(entry.nbytes))
    elif not _apart(entry, a.data.ptr, b.data.ptr, out, others):
        return None
    if not others:
        entry.launch(a.data.ptr, b.data.ptr, out.data.ptr, 0, 0, alpha, 0, 0)
    else:
        bias, residual, scale_a, scale_b = (0 if x is None else x.data.ptr for x in others)
        entry.launch(a.data.ptr, b.data.ptr, out.data.ptr, bias, residual, alpha, scale_a, scale_b)
    return out


def _others(*arrays: Any) -> tuple[Any, ...]:
    """bias, residual, scale_a and scale_b; nothing if there is none of them."""
    bias, residual, scale_a, scale_b = arrays
    bare = bias is None and residual is None and scale_a is None and scale_b is None
    return () if bare else arrays


def keep(given: tuple[Any, ...], checked: Call, launch: Callable[..., None]) -> None:
    """Remember the launch of a call that has passed every check.

    Args:
        given: the arguments of `call`.
    """
    _learn_cupy()
    a, b, out, bias, activation, residual, _, scale_a, scale_b, *words = given
    others = _others(bias, residual, *(None if type(x) is float else x
                                       for x in (scale_a, scale_b)))
    key = _key(a, b, out, others, activation, tuple(words))
    if key is None:
        return
    if len(_state.entries) >= _CAPACITY:
        _state.entries.clear()
    result, device = checked.out, checked.device
    _state.entries[key] = _Entry(
        launch, result.shape, result.dtype, result.nbytes, _span(a, device), _span(b, device),
        _span(result, device), tuple(_span(x, device) for x in others))


def forget() -> None:
    """Let every call go the long way again, once: what is chosen has changed."""
    _state.entries.clear()


def _learn_cupy() -> None:
    if _state.ndarray is None:
        import cupy

        from gpukit.devices.cuda import device_count

        _state.alloc = cupy.cuda.alloc
        _state.current_device = cupy.cuda.runtime.getDevice if device_count() > 1 else None
        _state.ndarray = cupy.ndarray


def _find(a: Any, b: Any, out: Any, others: tuple[Any, ...], activation: Any,
          words: tuple[Any, ...]) -> _Entry | None:
    try:
        entry = _state.entries.get(_key(a, b, out, others, activation, words))  # type: ignore[arg-type]
    except TypeError:  # a word that cannot be one
        return None
    current = _state.current_device
    if entry is None or current is None or current() == a.data.device_id:
        return entry
    return None


def _key(a: Any, b: Any, out: Any, others: tuple[Any, ...], activation: Any,
         words: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """None if an array is no CuPy array."""
    ndarray = _state.ndarray
    if type(a) is not ndarray or type(b) is not ndarray:
        return None
    here, there = a.data, b.data
    key: tuple[Any, ...] = (
        a.shape, a.strides, a.dtype, here.ptr & 15, here.device_id, b.shape, b.strides, b.dtype,
        there.ptr & 15, there.device_id, activation, words)
    if out is None and not others:
        return key
    for x in (out, *others):
        if x is None:
            key += (None,)
        elif type(x) is ndarray:
            key += (x.shape, x.strides, x.dtype, x.data.ptr & 15, x.data.device_id)
        else:
            return None
    return key


def _span(array: Any, device: Any) -> tuple[int, int]:
    """Bytes from an array's address to its lowest byte and past its highest."""
    if array is None:
        return 0, 0
    low, high = arrays.extent(array, device)
    start = device.address(array)
    return low - start, high - start


def _apart(entry: _Entry, a: int, b: int, out: Any, others: tuple[Any, ...]) -> bool:
    """Nothing that is read shares memory with out; residual may be out itself."""
    start = out.data.ptr
    low, high = start + entry.span_out[0], start + entry.span_out[1]
    if ((low < a + entry.span_a[1] and a + entry.span_a[0] < high)
            or (low < b + entry.span_b[1] and b + entry.span_b[0] < high)):
        return False
    for i, (x, (first, last)) in enumerate(zip(others, entry.others, strict=True)):
        if x is None or (i == _RESIDUAL and x.data.ptr == start and x.strides == out.strides):
            continue
        if low < x.data.ptr + last and x.data.ptr + first < high:
            return False
    return True
