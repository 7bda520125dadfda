"""Kernel arguments written as text, for the command line.

    f32:1024             a pointer to an array of random numbers
    f32:64x64=arange     ... of 0, 1, 2, ...
    i32:1024=0           ... of one value
    out:f32:1024         ... that nothing has written yet
    @input.npy           ... of a file's values
    tma:64x32:128B:f16:512x256    a tensor map of such an array: box, swizzle (or none), array
    i32=5                a scalar
    null                 a null pointer

The same text and seed always give the same values: floats are normal, integers from -8 to 8, or
0 to 15 where unsigned.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from gpukit.emulator.arguments import Uninitialized
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import one_line, shortened, shown
from gpukit.emulator.tensormap import SWIZZLES, TensorMap

DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
_FORMS = "DTYPE:SHAPE[=FILL], out:DTYPE:SHAPE, @FILE.npy, tma:BOX:SWIZZLE:ARRAY, DTYPE=VALUE, null"


@dataclass(frozen=True)
class Argument:
    """A parsed argument: what ``emulator.run`` takes, and the array behind it, if any."""

    value: Any
    array: Any = None


def parse_argument(text: str, seed: int = 0) -> Argument:
    """The argument that ``text`` means. Raises ``LaunchError`` quoting it."""
    try:
        return _parse(text, seed)
    except (LaunchError, MemoryError) as why:
        raise LaunchError(f"{shown(text)}: {why}") from None


def is_array(text: str) -> bool:
    """Whether a text means an argument with an array behind it."""
    return ":" in text or text.startswith("@")


def _parse(text: str, seed: int) -> Argument:
    if text == "null":
        return Argument(None)
    kind, _, rest = text.partition(":")
    if kind == "out":
        array = _array(rest, seed)
        return Argument(Uninitialized(array), array)
    if kind == "tma":
        return _tensor_map(rest, seed)
    if is_array(text):
        array = _array(text, seed)
        return Argument(array, array)
    name, equals, value = text.partition("=")
    if not equals:
        raise LaunchError(f"is no argument; accepted: {_FORMS}")
    return Argument(_scalar(name, value))


def _tensor_map(text: str, seed: int) -> Argument:
    box, _, rest = text.partition(":")
    swizzle, _, array_text = rest.partition(":")
    if swizzle not in SWIZZLES:
        raise LaunchError(f"swizzle {swizzle!r} is unknown; accepted: {', '.join(SWIZZLES)}")
    array = _array(array_text, seed)
    extents = _shape(box)
    if len(extents) != array.ndim:
        raise LaunchError(f"the box has {len(extents)} dimensions, the array {array.ndim}")
    return Argument(TensorMap(array, extents[::-1], swizzle=swizzle), array)


def _array(text: str, seed: int) -> Any:
    if text.startswith("@"):
        return _load(Path(text[1:]))
    name, colon, rest = text.partition(":")
    if not colon:
        raise LaunchError(f"{text!r} is no array; accepted: DTYPE:SHAPE[=FILL] or @FILE.npy")
    shape, equals, fill = rest.partition("=")
    dtype, extents = _dtype(name), _shape(shape)
    _check_memory(math.prod(extents), dtype.itemsize)
    return _filled(dtype, extents, fill if equals else "random", seed)


def _check_memory(elements: int, size: int) -> None:
    """Refuse what does not fit into memory, with the 8 bytes an element while it is filled."""
    needed, exists = elements * (size + 8), _memory_bytes()
    if needed > exists:
        raise LaunchError(f"needs {needed / 1e9:.4g} GB of memory, there are {exists / 1e9:.4g}")


def _memory_bytes() -> float:
    if not hasattr(os, "sysconf"):  # not POSIX: NumPy will complain
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _load(path: Path) -> Any:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as why:
        raise LaunchError(f"{path} cannot be read: {why.strerror or why}") from None
    except Exception as why:  # damaged files raise whatever the reader stumbles over
        raise LaunchError(f"{path} is no .npy file: {shortened(one_line(str(why)))}") from None
    if not isinstance(array, np.ndarray):
        raise LaunchError(f"{path} holds several arrays (.npz); accepted: a .npy file")
    return np.ascontiguousarray(array)


def _dtype(name: str) -> np.dtype[Any]:
    if name not in DTYPES:
        raise LaunchError(f"dtype {name!r} is unknown; accepted: {', '.join(DTYPES)}")
    dtype: np.dtype[Any] = np.dtype(DTYPES[name])
    return dtype


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(re.fullmatch("0*[1-9][0-9]{0,15}", part) for part in parts):
        raise LaunchError(f"{text!r} is no shape; write 1024 or 64x64")
    return tuple(map(int, parts))


def _filled(dtype: np.dtype[Any], shape: tuple[int, ...], fill: str, seed: int) -> Any:
    if fill == "arange":
        _number(dtype, str(math.prod(shape) - 1))
        return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    if fill != "random":
        return np.full(shape, _number(dtype, fill))
    random = np.random.default_rng(seed)
    if dtype.kind in "iub":
        low, high = (-8, 9) if dtype.kind == "i" else (0, 2 if dtype.kind == "b" else 16)
        return random.integers(low, high, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _scalar(name: str, value: str) -> Any:
    return _number(_dtype(name), value)


def _number(dtype: np.dtype[Any], text: str) -> Any:
    """One number as a NumPy scalar, exactly or not at all for integers."""
    try:
        if dtype.kind in "iub":
            number = int(text, 0)
            if number not in _range(dtype):
                raise LaunchError(f"{shown(number)} does not fit into {dtype}")
            return dtype.type(number)
        return _float(dtype, float(text))
    except ValueError:
        raise LaunchError(f"{shown(text)} is no {dtype} value") from None


def _float(dtype: np.dtype[Any], value: float) -> Any:
    with np.errstate(over="ignore"):
        converted = dtype.type(value)
    if math.isfinite(value) and not math.isfinite(converted):
        raise LaunchError(f"{value:g} does not fit into {dtype}")
    return converted


def _range(dtype: np.dtype[Any]) -> range:
    if dtype.kind == "b":
        return range(2)
    limits = np.iinfo(dtype)
    return range(int(limits.min), int(limits.max) + 1)
