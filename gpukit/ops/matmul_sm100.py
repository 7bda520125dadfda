"""Launching the Blackwell matmul ladder: tensor maps, stages and grid of rungs 2 to 8."""

from __future__ import annotations

from typing import Any

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_sm100 import BK, PIECE_COLUMNS, ROW, rows, threads
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.matmul.rungs import check_sizes, matrix_map, tunables

_CORE = 8  # columns of K in a box of rung 2
_MAX_GRID_X = 2**31 - 1


def launch(rung: int, device: Device, a: Any, b: Any, out: Any, *, group: int = 8,
           **given: Value) -> None:
    """C = A B by one rung of the ladder.

    Args:
        rung: 2 to 8.
        a: [M, K], float16 or bfloat16; elements next to each other along K.
        b: [K, N], the same dtype; also next to each other along K: w.T of a row-major [N, K] w.
        out: [M, N], C-contiguous; float16, bfloat16 or float32.
        group: rung 8 walks this many rows of cluster tiles together.
        given: tunables other than the spec's defaults (bn, stages, cluster, columns). Without
            `stages`, as many as fit.

    Rows of a and w, and from rung 4 on of out, must start at multiples of 16 bytes.

    Raises:
        ArgumentError: an argument of another type, layout or alignment.
        UnsupportedError: not a GPU of compute capability 10.0, or more stages than fit.
    """
    spec = kernels.get(f"matmul.sm100.k{rung}")
    chosen = tunables(spec, device, a, out, given)
    bn, cluster = int(chosen["bn"]), int(chosen.get("cluster", 1))
    check_sizes(spec, a, b, bn)
    (m, k), n = a.shape, b.shape[1]
    if not k:  # no tensor map has an empty dimension
        out.fill(0)
        return
    b_rows = bn // cluster  # of a CTA: a half in a pair, and less where pairs share it
    matrices = (_operand(spec, device, "a", a, a, rung, rows(rung)),
                _operand(spec, device, "b", b, b.T, rung, b_rows),
                out if rung < 4 else _result(spec, device, out, rung))
    grid = -(-m // (rows(rung) * cluster)) * cluster, -(-n // bn)
    compiled = device.compile(spec, chosen)
    if rung < 8:
        sizes = (m, n, k) if rung < 4 else (k,)
        compiled.launch(grid, (threads(rung),), (*matrices, *sizes))
    else:
        compiled.launch((_ctas(spec, grid),), (threads(rung),), (*matrices, m, n, k, group))


def _operand(spec: KernelSpec, device: Device, name: str, array: Any, matrix: Any, rung: int,
             box_rows: int) -> Any:
    """The tensor map of an operand as a matrix [rows, K]; a box is what one TMA load moves."""
    columns, swizzle = (_CORE, 0) if rung == 2 else (BK, ROW)
    return matrix_map(spec, device, name, array, matrix, (columns, box_rows), swizzle)


def _result(spec: KernelSpec, device: Device, out: Any, rung: int) -> Any:
    """The tensor map of C; a box is a piece of it: rows of 128 bytes, or 32 columns."""
    size = out.dtype.itemsize
    row = ROW if rung < 7 else PIECE_COLUMNS * size
    return matrix_map(spec, device, "out", out, out, (row // size, rows(rung)), row)


def _ctas(spec: KernelSpec, grid: tuple[int, int]) -> int:
    """All tiles in one row: rung 8 numbers them itself."""
    count = grid[0] * grid[1]
    if count > _MAX_GRID_X:
        raise ArgumentError(f"{spec.name}: the result has {count} tiles; accepted: at most "
                            f"{_MAX_GRID_X}")
    return count
