"""Rows of logits, and what may be given once or once per row: checks and layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError
from gpukit.ops import arrays

MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class Rows:
    """A checked [B, V] array.

    Attributes:
        pitch: elements from row to row.
        vec: elements of the widest access, 16 bytes at most, that every row is aligned to.
    """

    array: Any
    device: Device
    dtype: DType
    count: int
    width: int
    pitch: int
    vec: int


def adopt(function: str, name: str, array: Any, like: Device | None = None) -> Rows:
    """Check an array of rows: two dimensions, floating, unit stride along the second.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
    """
    device, array = devices.adopt(name, array, function)
    if like is not None:
        arrays.check_device(function, name, device, like)
    dtype = arrays.check_float(function, name, array)
    if array.ndim != 2:
        raise ArgumentError(f"{function}: {name} has shape {array.shape}; accepted: [B, V]")
    count, width = array.shape
    arrays.check_elements(function, name, array, device)
    pitch = array.strides[0] // dtype.itemsize if count > 1 else width
    if (width > 1 and count and array.strides[1] != dtype.itemsize) or pitch < 0:
        raise ArgumentError(f"{function}: {name} has strides {array.strides} bytes; accepted: "
                            "consecutive elements along the last dimension")
    if not 0 < width <= MOST_TOKENS:
        raise ArgumentError(f"{function}: {name} has {width} columns; accepted: 1 to {MOST_TOKENS}")
    return Rows(array, device, dtype, count, width, pitch, _vec(array, pitch, dtype, device))


def imagine(device: Device, dtype: DType, count: int, width: int) -> Rows:
    """What a new, dense array would be, without its memory."""
    return Rows(None, device, dtype, count, width, width, _widest(0, width, dtype))


def _vec(array: Any, pitch: int, dtype: DType, device: Device) -> int:
    return _widest(device.phase(array), pitch, dtype)


def _widest(phase: int, pitch: int, dtype: DType) -> int:
    low = 16 | phase | pitch * dtype.itemsize
    return int((low & -low) // dtype.itemsize)


def output(function: str, name: str, given: Any, shape: tuple[int, ...], dtype: Any,
           device: Device) -> Any:
    """A new array, or the given one if it is exactly what a new one would be.

    Raises:
        ArgumentError: another shape, dtype, device or layout, or read-only.
    """
    if given is None:
        return device.empty(shape, dtype)
    array = vector(function, name, given, shape, dtype, device)
    arrays.check_writable(function, name, array)
    return array


def vector(function: str, name: str, given: Any, shape: tuple[int, ...], dtype: Any,
           device: Device) -> Any:
    """A dense array of exactly this shape and dtype on this device."""
    where, array = devices.adopt(name, given, function)
    arrays.check_device(function, name, where, device)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ArgumentError(f"{function}: {name} is {array.dtype}{list(array.shape)}; accepted: "
                            f"{np.dtype(dtype)}{list(shape)}")
    if arrays.check_dense(function, name, array) != "C" and array.ndim > 1:
        raise ArgumentError(f"{function}: {name} is in Fortran order; accepted: C order")
    arrays.check_aligned(function, name, array, device)
    return array


def per_row(function: str, name: str, given: Any, dtype: str, rows: Rows) -> tuple[Any, Any]:
    """The pointer and the scalar of a setting: an array [B], or a number for all rows."""
    return setting(function, name, given, dtype, rows.count, rows.device)


def setting(function: str, name: str, given: Any, dtype: str, count: int,
            device: Device) -> tuple[Any, Any]:
    """The same for `count` rows of anything."""
    if isinstance(given, bool):
        raise ArgumentError(f"{function}: {name} must be a number or an array, got bool")
    if isinstance(given, int | float | np.number):
        return None, _number(function, name, given, np.dtype(dtype))
    return vector(function, name, given, (count,), dtype, device), 0


def _number(function: str, name: str, given: Any, dtype: np.dtype[Any]) -> int | float:
    if dtype.kind == "f":
        return arrays.check_scalar(function, name, given)
    info = np.iinfo(dtype)
    real = isinstance(given, float | np.floating) and math.isfinite(given)
    whole = int(given) if real else given
    if whole != given or not isinstance(whole, int | np.integer):
        raise ArgumentError(f"{function}: {name}={given!r:.40} is not accepted; an integer from "
                            f"{info.min} to {info.max}")
    return arrays.check_integer(function, name, whole, int(info.min), int(info.max))
