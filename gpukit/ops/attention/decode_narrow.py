"""Caches of 8-bit floats: types, and what they are multiplied by."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.attention_decode import NARROW_DIMS
from gpukit.ops import arrays
from gpukit.ops.attention import fp8_arguments
from gpukit.ops.attention.plan import Problem

_F = "attention_decode"
_BYTES = ("uint8", "float8_e4m3fn")


class Scales(NamedTuple):
    """What 8-bit operands are multiplied by.

    Attributes:
        queries: the type of q with a cache of e4m3, or empty.
        scores, values: numbers, of all scores and of all values.
        q, k, v: None, or f32 [sequences or 1, KV heads or 1].
    """

    queries: str = ""
    scores: float = 1.0
    values: float = 1.0
    q: Any = None
    k: Any = None
    v: Any = None

    @property
    def arrays(self) -> tuple[Any, ...]:
        """In the order of the kernel's parameters."""
        return self.q, self.k, self.v

    @property
    def named(self) -> dict[str, Any]:
        """By the caller's names."""
        return {"q_scale": self.q, "k_scale": self.k, "v_scale": self.v}

    @property
    def rest(self) -> tuple[Any, ...]:
        """The number and steps at the end of the kernel's parameters."""
        return (self.values, *(step for array in self.arrays for step in _steps(array)))


def bytes_of(array: Any) -> Any:
    """NumPy's and torch's e4m3 as bytes; other arrays as they are."""
    return fp8_arguments.as_bytes(array) if fp8_arguments.dtype_of(array) == _BYTES[1] else array


def element(q: Any, out: Any) -> str:
    """The type of the output for a cache of e4m3: q's, or for a q of e4m3 that of out.

    Raises:
        UnsupportedError: another type.
    """
    given = q if q.dtype != "uint8" else out
    if given is None:
        return "bf16"
    name = "q" if given is q else "out"
    dtype = arrays.check_float(_F, name, given).name
    if dtype == "f32":
        raise UnsupportedError(f"{_F}: {name} has dtype float32; accepted: float16, bfloat16"
                               + (", uint8 (e4m3)" if given is q else ""))
    return dtype


def scales(device: Device, problem: Problem, q: Any, narrow: bool, q_scale: Any, k_scale: Any,
           v_scale: Any) -> Scales:
    """The factors, checked.

    Raises:
        ArgumentError: a factor's type, shape or device, or one of what is not of 8 bits.
        UnsupportedError: a head dim that no kernel takes.
    """
    queries = ("e4m3" if q.dtype == "uint8" else problem.dtype) if narrow else ""
    for name, value, taken in (("q_scale", q_scale, queries == "e4m3"),
                               ("k_scale", k_scale, narrow), ("v_scale", v_scale, narrow)):
        if value is not None and not taken:
            raise ArgumentError(f"{_F}: {name} is for 8-bit arrays; {name[0]} is of 16")
    if narrow and problem.dim not in NARROW_DIMS:
        raise UnsupportedError(f"{_F}: q has a head dim of {problem.dim}; accepted with an 8-bit "
                               f"cache: {', '.join(map(str, NARROW_DIMS))}")
    of_q, of_k, of_v = (_factor(device, problem, name, value) for name, value in
                        (("q_scale", q_scale), ("k_scale", k_scale), ("v_scale", v_scale)))
    return Scales(queries, of_q[0] * of_k[0], of_v[0], of_q[1], of_k[1], of_v[1])


def _factor(device: Device, problem: Problem, name: str, value: Any) -> tuple[float, Any]:
    """A number, and an array or None."""
    if value is None:
        return 1.0, None
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        number = arrays.check_scalar(_F, name, value)
        if not 0 < number < math.inf:
            raise ArgumentError(f"{_F}: {name}={number} is not accepted; a positive finite number, "
                                "or float32 factors on the device")
        return number, None
    own, array = devices.adopt(name, value, _F)
    arrays.check_device(_F, name, own, device)
    array = array.reshape(1, -1) if array.ndim < 2 and array.dtype == "float32" else array
    sizes = (1, problem.sequences), (1, problem.kv_heads)
    if array.dtype != "float32" or array.ndim != 2 or any(
            size not in allowed for size, allowed in zip(array.shape, sizes, strict=True)):
        raise ArgumentError(f"{_F}: {name} has shape {array.shape} and dtype {array.dtype}; "
                            f"accepted: a number, or float32 [{problem.kv_heads} or 1] or "
                            f"[{problem.sequences} or 1, {problem.kv_heads} or 1]")
    arrays.check_elements(_F, name, array, device)
    return 1.0, array


def _steps(array: Any) -> tuple[int, int]:
    """From sequence to sequence and head to head; 0 where all have the same."""
    if array is None:
        return 0, 0
    batch, head = (0 if size == 1 else step // 4
                   for size, step in zip(array.shape, array.strides, strict=True))
    return batch, head
