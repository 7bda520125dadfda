"""Launching the library's Blackwell kernel: tensor maps, strides, grid, fixed per problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_sm100_library as specs
from gpukit.ops.matmul import factors, maps, workspace
from gpukit.ops.matmul import sm100_limits as limits
from gpukit.ops.matmul.arguments import Call
from gpukit.ops.matmul.configs import Tcgen05
from gpukit.ops.matmul.fallback import bind_epilogue, scale_step
from gpukit.ops.matmul.problem import Layout, Problem

Launch = Callable[..., None]


class _Place(NamedTuple):
    """Where results go: type, elements from row to row and from matrix to matrix, how many."""

    out: str
    row: int
    matrix: int
    matrices: int


def bind(config: Tcgen05, problem: Problem, layout: Layout, call: Call) -> Launch:
    """A launch that takes what `run.handles` gives, for any arrays that lie like the call's."""
    return (_whole if config.split == 1 else _sliced)(config, problem, layout, call)


def _whole(config: Tcgen05, problem: Problem, layout: Layout, call: Call) -> Launch:
    place = _Place(problem.out, layout.c_row, layout.c_batch, problem.batch)
    product = _product(config, problem, layout, call, place)

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        product(a, b, c, alpha, bias, residual, scale_a, scale_b)

    return launch


def _sliced(config: Tcgen05, problem: Problem, layout: Layout, call: Call) -> Launch:
    """Sums of slices of K to a workspace, which the epilogue adds up."""
    p, device, count = problem, call.device, limits.slices(config, problem)
    product = _product(config, p, layout, call, _Place("f32", p.n, p.m * p.n, p.batch * count))
    epilogue = bind_epilogue(call, count)
    shape, none = (p.batch, count, p.m, p.n), device.pointer(None)
    of_blocks, ones = limits.has_factors(p), [device.pointer(one) for one in call.ones]

    def launch(a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, scale_a: Any,
               scale_b: Any) -> None:
        sums = workspace.empty(device, shape, "float32")  # kept until all is enqueued
        place = device.pointer(sums)
        factors_a, factors_b = (scale_a, scale_b) if of_blocks else (none, none)
        product(a, b, place, 1.0, none, none, factors_a, factors_b)
        if of_blocks:
            scale_a, scale_b = ones
        epilogue(place, c, bias, residual, alpha, scale_a, scale_b)

    return launch


def _product(config: Tcgen05, problem: Problem, layout: Layout, call: Call,
             place: _Place) -> Launch:
    device, swap = call.device, config.swap
    kernel = device.compile(specs.GEMM, limits.tunables(config, problem))
    map_a, map_b = _operand_maps(config, problem, layout, device)
    map_c = None if swap else _result_map(problem, place, device)
    grid = limits.cluster_tiles(config, problem) * config.cluster
    enqueue = kernel.bind((grid,), (specs.THREADS,))
    numbers = (place.row, place.matrix, *limits.sizes(config, problem), problem.k, problem.batch,
               limits.slices(config, problem), limits.depth(config, problem),
               min(config.group, limits.cluster_rows(config, problem)))
    steps_bias = _turned((0, int(call.bias is not None)), swap)
    steps_residual = (*_turned((layout.residual_row, 1), swap), layout.residual_batch)
    steps_scale = _turned((scale_step(call.factors[0]), scale_step(call.factors[1])), swap)
    packs = _packs(config, problem, call)
    ones = [device.pointer(one) for one in _turned(call.ones, swap)]

    def launch(a: Any, b: Any, c: Any, alpha: float, bias: Any, residual: Any, scale_a: Any,
               scale_b: Any) -> None:
        if swap:
            a, b, scale_a, scale_b = b, a, scale_b, scale_a
        first = map_a(a)
        packed = [pack(scale) for pack, scale in zip(packs, (scale_a, scale_b), strict=False)]
        scales = [encoded for _, encoded in packed] or (first, first)
        if packs:
            scale_a, scale_b = ones
        enqueue(first, map_b(b), first if map_c is None else map_c(c), *scales, c, *numbers, alpha,
                bias, *steps_bias, residual, *steps_residual, scale_a, scale_b, *steps_scale)

    return launch


def _packs(config: Tcgen05, problem: Problem, call: Call) -> list[factors.Pack]:
    """Packing of the kernel's factors of blocks, of A and of B; none without them."""
    if not limits.has_factors(problem):
        return []
    groups = specs.k_chunks(limits.format_of(problem, config.swap))
    tilings = (factors.Tiling(rows, limits.steps(problem), groups)
               for rows in (specs.BM, config.bn))
    given = _turned((call.scale_a, call.scale_b.T), config.swap)
    return [factors.bind(call.device, scale, tiling)
            for scale, tiling in zip(given, tilings, strict=True)]


def _turned(pair: tuple[Any, Any], swap: bool) -> tuple[Any, Any]:
    return (pair[1], pair[0]) if swap else pair


def _operand_maps(config: Tcgen05, problem: Problem, layout: Layout,
                  device: Device) -> tuple[Any, Any]:
    """Of the kernel's A and B, of which a CTA loads its rows and its part of a tile."""
    operands = (layout.b, layout.a) if config.swap else (layout.a, layout.b)
    m, n = limits.sizes(config, problem)
    return (maps.operand(problem, operands[0], m, specs.BM, device),
            maps.operand(problem, operands[1], n, config.bn // config.cluster, device))


def _result_map(problem: Problem, place: _Place, device: Device) -> Any:
    """Of C, or of the sums of slices; a box is a piece."""
    size = dtypes.ALL[place.out].itemsize
    return maps.bound(device, TensorMap(
        place.out, (problem.n, problem.m, place.matrices), (place.row * size, place.matrix * size),
        (specs.PIECE_COLUMNS, specs.BM, 1), specs.PIECE_COLUMNS * size))
