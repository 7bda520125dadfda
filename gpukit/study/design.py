"""What the elementwise study measures: for each of its questions, the cases that answer it.

A question gets the full product of what it asks about and nothing else; cases that two questions
share are measured once. Cases of one problem in one L2 state form a contest: they are timed in
turns on the same buffers, so that what drifts meanwhile drifts for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from gpukit import dtypes
from gpukit.bench.emulated_target import UNTIMED
from gpukit.bench.model import Case
from gpukit.devices.protocol import Properties
from gpukit.kernels.elementwise import BINARY, UNARY

FAMILY = "elementwise"
MIB = 1 << 20
COLD, FLUSHED, HOT = "rotate", "flush", "hot"
#: The block that the published figures were taken with, and the waves of their capped grid.
BLOCK, WAVES = 256, 32
#: Traffic of the problem that one SM, or a few, copy; and of a single SM in the finer grid. Sizes
#: of their own: a contest gives all its cases as many samples as its slowest ones get.
SMS_TRAFFIC, ONE_SM_TRAFFIC = 192 * MIB, 12 * MIB
#: Beyond this a flush makes no difference worth the time: the writes it spares are too few.
FLUSHED_UP_TO = 512 * MIB
#: From this many times the L2 on, hot and cold are asked about by the first question only.
_HOT_UP_TO = 8
#: Elements of the problem that others published all functions for: 1024 x 3072.
FUNCTIONS_ELEMENTS = 1024 * 3072
_EVEN = 64  # elements: no size has a tail

Params = dict[str, int | str | bool]


@dataclass(frozen=True)
class Extent:
    """How far the study goes. ``traffic`` is in bytes read and written; ``few`` are those sizes
    for questions about many ops; ``around_l2`` are multiples of the L2's size."""

    traffic: tuple[int, ...]
    few: tuple[int, ...]
    around_l2: tuple[float, ...]
    ops: tuple[str, ...]
    often: tuple[str, ...]
    blocks: tuple[int, ...]
    waves: tuple[int, ...]
    unrolls: tuple[int, ...]
    sms: tuple[float, ...]


FULL = Extent(
    traffic=tuple(8 * MIB << shift for shift in range(10)),
    few=tuple(8 * MIB << shift for shift in (0, 2, 5, 8)),
    around_l2=(0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 12),
    ops=(*UNARY, *BINARY),
    often=("copy", "exp", "add"),
    blocks=(128, 256, 512, 1024),
    waves=(1, 2, 4, 8, 16, WAVES),
    unrolls=(1, 2, 4),
    sms=(0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1),
)
QUICK = Extent(
    traffic=(8 * MIB, 64 * MIB, 512 * MIB),
    few=(8 * MIB, 512 * MIB),
    around_l2=(0.5, 1, 2, 4),
    ops=("copy", "exp", "add"),
    often=("copy",),
    blocks=(128, 256, 1024),
    waves=(1, 4, WAVES),
    unrolls=(1, 4),
    sms=(0, 1 / 8, 1 / 2, 1),
)
#: Elements of a problem on the emulator: some waves of a small block, over in a second.
EMULATED_ELEMENTS = 8192


def setting(vec: int, unroll: int = 1, block: int = BLOCK, grid: int | str = "gs1",
            waves: int | None = None, index: str = "u32") -> Params:
    """One way to launch, all of it said."""
    limit: Params = {} if waves is None else {"waves": waves}
    return {"vec": vec, "unroll": unroll, "block": block, "grid": grid, **limit, "index": index}


def cases(properties: Properties, extent: Extent) -> list[Case]:
    """The whole design for a GPU, each case once."""
    questions = (_l2(properties, extent), _grids(properties, extent), _widths(properties, extent),
                 _indices(properties, extent), _sms(properties, extent),
                 _defaults(extent), _functions(extent))
    return list({case.key: case for question in questions for case in question}.values())


def emulated_cases() -> list[Case]:
    """What a device without a clock can tell: instructions and sectors of each way to launch."""
    found = []
    for dtype in ("f32", "bf16", "e4m3"):
        n = EMULATED_ELEMENTS
        kernel = f"{FAMILY}.copy"
        loops = [setting(wide(dtype), 1, 128, 2, index=index) for index in ("u32", "u64")]
        once = [setting(vec, 1, 128) for vec in widths(dtype, 16)]
        found += [Case(FAMILY, kernel, dtype, {"n": n}, params, UNTIMED, UNTIMED)
                  for params in (*once, *loops)]
    return found


def contests(all_cases: Iterable[Case]) -> list[list[Case]]:
    """Cases by problem and L2 state, in the order of their first case."""
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in all_cases:
        groups.setdefault((case.kernel, case.dtype, case.shape["n"], case.l2), []).append(case)
    return list(groups.values())


def arrays(op: str) -> int:
    """How many arrays an op reads and writes."""
    return 3 if op in BINARY else 2


def elements(op: str, dtype: str, traffic: int) -> int:
    """Elements of each array for so many bytes of traffic, rounded down to even vectors."""
    return traffic // (arrays(op) * dtypes.parse(dtype).itemsize) // _EVEN * _EVEN


def traffic_of(op: str, dtype: str, n: int) -> int:
    """Bytes that an op reads and writes."""
    return arrays(op) * n * dtypes.parse(dtype).itemsize


def wide(dtype: str) -> int:
    """Elements in 16 bytes."""
    return 16 // dtypes.parse(dtype).itemsize


def widths(dtype: str, most_bytes: int) -> tuple[int, ...]:
    """Elements per access, from one to so many bytes."""
    size = dtypes.parse(dtype).itemsize
    return tuple(vec for vec in (1, 2, 4, 8, 16, 32) if vec * size <= most_bytes)


def wave(properties: Properties, block: int) -> int:
    """CTAs that the GPU holds at once."""
    return properties.sm_count * max(1, properties.threads_per_sm // block)


def rules(properties: Properties, n: int, vec: int, unroll: int, block: int,
          waves: Iterable[int]) -> Iterator[tuple[str, int | None]]:
    """The grid rules that differ for a problem: one pass, and each cap that is below it."""
    yield "gs1", None
    needed = -(-n // (vec * unroll * block))
    yield from (("gs2", cap) for cap in waves if cap * wave(properties, block) < needed)


def _case(op: str, dtype: str, traffic: int, l2: str, params: Params) -> Case:
    return Case(FAMILY, f"{FAMILY}.{op}", dtype, {"n": elements(op, dtype, traffic)}, params, l2)


def _states(properties: Properties, traffic: int) -> tuple[str, ...]:
    """Cold in a steady state; hot too where that can still make a difference."""
    return (COLD, HOT) if traffic <= _HOT_UP_TO * properties.l2_bytes else (COLD,)


def _l2(properties: Properties, extent: Extent) -> Iterator[Case]:
    """Where does L2 stop flattering? The library's own launch and the published one."""
    around = {int(share * properties.l2_bytes) for share in extent.around_l2}
    for traffic, state, params in product(sorted({*extent.traffic, *around}),
                                          (COLD, FLUSHED, HOT), ({}, setting(4))):
        yield _case("copy", "f32", traffic, state, params)


def _grids(properties: Properties, extent: Extent) -> Iterator[Case]:
    """Does a wave-capped grid ever win? Every cap, block and L2 state."""
    problems = [("copy", "f32", traffic, block, unroll)
                for traffic, block, unroll in product(extent.traffic, extent.blocks, (1, 4))]
    problems += [(op, dtype, traffic, BLOCK, 1) for op, dtype in (("add", "f32"), ("exp", "bf16"))
                 for traffic in extent.few]
    for op, dtype, traffic, block, unroll in problems:
        vec, n = wide(dtype), elements(op, dtype, traffic)
        for (rule, cap), state in product(rules(properties, n, vec, unroll, block, extent.waves),
                                          _states(properties, traffic)):
            yield _case(op, dtype, traffic, state, setting(vec, unroll, block, rule, cap))
    yield from _idle(properties, extent)


def idle_grid(properties: Properties) -> int:
    """The grid of `WAVES` waves, whatever the problem's size: the published capped grid."""
    return WAVES * wave(properties, BLOCK)


def _idle(properties: Properties, extent: Extent) -> Iterator[Case]:
    """Small problems with as many CTAs as large ones: most have nothing to do."""
    for traffic in extent.traffic:
        if idle_grid(properties) > -(-elements("copy", "f32", traffic) // (4 * BLOCK)):
            for state in _states(properties, traffic):
                yield _case("copy", "f32", traffic, state,
                            setting(4, grid=idle_grid(properties)))


def _widths(properties: Properties, extent: Extent) -> Iterator[Case]:
    """Do wide accesses pay? One vector in flight per thread, and as many bytes as the widest."""
    most = 32 if properties.capability >= (10, 0) else 16
    problems = [("copy", dtype, traffic) for dtype in ("f32", "bf16", "e4m3")
                for traffic in extent.traffic]
    problems += [(op, dtype, traffic) for op in ("add_const", "exp")
                 for dtype in ("f32", "f16", "bf16") for traffic in extent.few]
    for op, dtype, traffic in problems:
        vecs = [vec for vec in widths(dtype, most) if _countable(elements(op, dtype, traffic), vec)]
        ways = [setting(vec) for vec in vecs] + [setting(1, unroll=4)] * (1 in vecs)
        for params, state in product(ways, _states(properties, traffic)):
            yield _case(op, dtype, traffic, state, params)


def _countable(n: int, vec: int) -> bool:
    """Whether 32 bits count the vectors of one pass, the step behind the last included."""
    return 2 * (n // vec) + 2**16 < 2**32


def _indices(properties: Properties, extent: Extent) -> Iterator[Case]:
    """What do 32-bit counters save? Without a loop, and in loops of one and of many turns."""
    for traffic, vec, index in product(extent.traffic, (1, 4), ("u32", "u64")):
        n = elements("copy", "f32", traffic)
        for (rule, cap), state in product(rules(properties, n, vec, 1, BLOCK, (1, WAVES)),
                                          _states(properties, traffic)):
            yield _case("copy", "f32", traffic, state,
                        setting(vec, grid=rule, waves=cap, index=index))


def sm_counts(properties: Properties, extent: Extent) -> list[int]:
    """How many SMs are tried, from one to all."""
    return sorted({max(1, round(share * properties.sm_count)) for share in extent.sms})


def _sms(properties: Properties, extent: Extent) -> Iterator[Case]:
    """How far is one SM from the pins? One CTA per SM on some SMs; on one, every warp count."""
    for ctas, unroll in product(sm_counts(properties, extent), (1, 2, 4, 8)):
        yield _case("copy", "f32", SMS_TRAFFIC, COLD, setting(4, unroll, 1024, ctas))
    for block, unroll, state in product((32, 64, 128, 256, 512, 1024), (1, 2, 4, 8),
                                        (FLUSHED, HOT)):
        yield _case("copy", "f32", ONE_SM_TRAFFIC, state, setting(4, unroll, block, 1))
    for vec, block in product((1, 2), (BLOCK, 1024)):
        yield _case("copy", "f32", ONE_SM_TRAFFIC, FLUSHED, setting(vec, 1, block, 1))


def _defaults(extent: Extent) -> Iterator[Case]:
    """How good is the library's rule? Its choice among blocks and unrolls, for every op; some of
    them after a flush as well, which leaves nothing to evict."""
    types = ("f32", "bf16")
    problems = [(op, dtype, traffic, COLD) for op in extent.ops for dtype in types
                for traffic in (extent.traffic if op in extent.often else extent.few)]
    problems += [(op, dtype, traffic, FLUSHED) for op in extent.often for dtype in types
                 for traffic in extent.traffic if traffic <= FLUSHED_UP_TO]
    for op, dtype, traffic, state in problems:
        ways = [setting(wide(dtype), unroll, block)
                for block, unroll in product(extent.blocks, extent.unrolls)]
        for params in ({}, *ways):
            yield _case(op, dtype, traffic, state, params)


def _functions(extent: Extent) -> Iterator[Case]:
    """The problem that others published functions for."""
    for op, dtype in product((o for o in ("copy", "exp", "erf") if o in extent.ops),
                             ("f32", "bf16")):
        traffic = traffic_of(op, dtype, FUNCTIONS_ELEMENTS)
        for params, state in product(({}, setting(wide(dtype))), (COLD, HOT)):
            yield _case(op, dtype, traffic, state, params)
