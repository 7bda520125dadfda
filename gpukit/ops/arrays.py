"""Argument checks shared by the ops. Each names the argument, what was given, what is accepted."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError

_F32_MAX = float(np.finfo(np.float32).max)


def check_float(function: str, name: str, array: Any) -> DType:
    """The gpukit type of a floating array."""
    dtype = dtypes.of(array.dtype)
    if dtype is None:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}; "
                            "accepted: float32, float16, bfloat16")
    return dtype


def check_dense(function: str, name: str, array: Any) -> str:
    """The memory order of an array without gaps, "C" or "F"."""
    flags = array.flags
    if flags.c_contiguous:
        return "C"
    if flags.f_contiguous:
        return "F"
    raise ArgumentError(f"{function}: {name} has gaps (shape {array.shape}, strides "
                        f"{array.strides} bytes); pass a dense copy: cupy.ascontiguousarray")


def check_same(function: str, name: str, array: Any, like: Any) -> None:
    """`array` has the shape, dtype and memory order of `like`, the first input."""
    if array.shape != like.shape:
        raise ArgumentError(f"{function}: {name} has shape {array.shape}, the first input "
                            f"{like.shape}; they must be equal (no broadcasting)")
    if array.dtype != like.dtype:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}, the first input "
                            f"{like.dtype}; they must be equal")
    if not _same_layout(array, like):
        raise ArgumentError(f"{function}: {name} has strides {array.strides}, the first input "
                            f"{like.strides}; both must be in the same memory order")


def _same_layout(array: Any, like: Any) -> bool:
    """Equal strides wherever they matter: not in dimensions of one element, not without any."""
    return not array.size or all(
        mine == other for size, mine, other
        in zip(array.shape, array.strides, like.strides, strict=True) if size > 1)


def check_aligned(function: str, name: str, array: Any, device: Device) -> None:
    """The array starts at a multiple of its element size, as every kernel access needs."""
    size = array.dtype.itemsize
    if array.size and device.phase(array) % size:
        raise ArgumentError(f"{function}: {name} starts at an address that is no multiple of its "
                            f"element size, {size} bytes; pass an aligned copy")


def check_elements(function: str, name: str, array: Any, device: Device) -> None:
    """The array starts at, and steps by, whole elements."""
    check_aligned(function, name, array, device)
    if any(stride % array.dtype.itemsize for stride in array.strides):
        raise ArgumentError(f"{function}: {name} has strides {array.strides} bytes; accepted: "
                            f"multiples of its element size, {array.dtype.itemsize}")


def check_distinct(function: str, name: str, array: Any) -> None:
    """No two elements of an array that is written share memory, as those of a broadcast one do."""
    if array.size and any(size > 1 and not stride for size, stride in
                          zip(array.shape, array.strides, strict=True)):
        raise ArgumentError(f"{function}: {name} has strides {array.strides} bytes, so that "
                            "elements share memory; accepted: each in a place of its own")


def check_integer(function: str, name: str, value: Any, least: int, most: int) -> int:
    """An integer, NumPy's too, within these limits."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and least <= value <= most:
        return int(value)
    raise ArgumentError(f"{function}: {name}={value!r:.40} is not accepted; an integer from "
                        f"{least} to {most}")


def check_writable(function: str, name: str, array: Any) -> None:
    """A NumPy array may be read-only."""
    if not getattr(array.flags, "writeable", True):
        raise ArgumentError(f"{function}: {name} is read-only")


def check_device(function: str, name: str, device: Device, expected: Device) -> None:
    """All arrays of one call live on one device."""
    if device is not expected:
        raise ArgumentError(f"{function}: {name} is on {device.name}, the first input on "
                            f"{expected.name}")


def check_no_overlap(function: str, name: str, out: Any, array: Any, device: Device, *,
                     same_ok: bool) -> None:
    """`out` does not share memory with an input, except (same_ok) by being exactly it."""
    (low, high), (other_low, other_high) = extent(out, device), extent(array, device)
    if same_ok and (low, high) == (other_low, other_high) and _same_layout(out, array):
        return
    if low < other_high and other_low < high:
        raise ArgumentError(f"{function}: out overlaps {name} in memory"
                            + (" without being the same array" if same_ok else ""))


def extent(array: Any, device: Device) -> tuple[int, int]:
    """The addresses an array's elements span: lowest, and one past the highest."""
    if not array.size:
        return 0, 0
    start = device.address(array)
    reach = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return (start + sum(r for r in reach if r < 0),
            start + sum(r for r in reach if r > 0) + array.dtype.itemsize)


def check_scalar(function: str, name: str, value: Any) -> float:
    """A real number that f32 can hold (NaN and infinity included)."""
    if type(value) is float and -_F32_MAX <= value <= _F32_MAX:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ArgumentError(f"{function}: {name} must be a real number, "
                            f"got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # integers and fractions beyond float64
        number = 2 * _F32_MAX
    if math.isfinite(number) and abs(number) > _F32_MAX:
        raise ArgumentError(f"{function}: {name}={value!s:.40} does not fit in float32")
    return number
