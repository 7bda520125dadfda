"""How long a configuration of Blackwell's kernel will take: a model, in cycles of an SM.

As for Hopper, a step along K takes what its slowest part takes, and tiles come in waves; the number
of SMs is the GPU's. But sums are a ring in Tensor Memory, so that the write-out of a tile hides
behind the next tile's products, where two fit; and clusters take tiles as they become free. No
hardware of ours has confirmed any constant: data sheets' figures, or Hopper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.devices.protocol import Properties
from gpukit.kernels import matmul_sm100_library as specs
from gpukit.ops.matmul import sm100_limits as limits
from gpukit.ops.matmul.configs import Config, Tcgen05, Vector
from gpukit.ops.matmul.problem import Problem


@dataclass(frozen=True)
class Figures:
    """The model's constants.

    Attributes:
        clock: SM cycles per microsecond.
        tensor: bytes of A times bytes of B that an SM multiplies per cycle, per byte of K and
            element of C: 8192 dense FLOP of 16-bit operands (2.25 PFLOP/s of 148 SMs), as much in
            bytes for every type.
        shared: bytes per cycle of an SM's shared memory that the tensor core reads.
        filling: share of what TMA writes there that reading has to wait for (as on Hopper).
        l2_sm: bytes per cycle that L2 delivers to an SM: what the published rung 8 draws, 24 KB per
            step at 1773 TFLOP/s (results/published.csv).
        memory: bytes per microsecond: 0.9 of the data sheet's 8 TB/s.
        flight: microseconds that a byte takes from memory (as on Hopper).
        ramp: microseconds until memory is busy and after it is.
        start: cycles from a launch's begin to the first product: barriers, Tensor Memory, a tile.
        change: cycles between the products of two tiles, beside a write-out that is not hidden.
        step: cycles per step along K beside the slowest part.
        write: bytes per cycle of C that four warps write out by TMA (as on Hopper).
        write_direct: by plain stores of columns, half a line each.
        extras: cycles per element of C and thread for an epilogue that reads memory.
        launch: microseconds of an empty kernel.
        meet: more for each CTA of a cluster, which start and end together.
        softness: exponent of the sum of memory's and the SMs' time: neither hides all the other.
    """

    clock: float = 1850.0
    tensor: float = 64.0
    shared: float = 128.0
    filling: float = 0.5
    l2_sm: float = 76.0
    memory: float = 7.2e6
    flight: float = 1.4
    ramp: float = 0.8
    start: float = 3000.0
    change: float = 100.0
    step: float = 4.0
    write: float = 18.0
    write_direct: float = 16.0
    extras: float = 8.0
    launch: float = 3.0
    meet: float = 0.1
    softness: float = 2.0


BLACKWELL = Figures()


def microseconds(config: Config, problem: Problem, properties: Properties,
                 figures: Figures = BLACKWELL) -> float:
    """The estimate for a configuration that the problem allows; infinite for other kernels."""
    if isinstance(config, Tcgen05):
        return _packing(problem, figures) + _gemm(config, problem, properties, figures)
    if isinstance(config, Vector):
        return figures.launch + _traffic(problem) / figures.memory
    return float("inf")


def _traffic(p: Problem) -> int:
    """Bytes of A, B and C, each once."""
    return p.batch * ((p.m + p.n) * p.k * p.itemsize + p.m * p.n * p.out_size)


def _packing(p: Problem, f: Figures) -> float:
    """Copies of what TMA cannot address, and of factors of blocks: kernels of their own, bytes read
    and written."""
    rows = p.m * (not p.tma_a) + p.n * (not p.tma_b)
    launches = (not p.tma_a) + (not p.tma_b) + 2 * limits.has_factors(p)
    return launches * f.launch + 2 * p.batch * rows * p.k * p.itemsize / f.memory


def _gemm(c: Tcgen05, p: Problem, gpu: Properties, f: Figures) -> float:
    tiles, slots = limits.cluster_tiles(c, p), gpu.sm_count // c.cluster
    waves = -(-tiles // slots)
    main, end = limits.depth(c, p) * _step(c, f), _write_out(c, p, f)
    hidden = specs.accumulators(limits.format_of(p, c.swap), c.bn) > 1
    each = max(main, end) if hidden else main + end
    cycles = f.start + main + end + (waves - 1) * (each + f.change)
    memory = f.ramp + _traffic(p) / f.memory
    busy = cycles / f.clock
    overlapped = float((busy ** f.softness + memory ** f.softness) ** (1 / f.softness))
    return f.launch + f.meet * c.cluster + overlapped + _adding(c, p, f)


def _step(c: Tcgen05, f: Figures) -> float:
    """Cycles of a CTA per 128 bytes of K."""
    own = c.bn // c.ctas  # rows of B that a CTA's tensor core reads in its own shared memory
    stage = (specs.BM + own) * specs.ROW
    loads = (specs.BM + c.bn / c.cluster) * specs.ROW  # from L2; the rest comes from neighbours
    latency = f.flight * f.clock / c.stages
    return f.step + max(specs.BM * c.bn / f.tensor, (1 + f.filling) * stage / f.shared,
                        loads / f.l2_sm, latency)


def _write_out(c: Tcgen05, p: Problem, f: Figures) -> float:
    """Cycles from the last product of a tile to its last byte on the way."""
    elements, size = specs.BM * c.bn, 4 if c.split > 1 else p.out_size
    cycles = elements * size / (f.write_direct if c.swap else f.write)
    return cycles + (elements / 128 * f.extras if p.extras and c.split == 1 else 0.0)


def _adding(c: Tcgen05, p: Problem, f: Figures) -> float:
    """Microseconds of the kernel that adds up slices of K."""
    if c.split == 1:
        return 0.0
    return f.launch + 2 * limits.slices(c, p) * p.batch * p.m * p.n * 4 / f.memory
