"""How long a configuration will take: a model of Hopper, in cycles of an SM.

A tile's step along K takes what its slowest part takes: the tensor cores, shared memory (which
they read and TMA writes) or L2. Tiles come in waves, a cluster of CTAs each. The write-out of a
tile is exposed unless two warpgroups take turns. Memory sets a floor.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.devices.protocol import Properties
from gpukit.kernels import matmul_library as specs
from gpukit.kernels.matmul import SGEMM_BK, sgemm_threads
from gpukit.ops.matmul import limits
from gpukit.ops.matmul.configs import Config, Gemm, Narrow, Sgemm, Vector
from gpukit.ops.matmul.problem import Problem


@dataclass(frozen=True)
class Figures:
    """The model's constants.

    Those without a source are fitted to times on an H200: of some 20 configurations for each of 47
    problems, the one the model puts first should be the fastest.

    Attributes:
        clock: SM cycles per microsecond: an H200 in short bursts.
        tensor: bytes of A times bytes of B that an SM multiplies per cycle, per byte of K and
            element of C: 4096 dense FLOP of 16-bit operands (H100 whitepaper), as much in bytes
            for every type.
        shared: bytes per cycle of an SM's shared memory that wgmma reads.
        filling: share of what TMA writes there that reading has to wait for.
        l2, l2_sm: bytes per cycle that L2 delivers in all, and to one SM at most; measured loads
            of an H200 are 12 to 15 TB/s.
        memory: bytes per microsecond, as copies reach them on an H200.
        ramp: microseconds until memory is busy and after it is.
        latency: cycles from asking for a first tile to having it.
        restart: cycles lost between CTAs that follow each other on an SM.
        across: how much longer a step's latency is with A shared across the cluster, not B.
        launch: microseconds of an empty kernel of this kind, set-up and exit included.
        launch_narrow: of a smaller one.
        meet: more for the CTAs of a cluster, which start and end together.
        write: bytes per cycle of C that a CTA writes out, staged through shared memory.
        write_direct: by plain stores.
        finish: cycles before and after a write-out: pipeline drained, and filled again.
        step: cycles per step along K beside the slowest part.
        alone: time of a step that one warpgroup makes alone, the other writing out, over one that
            both share.
        drain: cycles from the last product of 128 bytes of K to its first sum in registers.
        exchange: cycles to meet and hand over the sums of a split tile.
        exchange_element: and for each of them.
        extras: cycles per element of C and thread for an epilogue that reads memory.
        flight: microseconds that a byte takes from memory, for the bandwidth of few CTAs.
        softness: exponent of the sum of memory's and the SMs' time: neither hides all the other.
        idle: cycles that a warp of `matmul.sgemm` leaves unused for each that it multiplies in, for
            other warps to use; not fitted yet.
        beside, copy: issue slots of `matmul.sgemm` for each of K beside 64 FMAs: for reading and
            counting, and for each element that a thread copies; counted in its PTX.
        vector_rows: rows of A up to which the kernels without tensor cores are best.
        vector_rows_across: the same where weights run along N, which `narrow` does not read: half
            the rows at which multiplying takes as long as reading.
    """

    clock: float = 1755.0
    tensor: float = 32.0
    shared: float = 128.0
    filling: float = 0.5
    l2: float = 6400.0
    l2_sm: float = 52.0
    memory: float = 4.2e6
    ramp: float = 0.8
    latency: float = 1200.0
    restart: float = 5300.0
    across: float = 1.35
    launch: float = 3.0
    launch_narrow: float = 1.2
    meet: float = 0.3
    write: float = 18.0
    write_direct: float = 16.0
    finish: float = 370.0
    step: float = 4.0
    alone: float = 0.9
    drain: float = 150.0
    exchange: float = 650.0
    exchange_element: float = 0.31
    extras: float = 8.0
    flight: float = 1.4
    softness: float = 2.0
    idle: float = 0.6
    beside: float = 6.0
    copy: float = 3.5
    vector_rows: int = 1
    vector_rows_across: int = 4


HOPPER = Figures()
_SM_SHARED = 228 << 10  # bytes of an SM, of which each CTA takes 1 KiB more than it asks for
_SM_THREADS = 2048
_GROUP = 128  # threads of a warpgroup
_SGEMM_WARPS = 16  # of an SM at a time, for their registers
_FMA_WARPS = 4  # that an SM's FMA units serve in a cycle


def microseconds(config: Config, problem: Problem, properties: Properties,
                 figures: Figures = HOPPER) -> float:
    """The estimate for a configuration that the problem allows."""
    if isinstance(config, Gemm):
        return _packing(problem, figures) + _gemm(config, problem, properties, figures)
    if isinstance(config, Narrow):
        return _packing(problem, figures) + _narrow(config, problem, properties, figures)
    if isinstance(config, Sgemm):
        return _sgemm(config, problem, properties, figures)
    if isinstance(config, Vector):
        return figures.launch + traffic(problem) / figures.memory
    return float("inf")


def _ceil(count: int, size: int) -> int:
    return -(-count // size)


def traffic(problem: Problem) -> int:
    """Bytes of A, B and C, each once."""
    p = problem
    return p.batch * ((p.m + p.n) * p.k * p.itemsize + p.m * p.n * p.out_size)


def _packing(p: Problem, f: Figures) -> float:
    """Copies of what TMA cannot address: kernels of their own, bytes read and written."""
    rows = p.m * (not p.tma_a) + p.n * (not p.tma_b)
    launches = (not p.tma_a) + (not p.tma_b)
    return launches * f.launch + 2 * p.batch * rows * p.k * p.itemsize / f.memory


def _gemm(c: Gemm, p: Problem, gpu: Properties, f: Figures) -> float:
    rows, columns = limits.cluster_tiles(c, p)
    tiles, slots = rows * columns * p.batch, gpu.sm_count // c.cluster
    waves = -(-tiles // slots)
    steps = _ceil(p.k * p.itemsize, specs.ROW * c.split)
    main = steps * _step(c, p, min(tiles, slots) * c.cluster, f)
    end = _write_out(c, p, f)
    if c.share == "pingpong":
        cycles = max(waves * main, (waves + 1) // 2 * (main + end) * f.alone) + end
    else:
        cycles = waves * (main + end + f.finish)
    launch = f.launch + f.meet * (c.cluster > 1)
    return launch + _overlapped((f.latency + cycles) / f.clock, _memory(p, f), f)


def _memory(problem: Problem, f: Figures) -> float:
    return f.ramp + traffic(problem) / f.memory


def _overlapped(busy: float, memory: float, f: Figures) -> float:
    """Two things at once: a little more than the longer of them."""
    return float((busy ** f.softness + memory ** f.softness) ** (1 / f.softness))


def _step(c: Gemm, p: Problem, ctas: int, f: Figures) -> float:
    """Cycles of a CTA per 128 bytes of K."""
    blocks = c.bm // 64 * (2 if c.share == "columns" else 1)
    stage = (c.bm + c.bn) * specs.ROW
    reads = blocks * (64 + c.columns) * specs.ROW
    loads = (c.bm / c.cn + c.bn / c.cm) * specs.ROW
    latency = f.flight * f.clock / c.stages * (f.across if c.cn > 1 else 1.0)
    return f.step + max(_multiplying(c, p, f), (reads + f.filling * stage) / f.shared,
                        loads * ctas / f.l2, loads / f.l2_sm, latency)


def _multiplying(c: Gemm, p: Problem, f: Figures) -> float:
    """Cycles of the tensor cores, or of a warpgroup that adds up their sums in between."""
    tile = c.bm * c.bn / f.tensor
    if p.sums == "plain":
        return tile
    adding = f.drain + c.rows * c.columns / _GROUP
    if p.sums == "blocks" and 128 % c.columns:  # two factors to choose from
        adding *= 2
    return tile + adding if c.share == "pingpong" else max(tile, tile / 2 + adding)


def _write_out(c: Gemm, p: Problem, f: Figures) -> float:
    """Cycles from the last sum of a tile to its last byte on the way."""
    direct = limits.store(c, p) == "direct"
    elements = c.bm * c.bn / c.split
    cycles = elements * p.out_size / (f.write_direct if direct else f.write)
    if limits.terms(p) != "none":
        cycles += elements / 256 * f.extras
    return cycles + (f.exchange + f.exchange_element * c.bm * c.bn if c.split > 1 else 0.0)


def _narrow(c: Narrow, p: Problem, gpu: Properties, f: Figures) -> float:
    shared = specs.NARROW.shared_bytes(limits.tunables(c, p)) + 1024
    resident = max(1, min(_SM_SHARED // shared, _SM_THREADS // specs.narrow_threads(c.rows)))
    ctas = _ceil(p.n, c.rows) * c.split * _ceil(p.m, c.bn) * p.batch
    per_sm = _ceil(ctas, gpu.sm_count)
    steps = _ceil(_ceil(p.k * p.itemsize, specs.ROW), c.split)
    reads = (64 + c.bn) * specs.ROW / f.shared
    at_once = min(resident, per_sm)
    step = f.step + max(specs.narrow_rows(c.rows) // 64 * reads,
                        (c.rows + c.bn) * specs.ROW / f.l2_sm,
                        f.flight * f.clock / c.stages / at_once)
    if p.sums != "plain":  # one after the other in a CTA, while others take their turn
        adding = f.drain + c.bn / 2 * (2 if p.sums == "blocks" else 1)
        step = max(step, (reads + adding) / at_once)
    end = c.bn * c.rows * 4 / f.write
    if c.split > 1:
        end += f.exchange * (c.split - 1) + f.exchange_element * c.bn * c.rows
    waves = _ceil(per_sm, resident)
    busy = f.latency + end + (waves - 1) * f.restart + per_sm * steps * step
    launch = f.launch_narrow + f.meet * (c.split > 1)
    return launch + _overlapped(busy / f.clock, _memory(p, f), f)


def _sgemm(c: Sgemm, p: Problem, gpu: Properties, f: Figures) -> float:
    """FMAs, of as many warps as the tiles give an SM; slices add their sums in another kernel."""
    threads = sgemm_threads(c.bm, c.bn)
    warps, slots = threads // 32, 64 + f.beside + f.copy * (c.bm + c.bn) / threads
    per_sm = _ceil(limits.sgemm_ctas(c, p), gpu.sm_count)
    at_once = min(per_sm * warps, _SGEMM_WARPS) / _FMA_WARPS
    rate = _FMA_WARPS * at_once / (max(at_once, 1.0) + f.idle)
    steps = _ceil(limits.slice_of(c, p), SGEMM_BK) * SGEMM_BK
    busy = f.latency + per_sm * warps * steps * slots / rate
    slices = 0 if c.split == 1 else c.split
    adding = bool(slices) * f.launch + 2 * slices * p.batch * p.m * p.n * 4 / f.memory
    return f.launch + _overlapped(busy / f.clock, _memory(p, f), f) + adding
