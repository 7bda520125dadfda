"""Launching the library's Hopper kernels: tensor maps, strides and grid, fixed once per problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_library as specs
from gpukit.ops.matmul import limits, scaling
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.configs import Gemm, Narrow
from gpukit.ops.matmul.fallback import scale_step
from gpukit.ops.matmul.problem import Layout, Operand, Problem

Launch = Callable[..., None]
_ELEMENTS = {"tf32": "f32", **dict.fromkeys(specs.EIGHT_BIT, "u8")}  # what tensor maps call them
_MAPS = 1 << 14  # remembered in all: a few MB, and every weight of a large model


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
    sizes = (*limits.sizes(config, problem), problem.k, problem.batch, config.group)
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
    map_w = _along_k(problem, layout.b, problem.n, config.rows, device)
    map_x = _along_k(problem, layout.a, problem.m, config.bn, device)
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
    return (_operand_map(problem, operands[0], m, config.bm, config.cn, device),
            _operand_map(problem, operands[1], n, config.bn, config.cm, device))


def _operand_map(problem: Problem, operand: Operand, rows: int, tile: int, parts: int,
                 device: Device) -> Any:
    if operand.major == "k":
        return _along_k(problem, operand, rows, limits.box_rows(tile, parts), device)
    return _map(device, TensorMap(
        _ELEMENTS.get(problem.dtype, problem.dtype), (rows, problem.k, problem.batch),
        (operand.pitch, operand.batch), (64, 64, 1)))


def _along_k(problem: Problem, operand: Operand, rows: int, box: int, device: Device) -> Any:
    return _map(device, TensorMap(
        _ELEMENTS.get(problem.dtype, problem.dtype), (problem.k, rows, problem.batch),
        (operand.pitch, operand.batch), (specs.ROW // problem.itemsize, box, 1)))


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
    return _map(device, TensorMap(problem.out, (problem.n, problem.m, problem.batch), strides, box,
                                  swizzle))


def _scale_map(rows: int, problem: Problem, pitch: int, device: Device) -> Any:
    """Of factors of 1 x 128 blocks of A, for tiles of so many rows; None without them."""
    if problem.sums != "blocks":
        return None
    k_blocks = -(-problem.k // scaling.BLOCK)
    return _map(device, TensorMap("f32", (problem.m, k_blocks, 1), (pitch, pitch * k_blocks),
                                  (rows, 1, 1), 0))


def _map(device: Device, request: TensorMap) -> Callable[[Any], Any]:
    """The tensor map of an array, by what a launch takes for it. Encoding asks the driver, so a
    GPU's are remembered by address."""
    if device.emulated:
        return lambda array: device.tensor_map(array, request)
    return partial(_encoded, _Request(request))


class _Request:
    """A request that is looked up by identity: hashing its fields takes as long as encoding it."""

    def __init__(self, request: TensorMap) -> None:
        self.request = request


@lru_cache(maxsize=_MAPS)
def _encoded(request: _Request, address: int) -> bytes:
    from gpukit.devices import cuda_tensor_map

    return cuda_tensor_map.encode(address, request.request)
