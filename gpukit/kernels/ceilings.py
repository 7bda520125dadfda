"""Specs of the microbenchmarks that say how fast the parts of a GPU are by themselves."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

#: The result types that each element type has on the tensor cores, the usual one first.
SUMS: dict[str, tuple[str, ...]] = {
    "bf16": ("f32",), "f16": ("f32", "f16"), "tf32": ("f32",), "e4m3": ("f32", "f16"),
    "e5m2": ("f32", "f16"), "s8": ("i32",)}
COLUMNS = (8, 16, 32, 48, 64, 96, 128, 192, 256)
#: Registers of D and A per thread beyond which the compiler spills, by warpgroups of a CTA.
MOST_WORDS = {1: 136, 2: 136, 3: 136, 4: 96}
_FRAGMENTS = 8  # registers that A1 and -A1 take
CHAINS, WARPS = (1, 2, 4, 8), (1, 4, 8, 16)  # of mma_rate
INNER, BOX_ROWS, STAGES = (16, 32, 64, 128), (64, 128, 256), (2, 4, 8)  # of tma_rate
ROW = 128  # bytes of a row of a tile
PLACES, SHIFTS = 8, 8  # of shared_rate: accesses of a turn, turns until it begins again
PLAIN = ("sm_80", "sm_90", "sm_100")


def words(n: int, acc: str) -> int:
    """Registers that one thread's part of D takes."""
    return n // 4 if acc == "f16" else n // 2


def fits(n: int, acc: str, registers: bool, warpgroups: int) -> bool:
    """Whether so many warpgroups find room in the registers of an SM."""
    return words(n, acc) + _FRAGMENTS * registers <= MOST_WORDS[warpgroups]


def _tiles(tunables: Tunables) -> int:
    """A's 64 rows and B's."""
    return (64 + int(tunables["n"])) * ROW


def shared_size(width: int, ways: int) -> int:
    """Bytes of shared memory that shared_rate reads."""
    return PLACES * 32 * width * ways + SHIFTS * ROW


def _wgmma_variants() -> tuple[dict[str, Value], ...]:
    """Every type, and those that come closest to spilling."""
    types: list[dict[str, Value]] = [{"dtype": dtype, "acc": acc, "n": 16}
                                     for dtype, sums in SUMS.items() for acc in sums]
    return (*types, {"registers": "true", "warpgroups": 3}, {"warpgroups": 4, "n": 192})


_LAPS = Param("laps", "pointer", "i64 [2][CTA]: clocks, nanoseconds")
WGMMA = KernelSpec(
    name="ceilings.wgmma", source="ceilings/wgmma.cu",
    entry="wgmma_rate<{dtype}, {acc}, {n}, {registers}, {warpgroups}>",
    summary="tensor cores alone: wgmma on operands that never change",
    archs=("sm_90a",),
    tunables=(
        Tunable("dtype", tuple(SUMS), "bf16", "element type of A and B"),
        Tunable("acc", ("f32", "f16", "i32"), "f32", "type of the sums"),
        Tunable("n", COLUMNS, 256, "columns of an MMA"),
        Tunable("registers", ("false", "true"), "false", "whether A comes from registers"),
        Tunable("warpgroups", (1, 2, 3, 4), 1, "per CTA, one CTA per SM"),
    ),
    params=(Param("a_bytes", "pointer", "the tile of A as it lies in shared memory"),
            Param("fragments", "pointer", "words of A1 and -A1 [2][128][4]"),
            Param("b_bytes", "pointer", "the tile of B"),
            Param("turns", "i32", "of four MMAs"),
            _LAPS,
            Param("out", "pointer", "words of D [CTA][warpgroup][word][thread]")),
    shared_bytes=_tiles, variants=_wgmma_variants(),
)
MMA = KernelSpec(
    name="ceilings.mma", source="ceilings/mma.cu", entry="mma_rate<{dtype}, {chains}, {warps}>",
    summary="tensor cores fed by single warps: mma.sync on operands that never change",
    archs=PLAIN,
    tunables=(Tunable("dtype", ("bf16", "f16"), "bf16", "element type of A and B"),
              Tunable("chains", CHAINS, 4, "accumulators per warp"),
              Tunable("warps", WARPS, 8, "per CTA, one CTA per SM")),
    params=(Param("a", "pointer", "words of A and -A [2][32][4]"),
            Param("b", "pointer", "words of B [32][2]"), Param("turns", "i32", "of two per chain"),
            _LAPS,
            Param("out", "pointer", "D [CTA][warp][chain][4][32]")),
    variants=({}, {"dtype": "f16", "chains": 8, "warps": 16}),
)
SHARED = KernelSpec(
    name="ceilings.shared", source="ceilings/shared.cu", entry="shared_rate<{width}, {ways}>",
    summary="shared-memory loads of 4, 8 or 16 bytes per lane, with bank conflicts or without",
    archs=PLAIN,
    tunables=(Tunable("width", (4, 8, 16), 16, "bytes per lane"),
              Tunable("ways", (1, 2, 4, 8), 1, "lanes that share a bank in a pass")),
    params=(Param("values", "pointer", "what shared memory holds, words"),
            Param("turns", "i32", "of eight loads"),
            _LAPS,
            Param("out", "pointer", "u32 per thread: sum of what it read")),
    shared_bytes=lambda t: shared_size(int(t["width"]), int(t["ways"])),
    variants=({}, {"width": 4}, {"width": 8, "ways": 8}),
)
STREAM = KernelSpec(
    name="ceilings.stream", source="ceilings/stream.cu", entry="stream<Op::{op}>",
    summary="L2 or DRAM: 16-byte accesses of all SMs over a stretch of memory",
    archs=PLAIN,
    tunables=(Tunable("op", ("read", "write", "copy"), "read", "what is done"),),
    params=(Param("in", "pointer", "chunks of 16 bytes"), Param("to", "pointer", "likewise"),
            Param("chunks", "u32", "at least the number of threads, below 2**31"),
            Param("steps", "i32", "accesses per thread, a multiple of 8"),
            _LAPS,
            Param("out", "pointer", "16 bytes per thread: sum of what it read")),
    variants=({}, {"op": "write"}, {"op": "copy"}),
)
TMA = KernelSpec(
    name="ceilings.tma", source="ceilings/tma.cu", entry="tma_rate<{inner}, {rows}, {stages}>",
    summary="TMA alone: boxes into shared memory that nobody uses",
    archs=("sm_90", "sm_100"),
    tunables=(Tunable("inner", INNER, 128, "bytes of a row of a box"),
              Tunable("rows", BOX_ROWS, 128, "rows of a box"),
              Tunable("stages", STAGES, 8, "boxes in flight")),
    params=(Param("map", "tensor_map", "[boxes x rows, inner bytes]"), Param("boxes", "i32", ""),
            Param("steps", "i32", "boxes per CTA, at least the stages"),
            _LAPS,
            Param("out", "pointer", "u32 per thread: its part of the sum of the last boxes")),
    shared_bytes=lambda t: int(t["stages"]) * (int(t["inner"]) * int(t["rows"]) + 8),
    variants=({}, {"inner": 16, "stages": 2}),
)
CHASE = KernelSpec(
    name="ceilings.chase", source="ceilings/chase.cu", entry="chase<Level::{level}, {each}>",
    summary="latency of L1, L2 or DRAM: one thread follows pointers",
    archs=PLAIN,
    tunables=(Tunable("level", ("l1", "l2"), "l2", "caches that loads may hit: all, or L2 only"),
              Tunable("each", ("false", "true"), "false", "whether every hop is timed")),
    params=(Param("next", "pointer", "u32: the place after this one"),
            Param("warm", "i64", "words to read before"), Param("hops", "i32", ""),
            Param("times", "pointer", "u32 clocks of each hop, or the sums of clocks and ns"),
            Param("last", "pointer", "u32: where the chase ended")),
    variants=({}, {"each": "true"}, {"level": "l1"}),
)

SPECS = (WGMMA, MMA, SHARED, STREAM, TMA, CHASE)
