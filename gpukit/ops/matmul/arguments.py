"""What `gpukit.matmul` was given, checked: every argument before anything is launched."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit import devices, dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_library import FOUR_BIT
from gpukit.ops import arrays
from gpukit.ops.matmul import scaling

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")

_MATMUL = "matmul"
_F32_MAX = float(np.finfo(np.float32).max)
_FP8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": FOUR_BIT}
MAX_SIZE = 2**31 - 1024  # coordinates are 32-bit, also those of a tile that starts past the edge


@dataclass(frozen=True)
class Call:
    """A checked call: arrays of one device, scalars folded into alpha.

    Attributes:
        a, b, out, residual: [..., M, K], [..., K, N], [..., M, N]; a and b may lack the leading
            dimensions of out. 8-bit floats are uint8 arrays, as are pairs of 4-bit ones along K.
        dtype: what is multiplied: "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", or two
            of these if a and b differ: "e4m3_e5m2"; or "e2m1".
        scale_a, scale_b: float32 arrays of one element, or of a.shape[:-1] and [..., N].
        act: "none" or an activation.
        sums: "plain"; for 8-bit operands also "promoted", or "blocks" if scale_a and scale_b are
            [M, K / 128] and [K / 128, N / 128]; "blocks32" and "blocks16" if they are bytes,
            [M, K / 32] and [K / 32, N] (of 4-bit operands 16).
        ones: beside these a factor each for all of a and of b; arrays or None.
    """

    device: Device
    dtype: str
    a: Any
    b: Any
    out: Any
    bias: Any
    residual: Any
    scale_a: Any
    scale_b: Any
    alpha: float
    act: str
    sums: str
    ones: tuple[Any, Any] = (None, None)

    @property
    def extras(self) -> bool:
        """Whether the epilogue reads memory."""
        return self.bias is not None or self.residual is not None or self.scaled

    @property
    def of_blocks(self) -> bool:
        """Whether factors are those of blocks of K."""
        return self.sums.startswith("blocks")

    @property
    def factors(self) -> tuple[Any, Any]:
        """What the epilogue multiplies rows and columns with."""
        return self.ones if self.of_blocks else (self.scale_a, self.scale_b)

    @property
    def scaled(self) -> bool:
        """Whether the epilogue has factors."""
        return any(factor is not None for factor in self.factors)

    @property
    def terms(self) -> str:
        """What `extras` are; see `Problem`."""
        if not self.scaled or self.bias is not None or self.residual is not None:
            return "all"
        factors = [scale for scale in (self.scale_a, self.scale_b) if scale is not None]
        return "uniform" if all(scale.size == 1 for scale in factors) else "scales"

    @property
    def plain(self) -> bool:
        """Whether there is no epilogue at all."""
        return (not self.extras and not self.of_blocks and self.alpha == 1.0
                and self.act == "none")


def check(a: Any, b: Any, out: Any, bias: Any, activation: Any, residual: Any, alpha: Any,
          scale_a: Any, scale_b: Any, out_dtype: Any, tf32: Any, dtype_a: Any, dtype_b: Any,
          fast_accum: Any) -> Call:
    """See `gpukit.matmul`.

    Raises:
        ArgumentError: names the argument, what was given, what is accepted.
    """
    a, held_a = _bytes("a", a, dtype_a)
    b, held_b = _bytes("b", b, dtype_b, held_a)
    device, a = _operand("a", a, held_a, None)
    _, b = _operand("b", b, held_b, device)
    dtype = _dtype(a, b, held_a, held_b, _flag("tf32", tf32))
    lead = _leading(a, b)
    shape = (*lead, a.shape[-2], b.shape[-1])
    out = _output(out, out_dtype, shape, dtype, a, b, device)
    scales = scaling.check(scale_a, scale_b, a, b, out, dtype, device)
    fast = _flag("fast_accum", fast_accum)
    sums = scales.blocks or ("promoted" if held_a and not fast else "plain")
    return Call(
        device, dtype, a, b, out, _bias(bias, out, device), _residual(residual, out, device),
        scales.a, scales.b, _alpha(alpha, scales.factor), _activation(activation), sums,
        scales.ones)


def _bytes(name: str, array: Any, given: Any,
           default: str | None = None) -> tuple[Any, str | None]:
    """An 8-bit float array as bytes, and which format they hold; others as they are."""
    dtype = str(getattr(array, "dtype", ""))
    own = _FP8.get(dtype.removeprefix("torch."))
    holds_bytes = dtype.removeprefix("torch.") == "uint8"
    accepted = tuple(_FP8.values()) if holds_bytes else (None, own)
    held = default if given is None and holds_bytes else given
    if not isinstance(held, str | None) or held not in accepted:
        raise ArgumentError(f"matmul: {name} has dtype {dtype or type(array).__name__} and "
                            f"dtype_{name} is {given!r}; accepted: "
                            + ("'e4m3', 'e5m2' or 'e2m1', what the bytes hold" if holds_bytes else
                               f"None, or {own!r}, what it holds" if own else
                               "None, unless it holds bytes"))
    if own:
        kind = sys.modules["torch"].uint8 if dtype.startswith("torch.") else np.uint8
        return array.view(kind), own
    return array, held


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(f"matmul: {name} is {value!r:.60}; accepted: True or False")
    return bool(value)


def _operand(name: str, array: Any, held: str | None,
             expected: Device | None) -> tuple[Device, Any]:
    device, array = devices.adopt(name, array, _MATMUL)
    if expected is not None:
        arrays.check_device(_MATMUL, name, device, expected)
    if array.ndim < 2:
        raise ArgumentError(f"matmul: {name} has shape {array.shape}; accepted: two dimensions or "
                            "more")
    if held is None:
        arrays.check_float(_MATMUL, name, array)
    arrays.check_elements(_MATMUL, name, array, device)
    if max(array.shape[-2:]) > MAX_SIZE:
        raise ArgumentError(f"matmul: {name} has shape {array.shape}; accepted: at most "
                            f"{MAX_SIZE} rows and columns")
    return device, array


def _dtype(a: Any, b: Any, held_a: str | None, held_b: str | None, tf32: bool) -> str:
    if held_a is not None and held_b is not None and (FOUR_BIT not in (held_a, held_b)
                                                      or held_a == held_b):
        return held_a if held_a == held_b else f"{held_a}_{held_b}"
    if held_a != held_b or a.dtype != b.dtype:
        raise ArgumentError(f"matmul: b has dtype {held_b or b.dtype}, a has {held_a or a.dtype}; "
                            "accepted: equal ones, or two 8-bit floats")
    name = arrays.check_float(_MATMUL, "a", a).name
    return "tf32" if tf32 and name == "f32" else name


def _leading(a: Any, b: Any) -> tuple[int, ...]:
    """The leading dimensions of the product."""
    if a.shape[-1] != b.shape[-2]:
        raise ArgumentError(f"matmul: a is {a.shape} and b is {b.shape}; a's last dimension "
                            "must equal b's last but one")
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    if lead_a and lead_b and lead_a != lead_b:
        raise ArgumentError(f"matmul: a is {a.shape} and b is {b.shape}; accepted: equal leading "
                            "dimensions, or none in one of them")
    return tuple(lead_a or lead_b)


def _output(out: Any, out_dtype: Any, shape: tuple[int, ...], dtype: str, a: Any, b: Any,
            device: Device) -> Any:
    if out is None:
        default = a.dtype if a.dtype != np.uint8 else "bf16"
        chosen = _type(out_dtype if out_dtype is not None else default)
        if chosen is None or chosen.name in _FP8.values():
            raise ArgumentError(f"matmul: out_dtype is {out_dtype}; "
                                "accepted: float32, float16, bfloat16")
        return device.empty(shape, chosen.numpy)
    where, out = devices.adopt("out", out, _MATMUL)
    arrays.check_device(_MATMUL, "out", where, device)
    arrays.check_float(_MATMUL, "out", out)
    if out_dtype is not None and _type(out_dtype) is not dtypes.of(out.dtype):
        raise ArgumentError(f"matmul: out has dtype {out.dtype} but out_dtype is {out_dtype}")
    if out.shape != shape:
        raise ArgumentError(f"matmul: out has shape {out.shape}, the product has {shape}")
    arrays.check_elements(_MATMUL, "out", out, device)
    _check_rows("out", out)
    _check_apart_from_itself(out)
    arrays.check_writable(_MATMUL, "out", out)
    for name, array in (("a", a), ("b", b)):
        arrays.check_no_overlap(_MATMUL, name, out, array, device, same_ok=False)
    return out


def _type(given: Any) -> dtypes.DType | None:
    """The type that was asked for; None for whatever is no type."""
    return dtypes.of(given) if isinstance(given, Hashable) else None


def _check_rows(name: str, array: Any) -> None:
    """Elements of a row are next to each other."""
    if array.size and array.shape[-1] > 1 and array.strides[-1] != array.dtype.itemsize:
        raise ArgumentError(f"matmul: {name} is not C-contiguous (row-major): strides "
                            f"{array.strides} bytes; accepted: elements of a row next to each "
                            "other, with or without gaps between rows")


def _check_apart_from_itself(out: Any) -> None:
    """No two elements share memory, as broadcast or overlapping views do."""
    if not out.size:  # whose strides may be anything: NumPy makes them 0
        return
    reach = out.dtype.itemsize
    for stride, size in sorted(zip(out.strides, out.shape, strict=True)):
        if size > 1 and stride < reach:
            raise ArgumentError(f"matmul: out has shape {out.shape} and strides {out.strides} "
                                "bytes; accepted: positive strides, no two elements in one place")
        reach += max(0, size - 1) * stride


def _bias(bias: Any, out: Any, device: Device) -> Any:
    if bias is None:
        return None
    bias = _like_out("bias", bias, out, out.shape[-1:], device)
    arrays.check_no_overlap(_MATMUL, "bias", out, bias, device, same_ok=False)
    return bias


def _residual(residual: Any, out: Any, device: Device) -> Any:
    if residual is None:
        return None
    residual = _like_out("residual", residual, out, out.shape, device)
    same = device.address(residual) == device.address(out) and residual.strides == out.strides
    if not same:
        arrays.check_no_overlap(_MATMUL, "residual", out, residual, device, same_ok=False)
    return residual


def _like_out(name: str, array: Any, out: Any, shape: tuple[int, ...], device: Device) -> Any:
    where, array = devices.adopt(name, array, _MATMUL)
    arrays.check_device(_MATMUL, name, where, device)
    if array.dtype != out.dtype:
        raise ArgumentError(f"matmul: {name} has dtype {array.dtype}; accepted: out's, {out.dtype}")
    if array.shape != shape:
        raise ArgumentError(f"matmul: {name} has shape {array.shape}; accepted: {shape}")
    arrays.check_elements(_MATMUL, name, array, device)
    _check_rows(name, array)
    return array


def _alpha(alpha: Any, factor: float) -> float:
    product = arrays.check_scalar(_MATMUL, "alpha", alpha) * factor
    if math.isfinite(product) and abs(product) > _F32_MAX:
        raise ArgumentError(f"matmul: alpha times scale_a times scale_b is {product}; accepted: "
                            "products that fit in float32")
    return product


def _activation(activation: Any) -> str:
    if activation is None:
        return "none"
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ArgumentError(f"matmul: activation is {activation!r}; accepted: None, "
                            f"{', '.join(ACTIVATIONS)}")
    return str(activation)
