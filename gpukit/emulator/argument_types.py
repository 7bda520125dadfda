"""Whether a NumPy value has the type that a kernel's parameter declares."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import shown
from gpukit.emulator.ptx.ir import Var

_INTEGERS = {
    1: ("signed char", "int8_t", "uint8_t", "bool"),
    2: ("short", "unsigned short", "int16_t", "uint16_t"),
    4: ("int", "unsigned int", "unsigned", "int32_t", "uint32_t"),
    8: ("long long", "unsigned long long", "int64_t", "uint64_t", "size_t"),
}
_SIZES = {name: size for size, names in _INTEGERS.items() for name in names}
_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype("f4"), "double": np.dtype("f8")}
_NARROW: dict[str, np.dtype[Any]] = {  # integers carry them as well: NumPy itself lacks most
    **dict.fromkeys(("__half", "half"), np.dtype("f2")),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), np.dtype(ml_dtypes.bfloat16)),
    "__nv_fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "__nv_fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def declared(param: Var, c_type: str = "") -> str:
    """A parameter's type for messages: that of the source, if known, and that of the PTX."""
    array = f"[{param.count}]" if param.count is not None else ""
    return f"{c_type and c_type + ', '}.{param.type.name}{array}"


def check_array(what: str, dtype: np.dtype[Any], param: Var, c_type: str) -> None:
    """Refuse an array that the parameter is no pointer to, as far as ``c_type`` tells.

    Signed and unsigned integers of a size are the same here, and bytes (uint8) and structured
    elements go for everything.
    """
    if param.size != 8 or param.type.is_float or c_type in _SIZES:
        example = param.type.dtype.name
        raise LaunchError(
            f"{what}: an array was given, which is passed as a pointer; the parameter is no "
            f"pointer ({declared(param, c_type)}), accepted: a scalar such as np.{example}(5)"
        )
    pointee = c_type.removesuffix("*") if c_type.endswith("*") else ""
    wanted = _accepted(pointee)
    opaque = dtype == np.uint8 or dtype.names is not None
    if wanted and not opaque and not _fits(dtype, pointee):
        raise LaunchError(
            f"{what}: an array of {dtype} was given; the parameter is {c_type}, accepted: {wanted} "
            "(or the array's bytes, .view(np.uint8))"
        )


def _accepted(pointee: str) -> str:
    if pointee in _SIZES:
        return f"integers of {8 * _SIZES[pointee]} bits"
    floats = {**_FLOATS, **_NARROW}
    return floats[pointee].name if pointee in floats else ""


def _fits(dtype: np.dtype[Any], pointee: str) -> bool:
    if pointee in _FLOATS:
        return dtype == _FLOATS[pointee]
    narrow = _NARROW.get(pointee)
    size = narrow.itemsize if narrow is not None else _SIZES[pointee]
    carries = dtype.kind in "iub" and dtype.itemsize == size
    return carries or (narrow is not None and dtype == narrow)


def check_scalar(what: str, value: np.generic, param: Var, c_type: str) -> None:
    """Refuse a float for an integer and the reverse; typed parameters only (not ``.b32``)."""
    kind = param.type.kind
    if param.count is not None or kind == "b":
        return
    if value.dtype.kind not in ("f" if kind == "f" else "iub"):
        wanted = "a float" if kind == "f" else "an integer"
        raise LaunchError(
            f"{what}: {shown(value)} was given; the parameter is {declared(param, c_type)}, "
            f"accepted: {wanted} of {param.type.bits} bits, or bytes"
        )
