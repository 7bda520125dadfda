"""Matrix multiplication of CuPy or NumPy arrays (float32, float16, bfloat16), f32 accumulation."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from gpukit import devices, dtypes, kernels
from gpukit.devices.protocol import Device
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError, UnknownKernelError
from gpukit.kernels import KernelSpec
from gpukit.ops import arrays, matmul_sm90

_MAX_GRID = 2**31 - 1


def matmul(a: Any, b: Any, *, out: Any = None, out_dtype: Any = None, kernel: int | str = 1) -> Any:
    """C = A B.

    Args:
        a: [M, K], float32, float16 or bfloat16, any strides (transposed views are not copied).
        b: [K, N], same dtype, any strides.
        out: [M, N] C-contiguous array to write; must not overlap a or b.
        out_dtype: dtype of C when `out` is not given; a's dtype by default.
        kernel: rung of the matmul ladder: a number, which means the one for `a`'s device, or a name
            of `gpukit list`. Rungs above 1 ask more of types, layout and alignment.

    Returns:
        [M, N]; zeros where K = 0.

    Raises:
        ArgumentError: shapes, dtypes, layout or overlap.
        UnknownKernelError: no such rung.
    """
    rungs = _rungs(kernel)
    device, a = devices.adopt("a", a, "matmul")
    where, b = devices.adopt("b", b, "matmul")
    arrays.check_device("matmul", "b", where, device)
    dtype = _check_operands(a, b, device)
    out = _output(a, b, out, out_dtype, device)
    if out.size:
        spec = rungs.get(device.properties.arch) or next(iter(rungs.values()))
        if spec.name.startswith("matmul.sm90."):
            matmul_sm90.launch(int(spec.name.rpartition(".k")[2]), device, a, b, out)
        else:
            _launch(spec, device, a, b, out, dtype)
    return out


@cache
def _rungs(kernel: int | str) -> dict[str, KernelSpec]:
    """The kernels that a rung may mean, by the arch in their names ("matmul.k1" has none)."""
    found = {}
    for name in kernels.names():
        rung = re.fullmatch(r"matmul\.(?:sm(\d+)\.)?k(\d+)", name)
        if rung and str(kernel) in (name, name.removeprefix("matmul."), rung[2]):
            found[f"sm_{rung[1]}"] = kernels.get(name)
    if not found:
        raise UnknownKernelError(f"matmul.k{kernel}", kernels.names())
    return found


def _check_operands(a: Any, b: Any, device: Device) -> DType:
    for name, array in (("a", a), ("b", b)):
        if array.ndim != 2:
            raise ArgumentError(f"matmul: {name} has shape {array.shape}; accepted: two dimensions")
    dtype = arrays.check_float("matmul", "a", a)
    for name, array in (("a", a), ("b", b)):
        arrays.check_aligned("matmul", name, array, device)
        if any(stride % array.dtype.itemsize for stride in array.strides):
            raise ArgumentError(f"matmul: {name} has strides {array.strides} bytes; accepted: "
                                f"multiples of its element size, {array.dtype.itemsize}")
    if b.dtype != a.dtype:
        raise ArgumentError(f"matmul: b has dtype {b.dtype}, a has {a.dtype}; they must be equal")
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(f"matmul: a is {a.shape} and b is {b.shape}; a's second dimension "
                            "must equal b's first")
    return dtype


def _output(a: Any, b: Any, out: Any, out_dtype: Any, device: Device) -> Any:
    shape = (a.shape[0], b.shape[1])
    if out is None:
        chosen = dtypes.of(out_dtype if out_dtype is not None else a.dtype)
        if chosen is None:
            raise ArgumentError(f"matmul: out_dtype is {out_dtype}; "
                                "accepted: float32, float16, bfloat16")
        return device.empty(shape, chosen.numpy)
    where, out = devices.adopt("out", out, "matmul")
    arrays.check_device("matmul", "out", where, device)
    arrays.check_float("matmul", "out", out)
    if out_dtype is not None and dtypes.of(out_dtype) is not dtypes.of(out.dtype):
        raise ArgumentError(f"matmul: out has dtype {out.dtype} but out_dtype is {out_dtype}")
    if out.shape != shape:
        raise ArgumentError(f"matmul: out has shape {out.shape}, the product has {shape}")
    if not out.flags.c_contiguous:
        raise ArgumentError("matmul: out is not C-contiguous (row-major)")
    arrays.check_writable("matmul", "out", out)
    arrays.check_aligned("matmul", "out", out, device)
    for name, array in (("a", a), ("b", b)):
        arrays.check_no_overlap("matmul", name, out, array, device, same_ok=False)
    return out


def _launch(spec: Any, device: Device, a: Any, b: Any, out: Any, dtype: DType) -> None:
    out_name = arrays.check_float("matmul", "out", out).name
    compiled = device.compile(spec, {"dtype": dtype.name, "out": out_name})
    tile = spec.defaults["tile"]
    (m, k), n = a.shape, b.shape[1]
    ctas = -(-m // tile) * -(-n // tile)
    if ctas > _MAX_GRID:
        raise ArgumentError(f"matmul: a {m} x {n} result needs {ctas} CTAs; "
                            f"the grid holds {_MAX_GRID}")
    strides = [s // array.dtype.itemsize for array in (a, b) for s in array.strides]
    compiled.launch((ctas,), (tile, tile), (a, b, out, m, n, k, *strides))
