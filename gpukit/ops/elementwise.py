"""Elementwise functions of dense arrays (float32, float16, bfloat16).

CuPy arrays run on their GPU, NumPy arrays on the emulated one (the same PTX, on the CPU).

Arithmetic is f32 with one rounding at the end. float32 and bfloat16 subnormals count as zero
(CuPy compiles every kernel with -ftz=true), except by `copy`, which moves bits. Relative errors are
below 3e-7 in float32, 1e-3 in float16 and 4.4e-3 in bfloat16 (half an ulp is up to 6e-8, 4.9e-4 and
3.9e-3): `gpukit.reference.elementwise` states the bounds, and the tests hold every op to them on
all 65536 values of either 16-bit type.

Every function accepts `out` (same shape, dtype and memory order; may be the input itself) and
`launch` (a `Launch`, to override how the kernel is run), runs on the current stream of the array's
device, never synchronises, and can be captured in a CUDA graph when `out` is given. Arrays with
gaps, other dtypes and mismatched shapes are refused with an ArgumentError. CUDA tensors of other
libraries are taken through DLPack; their results are CuPy arrays, and the work is ordered on CuPy's
current stream: before another library reads or frees such a tensor on a stream of its own, make
that stream wait (with both libraries on their default streams nothing is needed).
"""

from __future__ import annotations

from typing import Any

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.elementwise import ITEMSIZE
from gpukit.ops import arrays, warm
from gpukit.ops.launch import Launch, plan


def copy(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """A bit-exact copy of a dense array with elements of 1, 2, 4 or 8 bytes.

    fp8 arrays are uint8 arrays here. Returns an array of x's shape and dtype.
    """
    return _unary("copy", x, 0.0, out, launch)


def sqrt(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """Square root, elementwise; NaN for x < 0."""
    return _unary("sqrt", x, 0.0, out, launch)


def rsqrt(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """1 / sqrt(x), elementwise; infinity for 0, NaN for x < 0."""
    return _unary("rsqrt", x, 0.0, out, launch)


def log(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """Natural logarithm, elementwise; -infinity for 0, NaN for x < 0."""
    return _unary("log", x, 0.0, out, launch)


def sin(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """Sine of x in radians, elementwise; accurate for arguments of any size."""
    return _unary("sin", x, 0.0, out, launch)


def tanh(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """Hyperbolic tangent, elementwise."""
    return _unary("tanh", x, 0.0, out, launch)


def exp(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """e**x, elementwise."""
    return _unary("exp", x, 0.0, out, launch)


def erf(x: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """The Gauss error function, elementwise."""
    return _unary("erf", x, 0.0, out, launch)


def add_const(x: Any, a: float, *, out: Any = None, launch: Launch | None = None) -> Any:
    """x + a, elementwise, for a real number a (used as float32)."""
    return _unary("add_const", x, arrays.check_scalar("add_const", "a", a), out, launch)


def scale(x: Any, a: float, *, out: Any = None, launch: Launch | None = None) -> Any:
    """a x, elementwise, for a real number a (used as float32)."""
    return _unary("scale", x, arrays.check_scalar("scale", "a", a), out, launch)


def add(x: Any, y: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """x + y, elementwise; x and y have the same shape and dtype."""
    return _binary("add", x, y, 0.0, out, launch)


def axpy(a: float, x: Any, y: Any, *, out: Any = None, launch: Launch | None = None) -> Any:
    """a x + y in one fused multiply-add, elementwise (BLAS axpy; pass out=y to update y)."""
    return _binary("axpy", x, y, arrays.check_scalar("axpy", "a", a), out, launch)


def _unary(op: str, x: Any, a: float, out: Any, launch: Launch | None) -> Any:
    result = warm.unary(op, x, a, out) if launch is None else None
    return _apply(op, (x,), a, out, launch) if result is None else result


def _binary(op: str, x: Any, y: Any, a: float, out: Any, launch: Launch | None) -> Any:
    result = warm.binary(op, x, y, a, out) if launch is None else None
    return _apply(op, (x, y), a, out, launch) if result is None else result


def _apply(op: str, inputs: tuple[Any, ...], a: float, out: Any, launch: Launch | None) -> Any:
    """The full way: every argument checked, the kernel chosen and compiled, the launch kept."""
    device, x = devices.adopt("x", inputs[0], op)
    _check_element(op, x)
    order = arrays.check_dense(op, "x", x)
    _check_aligned(op, "x", x, device)
    operands: tuple[Any, ...] = (x,)
    if len(inputs) == 2:
        operands = (x, _second(op, "y", inputs[1], x, device))
    if launch is not None and not isinstance(launch, Launch):
        raise ArgumentError(f"{op}: launch must be a gpukit.ops.launch.Launch, "
                            f"got {type(launch).__name__}")
    if out is None:
        out = device.empty(x.shape, x.dtype, order)
    else:
        out = _output(op, out, operands, device)
    if x.size:  # CuPy and the driver disagree on empty grids: nothing to do is nothing launched
        aligned = _alignment((*operands, out), device)
        element, n = _units(op, x, aligned)
        chosen = plan(op, element, n, aligned, launch or Launch(), device)
        chosen.kernel.launch(chosen.grid, chosen.block, (*operands, out, n, a))
        if launch is None and n == x.size and not device.emulated:
            warm.keep(op, (*operands, out), chosen)
    return out


def _alignment(operands: tuple[Any, ...], device: Device) -> int:
    """The largest power of two up to 32 that divides every address."""
    low = 32
    for array in operands:
        low |= device.phase(array)
    return low & -low


def _check_element(op: str, x: Any) -> None:
    if op != "copy":
        arrays.check_float(op, "x", x)
    elif f"u{8 * x.dtype.itemsize}" not in ITEMSIZE or x.dtype.hasobject:
        raise ArgumentError(f"copy: x has dtype {x.dtype} of {x.dtype.itemsize} bytes; "
                            "accepted: plain elements of 1, 2, 4 or 8 bytes")


def _units(op: str, x: Any, aligned: int) -> tuple[str, int]:
    """What the kernel counts in: floats by name; copy's words by size, smaller if misaligned."""
    if op != "copy":
        return arrays.check_float(op, "x", x).name, x.size
    size = min(x.dtype.itemsize, aligned)
    return f"u{8 * size}", x.nbytes // size


def _second(op: str, name: str, array: Any, x: Any, device: Device) -> Any:
    where, array = devices.adopt(name, array, op)
    arrays.check_device(op, name, where, device)
    arrays.check_same(op, name, array, x)
    _check_aligned(op, name, array, device)
    return array


def _check_aligned(op: str, name: str, array: Any, device: Device) -> None:
    if op != "copy":  # copy moves smaller words instead
        arrays.check_aligned(op, name, array, device)


def _output(op: str, out: Any, operands: tuple[Any, ...], device: Device) -> Any:
    out = _second(op, "out", out, operands[0], device)
    arrays.check_writable(op, "out", out)
    for name, array in zip(("x", "y"), operands, strict=False):
        arrays.check_no_overlap(op, name, out, array, device, same_ok=True)
    return out
