"""Launching the library's Hopper kernels: tensor maps, strides and grid, fixed once per problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_library as specs
from gpukit.ops.matmul import limits, maps, scaling
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.configs import Gemm, Narrow
from gpukit.ops.matmul.fallback import scale_step
from gpukit.ops.matmul.problem import Layout, Problem

Launch = Callable[..., None]


class ScaleSteps(NamedTuple):
    """Elements between the factors of rows, of columns, and of a column's K blocks."""

    row: int
    column: int
    column_k: int = 0


def bind(config: Gemm | Narrow, problem: Problem, layout: Layout, call: Call) -> Launch:
    """A launch that takes what `run.handles` gives, for any arrays that lie like the call's."""
    if isinstance(config, Narrow):
        return _narrow(config, problem, layout, _scale_steps(call), call.device)
    return _gemm(config, problem, layout, _scale_steps(call), call.bias is not None, call.device)


def _scale_steps(call: Call) -> ScaleSteps:
    if call.sums != "blocks":
        return ScaleSteps(scale_step(call.scale_a), scale_step(call.scale_b))
    column_k, column = (step // call.scale_b.dtype.itemsize for step in call.scale_b.strides)
    return ScaleSteps(1, column, column_k)


def _gemm(config: Gemm, problem: Problem, layout: Layout, scales: ScaleSteps, bias: bool,
          device: Device) -> Launch:
    chosen = limits.tunables(config, problem)
    kernel = device.compile(specs.GEMM, chosen)
    map_a, map_b = _operand_maps(config, problem, layout, device)
    map_c = _result_map(config, problem, layout, device, str(chosen["store"]))
    map_scale = _scale_map(config.bm, problem, layout.scale_pitch, device)
    rows, columns = limits.cluster_tiles(config, problem)
    clusters = min(rows * columns * problem.batch, device.properties.sm_count // config.cluster)
    enqueue = kernel.bind((clusters * config.cluster,), (specs.GEMM_THREADS,))

    swap = config.swap
    sizes = (*limits.sizes(config, problem), problem.k, problem.batch, min(config.group, rows))
    steps_c = layout.c_row, layout.c_batch
    steps_bias = _turned((0, int(bias)), swap)
    steps_residual = (*_turned((layout.residual_row, 1), swap), layout.residual_batch)
    steps_scale = (*_turned(scales[:2], swap), scales.column_k)

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        if swap:
            a, b, scale_a, scale_b = b, a, scale_b, scale_a
        first = map_a(a)
        enqueue(first, map_b(b), first if map_c is None else map_c(c),
                first if map_scale is None else map_scale(scale_a), c, *steps_c, *sizes, alpha,
                bias, *steps_bias, residual, *steps_residual, scale_a, scale_b, *steps_scale)

    return launch


def _narrow(config: Narrow, problem: Problem, layout: Layout, scales: ScaleSteps,
            device: Device) -> Launch:
    kernel = device.compile(specs.NARROW, limits.tunables(config, problem))
    sizes = problem.m, problem.n, problem.k
    map_w = maps.along_k(problem, layout.b, problem.n, config.rows, device)
    map_x = maps.along_k(problem, layout.a, problem.m, config.bn, device)
    map_scale = _scale_map(config.bn, problem, layout.scale_pitch, device)
    grid = -(-problem.n // config.rows) * config.split, -(-problem.m // config.bn), problem.batch
    enqueue = kernel.bind(grid, (specs.narrow_threads(config.rows),))
    steps_c = layout.c_row, layout.c_batch
    steps_residual = layout.residual_row, layout.residual_batch

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        weights = map_w(b)
        enqueue(weights, map_x(a), weights if map_scale is None else map_scale(scale_a), c,
                *steps_c, *sizes, alpha, bias, residual, *steps_residual, scale_a, scale_b, *scales)

    return launch


def _turned(pair: tuple[int, int], swap: bool) -> tuple[int, int]:
    return (pair[1], pair[0]) if swap else pair


def _operand_maps(config: Gemm, problem: Problem, layout: Layout,
                  device: Device) -> tuple[Any, Any]:
    """Of the kernel's A and B."""
    operands = (layout.b, layout.a) if config.swap else (layout.a, layout.b)
    m, n = limits.sizes(config, problem)
    return (maps.operand(problem, operands[0], m, limits.box_rows(config.bm, config.cn), device),
            maps.operand(problem, operands[1], n, limits.box_rows(config.bn, config.cm), device))


def _result_map(config: Gemm, problem: Problem, layout: Layout, device: Device,
                store: str) -> Any:
    """Of C; None where it leaves by plain stores."""
    if store == "direct":
        return None
    size, width = problem.out_size, config.columns
    strides = layout.c_row * size, layout.c_batch * size
    if store == "columns":
        box, swizzle = (64, min(width, 64), 1), 128
    else:
        swizzle = next(row for row in (128, 64, 32) if width * size % row == 0)
        box = (swizzle // size, 64, 1)
    dims = problem.n, problem.m, problem.batch
    return maps.bound(device, TensorMap(problem.out, dims, strides, box, swizzle))


def _scale_map(rows: int, problem: Problem, pitch: int, device: Device) -> Any:
    """Of factors of 1 x 128 blocks of A, for tiles of so many rows; None without them."""
    if problem.sums != "blocks":
        return None
    k_blocks = -(-problem.k // scaling.BLOCK)
    dims, strides = (problem.m, k_blocks, 1), (pitch, pitch * k_blocks)
    return maps.bound(device, TensorMap("f32", dims, strides, (rows, 1, 1), 0))
