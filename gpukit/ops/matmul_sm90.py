"""Launching the Hopper matmul ladder: tensor maps, stages and grid of rungs 2 to 8."""

from __future__ import annotations

from typing import Any

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_sm90 import BK, ROW, rows, threads
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.matmul.rungs import check_sizes, matrix_map, tunables

_CORE = 8  # columns of K in a box of rung 2


def launch(rung: int, device: Device, a: Any, b: Any, out: Any, *, group: int = 8,
           ctas: int | None = None, **given: Value) -> None:
    """C = A B by one rung of the ladder.

    Args:
        rung: 2 to 8.
        a: [M, K], float16 or bfloat16; elements next to each other along K.
        b: [K, N], the same dtype; also next to each other along K: w.T of a row-major [N, K] w.
        out: [M, N], C-contiguous; float16, bfloat16 or float32.
        group: rung 8 walks this many rows of cluster tiles together.
        ctas: CTAs of rung 8, a multiple of its cluster; one per SM by default.
        given: tunables other than the spec's defaults (bn, stages, cluster). Without `stages`, as
            many as fit.

    Rows of a and w, and from rung 4 on of out, must start at multiples of 16 bytes.

    Raises:
        ArgumentError: an argument of another type, layout or alignment.
        UnsupportedError: not a Hopper GPU, or more stages than fit.
    """
    spec = kernels.get(f"matmul.sm90.k{rung}")
    chosen = tunables(spec, device, a, out, given)
    bn, cluster = int(chosen["bn"]), int(chosen.get("cluster", 1))
    check_sizes(spec, a, b, bn)
    (m, k), n = a.shape, b.shape[1]
    if not k:  # no tensor map has an empty dimension
        out.fill(0)
        return
    matrices = (_operand(spec, device, "a", a, a, rung, rows(rung)),
                _operand(spec, device, "b", b, b.T, rung, bn // cluster),
                out if rung < 4 else matrix_map(
                    spec, device, "out", out, out, (ROW // out.dtype.itemsize, 64), ROW))
    grid = -(-m // (rows(rung) * cluster)) * cluster, -(-n // bn)
    compiled = device.compile(spec, chosen)
    if rung < 8:
        sizes = (m, n, k) if rung < 4 else (k,)
        compiled.launch(grid, (threads(rung),), (*matrices, *sizes))
    else:
        most = _most_ctas(spec, device, cluster, ctas)
        compiled.launch((min(most, grid[0] * grid[1]),), (threads(rung),),
                        (*matrices, m, n, k, group))


def _operand(spec: KernelSpec, device: Device, name: str, array: Any, matrix: Any, rung: int,
             box_rows: int) -> Any:
    """The tensor map of an operand as a matrix [rows, K]; a box is what one TMA load moves."""
    columns, swizzle = (_CORE, 0) if rung == 2 else (BK, ROW)
    return matrix_map(spec, device, name, array, matrix, (columns, box_rows), swizzle)


def _most_ctas(spec: KernelSpec, device: Device, cluster: int, ctas: int | None) -> int:
    """CTAs of a persistent kernel if there are enough tiles: as asked, or as the SMs hold."""
    if ctas is None:
        return device.properties.sm_count // cluster * cluster
    if ctas < 1 or ctas % cluster:
        raise ArgumentError(f"{spec.name}: ctas is {ctas}; accepted: positive multiples of "
                            f"cluster={cluster}")
    return ctas
