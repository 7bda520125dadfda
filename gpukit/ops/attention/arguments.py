"""What the attention functions were given, checked: every argument before anything is launched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpukit import devices, dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops import arrays

MAX_LENGTH = (1 << 29) - 1  # positions and distances are added up in 32 bits
MAX_COLUMNS = 256
FAR = 1e18  # numbers may be as large, or as small: their products are still float32
_TYPES = ("bf16", "f16")
_F32 = np.dtype(np.float32)
_U32 = np.dtype(np.uint32)


def tensor(function: str, name: str, array: Any, rank: int, device: Device | None,
           dtype: Any = None, *, eight: bool = False) -> tuple[Device, Any]:
    """q, k, v or out: float16 or bfloat16 of this rank, or with `eight` bytes.

    Raises:
        ArgumentError: another rank, dtype, device or alignment.
    """
    where, array = devices.adopt(name, array, function)
    if device is not None:
        arrays.check_device(function, name, where, device)
    if array.ndim != rank:
        raise ArgumentError(f"{function}: {name} has shape {array.shape}; accepted: {rank} "
                            "dimensions")
    found = dtypes.of(array.dtype)
    if not eight and (found is None or found.name not in _TYPES):
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}; accepted: float16, "
                            "bfloat16")
    if dtype is not None and array.dtype != dtype:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}, q has {dtype}; they "
                            "must be equal")
    arrays.check_elements(function, name, array, where)
    return where, array


def heads(function: str, q: Any, k: Any, v: Any) -> None:
    """[batch, rows, heads, columns] that go together.

    Raises:
        ArgumentError: names the array and the dimension.
    """
    (h, d), (hk, dk), (hv, dv) = q.shape[2:], k.shape[2:], v.shape[2:]
    if dk != d:
        raise ArgumentError(f"{function}: k has {dk} columns per head, q has {d}; they must be "
                            "equal")
    if hv != hk or v.shape[:2] != k.shape[:2]:
        raise ArgumentError(f"{function}: v has shape {v.shape}, k {k.shape}; they must be equal "
                            "up to the columns")
    if not hk or h % hk:
        raise ArgumentError(f"{function}: q has {h} heads, k has {hk}; accepted: a multiple")
    for name, columns in (("q", d), ("v", dv)):
        if not 1 <= columns <= MAX_COLUMNS:
            raise ArgumentError(f"{function}: {name} has {columns} columns per head; accepted: 1 "
                                f"to {MAX_COLUMNS}")
    for name, array in (("q", q), ("k", k)):
        if array.shape[1] > MAX_LENGTH:
            raise ArgumentError(f"{function}: {name} has {array.shape[1]} rows; accepted: at most "
                                f"{MAX_LENGTH}")


def integers(function: str, name: str, array: Any, shape: tuple[int | None, ...],
             device: Device) -> Any:
    """A dense uint32 array on the device; None in `shape` is any size.

    Raises:
        ArgumentError: another dtype, shape or device.
    """
    where, array = devices.adopt(name, array, function)
    arrays.check_device(function, name, where, device)
    if array.dtype != _U32:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}; accepted: uint32")
    _check_shape(function, name, array, shape)
    arrays.check_dense(function, name, array)
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{function}: {name} is not C-contiguous")
    return array


def floats(function: str, name: str, array: Any, shape: tuple[int | None, ...],
           device: Device) -> Any:
    """A dense float32 array on the device, or None."""
    if array is None:
        return None
    where, array = devices.adopt(name, array, function)
    arrays.check_device(function, name, where, device)
    if array.dtype != _F32:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}; accepted: float32")
    _check_shape(function, name, array, shape)
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{function}: {name} is not C-contiguous")
    return array


def _check_shape(function: str, name: str, array: Any, shape: tuple[int | None, ...]) -> None:
    fits = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=False))
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ArgumentError(f"{function}: {name} has shape {array.shape}; accepted: ({wanted})")


def scale(function: str, value: Any, columns: int) -> float:
    """The factor of products, 1 / sqrt(columns) by default.

    Raises:
        ArgumentError: not a number that is positive, and stays so in float32 whatever it is
            multiplied by.
    """
    if value is None:
        return 1.0 / math.sqrt(columns)
    number = arrays.check_scalar(function, "scale", value)
    if not 1.0 / FAR <= number <= FAR:
        raise ArgumentError(f"{function}: scale={number} is not accepted; {1.0 / FAR:g} to {FAR:g}")
    return number


def softcap(function: str, value: Any) -> float:
    """The limit of scores, 0 for none."""
    if value is None:
        return 0.0
    number = arrays.check_scalar(function, "softcap", value)
    if not 1.0 / FAR <= number <= FAR:
        raise ArgumentError(f"{function}: softcap={number} is not accepted; {1.0 / FAR:g} to "
                            f"{FAR:g}, or None")
    return number


def out(function: str, given: Any, shape: tuple[int, ...], like: Any, device: Device,
        inputs: dict[str, Any]) -> Any:
    """The output array: the caller's, or a new dense one."""
    if given is None:
        return device.empty(shape, like.dtype)
    _, given = tensor(function, "out", given, len(shape), device, like.dtype)
    if given.shape != shape:
        raise ArgumentError(f"{function}: out has shape {given.shape}, the result has {shape}")
    arrays.check_writable(function, "out", given)
    arrays.check_distinct(function, "out", given)
    apart(function, given, inputs, device)
    return given


def apart(function: str, given: Any, inputs: dict[str, Any], device: Device) -> None:
    """The output shares no memory with what is read; what is None is not.

    Raises:
        ArgumentError: it does.
    """
    for name, array in inputs.items():
        if array is not None:
            arrays.check_no_overlap(function, name, given, array, device, same_ok=False)
