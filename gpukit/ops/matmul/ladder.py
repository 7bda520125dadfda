"""The kernels that teach, on checked matrices: `gpukit.matmul(kernel=...)` and the slow paths."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, UnknownKernelError
from gpukit.kernels import KernelSpec
from gpukit.ops import arrays
from gpukit.ops.matmul.arguments import Call

_MAX_GRID = 2**31 - 1
_RUNG = re.compile(r"matmul\.(?:sm(\d+)\.)?([ka])(\d+)")


@cache
def rungs(kernel: int | str) -> dict[str, KernelSpec]:
    """The kernels that a rung may mean, by the arch in their names ("matmul.k1" has none).

    Raises:
        UnknownKernelError: there are none.
    """
    found = {}
    for name in kernels.names():
        rung = _RUNG.fullmatch(name)
        number = rung[3] if rung and rung[2] == "k" else None  # numbers mean the k's
        if rung and str(kernel) in (name, name.removeprefix("matmul."), number):
            found[f"sm_{rung[1]}"] = kernels.get(name)
    if not found:
        raise UnknownKernelError(f"matmul.k{kernel}", kernels.names())
    return found


def run(call: Call, kernel: int | str) -> None:
    """out = a b by one rung.

    Raises:
        ArgumentError: more than two dimensions, 8-bit operands, out with gaps, or what the rung
            does not take.
    """
    found = rungs(kernel)
    for name, array in (("a", call.a), ("b", call.b)):
        if array.ndim != 2:
            raise ArgumentError(f"matmul: {name} has shape {array.shape}; accepted with kernel="
                                f"{kernel!r}: two dimensions")
        arrays.check_float("matmul", name, array)
    if not call.out.flags.c_contiguous:
        raise ArgumentError("matmul: out is not C-contiguous (row-major)")
    if call.out.size:
        spec = found.get(call.device.properties.arch) or next(iter(found.values()))
        launch(spec.name, call.device, call.a, call.b, call.out)


def launch(name: str, device: Device, a: Any, b: Any, out: Any) -> None:
    """Launch a rung by its kernel's name on [M, K], [K, N] and a dense [M, N], not empty."""
    if name.startswith("matmul.sm90."):
        from gpukit.ops import matmul_sm90

        matmul_sm90.launch(int(name.rpartition(".k")[2]), device, a, b, out)
    elif name.startswith("matmul.sm100."):
        from gpukit.ops import matmul_sm100

        matmul_sm100.launch(int(name.rpartition(".k")[2]), device, a, b, out)
    elif name.startswith("matmul.sm80."):
        from gpukit.ops import matmul_sm80

        matmul_sm80.RUNGS[name.removeprefix("matmul.")](device, a, b, out)
    else:
        _naive(kernels.get(name), device, a, b, out)


def _naive(spec: KernelSpec, device: Device, a: Any, b: Any, out: Any) -> None:
    compiled = device.compile(spec, {"dtype": arrays.check_float("matmul", "a", a).name,
                                     "out": arrays.check_float("matmul", "out", out).name})
    tile = int(spec.defaults["tile"])
    (m, k), n = a.shape, b.shape[1]
    ctas = -(-m // tile) * -(-n // tile)
    if ctas > _MAX_GRID:
        raise ArgumentError(f"matmul: a {m} x {n} result needs {ctas} CTAs; "
                            f"the grid holds {_MAX_GRID}")
    strides = [s // array.dtype.itemsize for array in (a, b) for s in array.strides]
    compiled.launch((ctas,), (tile, tile), (a, b, out, m, n, k, *strides))
