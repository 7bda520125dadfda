"""Launching the library's Hopper kernels: tensor maps, strides and grid, fixed once per problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_library as specs
from gpukit.ops.matmul import limits
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.configs import Gemm, Narrow
from gpukit.ops.matmul.fallback import scale_step
from gpukit.ops.matmul.problem import Layout, Operand, Problem

Launch = Callable[..., None]
_ELEMENTS = {"tf32": "f32", "e4m3": "u8", "e5m2": "u8"}  # what tensor maps call them
_MAPS = 1024  # addresses that a launch remembers the tensor maps of


def bind(config: Gemm | Narrow, problem: Problem, layout: Layout, call: Call) -> Launch:
    """A launch that takes what `run.handles` gives, for any arrays that lie like the call's."""
    steps = scale_step(call.scale_a), scale_step(call.scale_b)
    if isinstance(config, Narrow):
        return _narrow(config, problem, layout, steps, call.device)
    return _gemm(config, problem, layout, steps, call.bias is not None, call.device)


def _gemm(config: Gemm, problem: Problem, layout: Layout, scale_steps: tuple[int, int],
          bias: bool, device: Device) -> Launch:
    chosen = limits.tunables(config, problem)
    kernel = device.compile(specs.GEMM, chosen)
    map_a, map_b = _operand_maps(config, problem, layout, device)
    map_c = _result_map(config, problem, layout, device, str(chosen["store"]))
    rows, columns = limits.cluster_tiles(config, problem)
    clusters = min(rows * columns * problem.batch, device.properties.sm_count // config.cluster)
    enqueue = kernel.bind((clusters * config.cluster,), (specs.GEMM_THREADS,))

    swap = config.swap
    sizes = (*limits.sizes(config, problem), problem.k, problem.batch, config.group)
    steps_c = layout.c_row, layout.c_batch
    steps_bias = _turned((0, int(bias)), swap)
    steps_residual = (*_turned((layout.residual_row, 1), swap), layout.residual_batch)
    steps_scale = _turned(scale_steps, swap)

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        if swap:
            a, b, scale_a, scale_b = b, a, scale_b, scale_a
        first = map_a(a)
        enqueue(first, map_b(b), first if map_c is None else map_c(c), c, *steps_c, *sizes, alpha,
                bias, *steps_bias, residual, *steps_residual, scale_a, scale_b, *steps_scale, 0, 0)

    return launch


def _narrow(config: Narrow, problem: Problem, layout: Layout, scale_steps: tuple[int, int],
            device: Device) -> Launch:
    kernel = device.compile(specs.NARROW, limits.tunables(config, problem))
    m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
    map_w = _along_k(problem, layout.b, n, config.rows, device)
    map_x = _along_k(problem, layout.a, m, config.bn, device)
    grid = -(-n // config.rows) * config.split, -(-m // config.bn), batch
    enqueue = kernel.bind(grid, (specs.narrow_threads(config.rows),))
    steps_c = layout.c_row, layout.c_batch
    residual_steps = layout.residual_row, layout.residual_batch

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        enqueue(map_w(b), map_x(a), c, *steps_c, m, n, k, alpha, bias, residual, *residual_steps,
                scale_a, scale_b, *scale_steps)

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


def _map(device: Device, request: TensorMap) -> Callable[[Any], Any]:
    """The tensor map of an array, by what a launch takes for it. Encoding asks the driver, so a
    GPU's are remembered by address."""
    if device.emulated:
        return lambda array: device.tensor_map(array, request)
    from gpukit.devices import cuda_tensor_map

    return lru_cache(maxsize=_MAPS)(partial(cuda_tensor_map.encode, request=request))
