"""scale_a and scale_b of `gpukit.matmul`: numbers, factors of rows and columns, or of blocks.

Factors of blocks of K are float32, of 1 x 128 elements of a and 128 x 128 of b; or bytes: powers of
two (ue8m0) of 32 elements of 8 bits, ue4m3 of 16 elements of 4 bits.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_library import EIGHT_BIT, FOUR_BIT
from gpukit.ops import arrays

_MATMUL = "matmul"
BLOCK = 128  # elements of K, and of N in b
# Factors that are bytes, by what they are of: elements in a block, the type of the byte.
_BYTES = {**dict.fromkeys(EIGHT_BIT, (32, "ue8m0")), FOUR_BIT: (16, "ue4m3")}
_BYTE_TYPES = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}


class Scales(NamedTuple):
    """Checked scales.

    Attributes:
        factor: the product of those that are numbers.
        a, b: arrays of one element, of factors without gaps, or (blocks) of two dimensions.
        blocks: "" or, if factors are those of blocks, what `Call.sums` says then.
        ones: beside factors of blocks, one factor each for all of a and of b; arrays or None.
    """

    factor: float
    a: Any
    b: Any
    blocks: str
    ones: tuple[Any, Any] = (None, None)


def check(scale_a: Any, scale_b: Any, a: Any, b: Any, out: Any, dtype: str,
          device: Device) -> Scales:
    """The scales of operands that have been checked.

    Raises:
        ArgumentError: names the argument, its shape and what is accepted.
    """
    size, name = _BYTES.get(dtype, (0, ""))
    scale_a, one_a = _pair("scale_a", scale_a, name)
    scale_b, one_b = _pair("scale_b", scale_b, name)
    factor_a, scale_a = _number_or_array("scale_a", scale_a, out, device, name)
    factor_b, scale_b = _number_or_array("scale_b", scale_b, out, device, name)
    factor = factor_a * factor_b
    if dtype == FOUR_BIT or any(s is not None and s.dtype == np.uint8 for s in (scale_a, scale_b)):
        _check_bytes(scale_a, scale_b, a, b, dtype)
        more_a, one_a = _one("scale_a", one_a, out, device)
        more_b, one_b = _one("scale_b", one_b, out, device)
        return Scales(factor * more_a * more_b, scale_a, scale_b, f"blocks{size}", (one_a, one_b))
    if dtype in EIGHT_BIT and a.ndim == b.ndim == 2 and _blocks(scale_a, scale_b, a, b):
        return Scales(factor, scale_a, scale_b, "blocks")
    rows, columns = a.shape[:-1], (*b.shape[:-2], b.shape[-1])
    return Scales(factor, _vector("scale_a", scale_a, rows, (*rows, 1)),
                  _vector("scale_b", scale_b, columns, (*b.shape[:-2], 1, b.shape[-1])), "")


def _pair(what: str, value: Any, name: str) -> tuple[Any, Any]:
    """Factors, and one for all beside those of blocks."""
    if not isinstance(value, tuple):
        return _as_bytes(value, name), None
    blocks = _as_bytes(value[0], name) if len(value) == 2 else None
    if str(getattr(blocks, "dtype", "")).removeprefix("torch.") != "uint8":
        raise ArgumentError(f"matmul: {what} is a tuple of {len(value)}; accepted: factors of "
                            "blocks as uint8, and one factor for all of them")
    return blocks, value[1]


def _one(what: str, value: Any, out: Any, device: Device) -> tuple[float, Any]:
    """A number, or an array of one element."""
    factor, value = _number_or_array(what, value, out, device, "")
    if value is not None and value.size != 1:
        raise ArgumentError(f"matmul: {what}[1] has shape {value.shape}; accepted: a number, or "
                            "one element")
    return factor, value


def _as_bytes(value: Any, name: str) -> Any:
    """Arrays of the type whose bytes are factors of blocks, as bytes; others as they are."""
    dtype = str(getattr(value, "dtype", ""))
    if not name or _BYTE_TYPES.get(dtype.removeprefix("torch.")) != name:
        return value
    return value.view(sys.modules["torch"].uint8 if dtype.startswith("torch.") else np.uint8)


def _check_bytes(scale_a: Any, scale_b: Any, a: Any, b: Any, dtype: str) -> None:
    """A byte for each block of K, of each row of a and column of b."""
    size, name = _BYTES[dtype]
    stored = size // 2 if dtype == FOUR_BIT else size  # two of 4 bits are counted as one
    blocks = -(-a.shape[-1] // stored)
    shapes = (*a.shape[:-1], blocks), (blocks, *b.shape[1:])
    for what, scale, shape in zip(("scale_a", "scale_b"), (scale_a, scale_b), shapes, strict=True):
        if a.ndim > 2 or b.ndim > 2:
            raise ArgumentError(f"matmul: {what} has factors of blocks, a is {a.shape}, b "
                                f"{b.shape}; accepted: two dimensions")
        if scale is None or scale.dtype != np.uint8 or scale.shape != shape:
            given = "None" if scale is None else f"of dtype {scale.dtype} and shape {scale.shape}"
            raise ArgumentError(f"matmul: {what} is {given}; accepted for {dtype} with factors of "
                                f"blocks: uint8 ({name}) of shape {shape}, one for each {size} "
                                "elements of K")


def _number_or_array(name: str, value: Any, out: Any, device: Device,
                     of_bytes: str) -> tuple[float, Any]:
    """A factor of alpha and an array: at most one of them says anything."""
    if value is None:
        return 1.0, None
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        return arrays.check_scalar(_MATMUL, name, value), None
    where, value = devices.adopt(name, value, _MATMUL)
    arrays.check_device(_MATMUL, name, where, device)
    if value.dtype != np.float32 and not (of_bytes and value.dtype == np.uint8):
        also = f", or uint8 ({of_bytes} of blocks)" if of_bytes else ""
        raise ArgumentError(f"matmul: {name} has dtype {value.dtype}; accepted: float32{also}")
    arrays.check_elements(_MATMUL, name, value, device)
    arrays.check_no_overlap(_MATMUL, name, out, value, device, same_ok=False)
    return 1.0, value


def _blocks(scale_a: Any, scale_b: Any, a: Any, b: Any) -> bool:
    """Whether both have a factor per block, and at least one of them more than that of its side."""
    if scale_a is None or scale_b is None or scale_a.size == scale_b.size == 1:
        return False
    (m, k), n = a.shape, b.shape[1]
    k_blocks, n_blocks = -(-k // BLOCK), -(-n // BLOCK)
    return (scale_a.shape, scale_b.shape) == ((m, k_blocks), (k_blocks, n_blocks))


def pitch(scale_a: Any) -> int:
    """Bytes from K block to K block of factors of blocks; TMA asks for multiples of 16."""
    rows, k_blocks = scale_a.shape
    return int(scale_a.strides[1]) if k_blocks > 1 else -(-rows * 4 // 16) * 16


def addressable(scale_a: Any, device: Device) -> bool:
    """Whether TMA can address factors of blocks: rows fastest, at multiples of 16 bytes."""
    rows, step = scale_a.shape[0], pitch(scale_a)
    return (rows == 1 or scale_a.strides[0] == 4) and rows * 4 <= step and not (
        step | device.phase(scale_a)) % 16


def _vector(name: str, value: Any, shape: tuple[int, ...], padded: tuple[int, ...]) -> Any:
    """One element, or one per row of a or column of b; `padded` is how others write that shape."""
    if value is None or value.size == 1:
        return value
    if value.shape == padded:
        value = value.reshape(shape)
    if value.shape != shape or not value.flags.c_contiguous:
        raise ArgumentError(
            f"matmul: {name} has shape {value.shape} and strides {value.strides} bytes; accepted: "
            f"a number, one element, {shape} without gaps, or a factor for each block in both "
            "scale_a and scale_b of 8-bit operands of two dimensions")
    return value
