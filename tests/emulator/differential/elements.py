"""Elements of tensor-core operands as raw bytes: small integers, random numbers, corners."""

from __future__ import annotations

import numpy as np

from .model import Array
from .values import integers, random_bits

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "f64": 64, "s8": 8, "u8": 8,
        "s4": 4, "u4": 4, "b1": 1, "f32": 32, "s32": 32}  # fmt: skip
_MANTISSA_BIAS = {"e4m3": (3, 7), "e5m2": (2, 15)}
SMALLEST = {"f16": -24, "bf16": -133, "tf32": -136}  # exponent of the least subnormal


def encode(values: Array, kind: str) -> Array:
    """Exactly representable float64 values as uint8 bytes of a format."""
    flat = np.ascontiguousarray(values, np.float64)
    if kind == "f16":
        return flat.astype(np.float16).view(np.uint8)
    if kind == "bf16":
        upper = flat.astype(np.float32).view(np.uint32) >> np.uint32(16)
        return upper.astype(np.uint16).view(np.uint8)
    if kind in ("tf32", "f32"):
        return flat.astype(np.float32).view(np.uint8)
    if kind == "f64":
        return flat.view(np.uint8)
    if kind in _MANTISSA_BIAS:
        return _tiny(flat, *_MANTISSA_BIAS[kind])
    return flat.astype(np.int64).astype(np.int32 if kind == "s32" else np.int8).view(np.uint8)


def _tiny(values: Array, mantissa: int, bias: int) -> Array:
    """Normal numbers and zeros as 8-bit floats."""
    fraction, exponent = np.frexp(np.abs(values))
    code = (exponent - 1 + bias) * (1 << mantissa) + (fraction * 2 - 1) * (1 << mantissa)
    code = np.where(values == 0, 0, code).astype(np.uint8)
    return code | np.signbit(values).astype(np.uint8) << np.uint8(7)


def small_integers(kind: str, seed: str, count: int) -> Array:
    """Bytes of ``count`` integers whose sums of products are exact in every order.

    tf32 has rubbish in the bits that it does not have.
    """
    if BITS[kind] < 8:
        return random_bits(seed, -(-count * BITS[kind] // 64)).view(np.uint8)
    if kind in ("s8", "u8"):
        return random_bits(seed, -(-count // 8)).view(np.uint8)[:count]
    raw = encode(integers(seed, -8, 9, count), kind)
    if kind == "tf32":
        rubbish = random_bits(seed + "low", count).astype(np.uint32) & np.uint32(0x1FFF)
        return (raw.view(np.uint32) | rubbish).view(np.uint8)
    return raw


def random_numbers(kind: str, seed: str, count: int) -> Array:
    """Bytes of ``count`` numbers below 2 in magnitude with full mantissas."""
    if kind in _MANTISSA_BIAS:
        mantissa, bias = _MANTISSA_BIAS[kind]
        codes = integers(seed, 0, (bias + 1) << mantissa, count).astype(np.uint8)
        signs = (random_bits(seed + "sign", count) & np.uint64(0x80)).astype(np.uint8)
        return codes | signs
    values = random_bits(seed, count).view(np.int64) / 2.0**63
    return encode(values, kind)


def with_specials(raw: Array, kind: str, seed: str) -> Array:
    """Infinities and NaN among the elements, a few of each."""
    codes = {"f16": (0x7C00, 0xFC00, 0x7E01), "bf16": (0x7F80, 0xFF80, 0x7FC1),
             "tf32": (0x7F800000, 0xFF800000, 0x7FC00000), "e4m3": (0x7F, 0xFF, 0x7E),
             "e5m2": (0x7C, 0xFC, 0x7F)}[kind]  # fmt: skip
    elements = raw.copy().view(f"u{BITS[kind] // 8}")
    at = integers(seed, 0, elements.size, 3)
    elements[at] = codes
    return elements.view(np.uint8)


def subnormals(kind: str, seed: str, count: int) -> Array:
    """Small multiples of the least number."""
    return encode(integers(seed, -3, 4, count) * 2.0 ** SMALLEST[kind], kind)
