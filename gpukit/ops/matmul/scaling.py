"""scale_a and scale_b of `gpukit.matmul`: numbers, factors of rows and columns, or of blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_library import EIGHT_BIT
from gpukit.ops import arrays

_MATMUL = "matmul"
BLOCK = 128  # elements of K, and of N in b


class Scales(NamedTuple):
    """Checked scales.

    Attributes:
        factor: the product of those that are numbers.
        a, b: arrays of one element, of factors without gaps, or (blocks) of two dimensions.
    """

    factor: float
    a: Any
    b: Any
    blocks: bool


def check(scale_a: Any, scale_b: Any, a: Any, b: Any, out: Any, dtype: str,
          device: Device) -> Scales:
    """The scales of operands that have been checked.

    Raises:
        ArgumentError: names the argument, its shape and what is accepted.
    """
    factor_a, scale_a = _number_or_array("scale_a", scale_a, out, device)
    factor_b, scale_b = _number_or_array("scale_b", scale_b, out, device)
    factor = factor_a * factor_b
    if dtype in EIGHT_BIT and a.ndim == b.ndim == 2 and _blocks(scale_a, scale_b, a, b):
        return Scales(factor, scale_a, scale_b, True)
    rows, columns = a.shape[:-1], (*b.shape[:-2], b.shape[-1])
    return Scales(factor, _vector("scale_a", scale_a, rows, (*rows, 1)),
                  _vector("scale_b", scale_b, columns, (*b.shape[:-2], 1, b.shape[-1])), False)


def _number_or_array(name: str, value: Any, out: Any, device: Device) -> tuple[float, Any]:
    """A factor of alpha and an array: at most one of them says anything."""
    if value is None:
        return 1.0, None
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        return arrays.check_scalar(_MATMUL, name, value), None
    where, value = devices.adopt(name, value, _MATMUL)
    arrays.check_device(_MATMUL, name, where, device)
    if value.dtype != np.float32:
        raise ArgumentError(f"matmul: {name} has dtype {value.dtype}; accepted: float32")
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
