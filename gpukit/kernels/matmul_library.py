"""Specs of the matmuls behind `gpukit.matmul` on Hopper, and what follows a sum made elsewhere."""

from __future__ import annotations

from gpukit.kernels.matmul_helpers import ACTIVATIONS
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

ROW = 128  # bytes of a row of an operand tile: what the tensor cores are given of K at a time
SLAB = 64 * ROW  # bytes of 64 of M or N by 64 of K, for operands that run along M or N
PIECE = 64 * ROW  # bytes of a write-out buffer, two for each of two warpgroups
GEMM_THREADS = 384  # a producing warpgroup and two that consume
# What 8-bit operands are: both of one format, or A's and B's.
EIGHT_BIT = ("e4m3", "e5m2", "e4m3_e5m2", "e5m2_e4m3")
FOUR_BIT = "e2m1"  # two in a byte, which is what is counted along K
ITEMSIZE = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4, **dict.fromkeys((*EIGHT_BIT, FOUR_BIT), 1)}

_INPUTS = ("bf16", "f16", "tf32", *EIGHT_BIT)
_OUTPUTS = ("bf16", "f16", "f32")
_FLAGS = ("false", "true")
_CLUSTERS = (1, 2, 4, 8)

_TYPES = (Tunable("dtype", _INPUTS, "bf16", "element type of A and B, or of A _ and of B"),
          Tunable("out", _OUTPUTS, "bf16", "element type of C, bias and residual"))
_SUMS = Tunable("sums", ("plain", "promoted", "blocks"), "plain",
                "added up by the tensor cores, or 128 bytes of K at a time in f32 registers (fp8), "
                "or those with a scale for each block")
_FINISH = (Tunable("act", ACTIVATIONS, "none", "activation of the epilogue"),
           Tunable("extras", _FLAGS, "false", "whether there is a bias, a residual or scales"))


def _integers(tunables: Tunables, *names: str) -> tuple[int, ...]:
    return tuple(int(tunables[name]) for name in names)


def turned(dtype: str) -> str:
    """The type of operands that change places."""
    return "_".join(reversed(dtype.split("_")))


def stage_bytes(tunables: Tunables) -> int:
    """A tile of A and one of B of `matmul.sm90.gemm`."""
    bm, bn = _integers(tunables, "bm", "bn")
    return bm * ROW + (bn * ROW if tunables["b_major"] == "k" else -(-bn // 64) * SLAB)


def _gemm_shared(tunables: Tunables) -> int:
    """The ring, with factors of A's rows beside it, four write-out buffers, two barriers per
    stage."""
    bm, stages = _integers(tunables, "bm", "stages")
    factors = 4 * bm if tunables["sums"] == "blocks" else 0
    return stages * (stage_bytes(tunables) + factors + 16) + 4 * PIECE


def narrow_rows(rows: int) -> int:
    """Rows of a tile of weights in shared memory: whole blocks of 64."""
    return -(-rows // 64) * 64


def narrow_threads(rows: int) -> int:
    """A warpgroup for every 64 rows, and a warp that produces."""
    return narrow_rows(rows) // 64 * 128 + 32


def _narrow_shared(tunables: Tunables) -> int:
    """The ring, which later holds the partial sums; per stage factors of tokens, whole 128 bytes,
    and two barriers."""
    rows, bn, stages = _integers(tunables, "rows", "bn", "stages")
    height = narrow_rows(rows)
    factors = -(-bn * 4 // 128) * 128 if tunables["sums"] == "blocks" else 0
    return max(stages * (height + bn) * ROW, bn * (height + 4) * 4) + (factors + 16) * stages


_SCALE_N_K = Param("scale_n_k", "i32", "sums=blocks: elements from K block to K block")

_GEMM_EPILOGUE = (
    Param("bias", "pointer", "null, or [N] (swapped: [M])"),
    Param("bias_m", "i64", "step of bias along m"), Param("bias_n", "i64", "step along n"),
    Param("residual", "pointer", "null, or [batch, M, N]"),
    Param("residual_m", "i64", "elements from row to row of residual"),
    Param("residual_n", "i64", "from column to column"),
    Param("residual_batch", "i64", "from matrix to matrix"),
    Param("scale_m", "pointer", "null, or f32 factors of the rows"),
    Param("scale_n", "pointer", "null, or f32 factors of the columns"),
    Param("scale_m_step", "i32", "0: one factor for all"),
    Param("scale_n_step", "i32", "0: one factor for all"),
    _SCALE_N_K,
)

_TERMS = (
    Param("bias", "pointer", "null, or [N]"), Param("residual", "pointer", "null, or like C"),
    Param("residual_row", "i64", "elements from row to row of residual"),
    Param("residual_batch", "i64", "from matrix to matrix"),
    Param("scale_m", "pointer", "null, or f32 factors of the rows"),
    Param("scale_n", "pointer", "null, or f32 factors of the columns"),
    Param("scale_m_step", "i32", "0: one factor for all"),
    Param("scale_n_step", "i32", "0: one factor for all"),
)

_TILED: tuple[dict[str, Value], ...] = (
    {}, {"cm": 2}, {"bn": 256, "cn": 2}, {"bm": 256, "bn": 128, "cn": 2},
    {"bm": 256, "bn": 176, "stages": 3}, {"bn": 192, "share": "pingpong"},
    {"bn": 208, "stages": 4, "share": "pingpong"}, {"bm": 64, "bn": 256, "share": "pingpong"},
    {"bn": 128, "stages": 6, "share": "pingpong"}, {"bn": 256, "split": 2},
    {"bn": 64, "stages": 8, "split": 2}, {"cm": 2, "cn": 2, "bn": 192},
    {"bm": 64, "bn": 384, "stages": 3, "share": "columns"},
    {"bm": 128, "bn": 256, "cn": 2, "share": "columns"},
)
_LAID_OUT: tuple[dict[str, Value], ...] = (
    {"a_major": "mn"}, {"b_major": "mn"},
    {"dtype": "f16", "out": "f16", "bn": 192, "share": "pingpong", "a_major": "mn",
     "b_major": "mn"},
    {"store": "columns", "bn": 128, "stages": 6}, {"store": "direct"},
    {"store": "columns", "bn": 24, "stages": 8, "share": "pingpong"},
)
_TYPED: tuple[dict[str, Value], ...] = (
    {"out": "f32"}, {"dtype": "f16", "out": "f16"}, {"dtype": "tf32", "out": "f32"},
    {"dtype": "e4m3"}, {"dtype": "e5m2", "out": "f16", "bn": 128, "stages": 6},
    {"dtype": "e4m3_e5m2"}, {"dtype": "e5m2_e4m3", "bn": 128, "stages": 6, "sums": "promoted"},
    {"dtype": "e4m3", "bn": 128, "stages": 6, "sums": "promoted"},
    {"dtype": "e4m3", "bn": 128, "stages": 6, "sums": "blocks"},
    {"dtype": "e4m3", "bn": 112, "stages": 6, "cm": 2, "sums": "blocks"},
)
_FINISHED: tuple[dict[str, Value], ...] = (
    {"act": "gelu_tanh", "terms": "all"}, {"act": "relu"},
    {"act": "gelu", "terms": "all", "store": "direct"},
    {"act": "silu", "terms": "all", "bn": 112, "stages": 6, "share": "pingpong"},
    {"dtype": "e4m3", "terms": "all", "bn": 128, "stages": 6, "sums": "promoted"},
    {"dtype": "e4m3", "terms": "scales", "bn": 192, "cm": 2, "sums": "promoted"},
    {"dtype": "e4m3", "terms": "scales", "bm": 256, "bn": 128, "stages": 4, "sums": "promoted"},
    {"dtype": "e4m3", "terms": "scales", "bn": 144, "cm": 2, "share": "pingpong"},
)

GEMM = KernelSpec(
    name="matmul.sm90.gemm",
    source="matmul/sm90/gemm.cu",
    entry="gemm<{dtype}, {out}, {bm}, {bn}, {stages}, {cm}, {cn}, {split}, Share::{share}, "
          "Major::{a_major}, Major::{b_major}, Store::{store}, Sums::{sums}, Act::{act}, "
          "Terms::{terms}>",
    summary="what gpukit.matmul runs: any layout, tile and cluster; fused epilogue",
    archs=("sm_90a",),
    tunables=(
        *_TYPES,
        Tunable("bm", (64, 128, 192, 256), 128, "rows of C per CTA"),
        Tunable("bn", tuple(range(8, 513, 8)), 256, "columns of C per CTA"),
        Tunable("stages", tuple(range(2, 13)), 4, "tiles of A and B in flight"),
        Tunable("cm", _CLUSTERS, 1, "CTAs along M that share the tiles of B"),
        Tunable("cn", _CLUSTERS, 1, "CTAs along N that share the tiles of A"),
        Tunable("split", (1, 2), 1, "CTAs that divide K"),
        Tunable("share", ("rows", "columns", "pingpong"), "rows",
                "how two warpgroups divide the work: a tile's rows, its columns, or whole tiles"),
        Tunable("a_major", ("k", "mn"), "k", "contiguous dimension of A: k, or m"),
        Tunable("b_major", ("k", "mn"), "k", "contiguous dimension of B: k, or n"),
        Tunable("store", ("rows", "columns", "direct"), "rows",
                "how C leaves: by TMA to a row- or column-major C, or by plain stores of rows"),
        _SUMS, _FINISH[0],
        Tunable("terms", ("none", "scales", "all"), "none",
                "what the epilogue reads: factors of rows and columns, or also bias and residual"),
    ),
    params=(
        Param("A", "tensor_map", "[batch, M, K]"), Param("B", "tensor_map", "[batch, N, K]"),
        Param("C_map", "tensor_map", "[batch, M, N]; unused if store is direct"),
        Param("scale_map", "tensor_map", "sums=blocks: factors of A's blocks [1, K / 128, M]"),
        Param("C", "pointer", "[batch, M, N]"),
        Param("c_row", "i64", "elements from row to row of C"),
        Param("c_batch", "i64", "from matrix to matrix"),
        Param("M", "i32", ""), Param("N", "i32", ""), Param("K", "i32", ""),
        Param("batch", "i32", "matrices"),
        Param("group", "i32", "cluster tile rows walked together"),
        Param("alpha", "f32", "factor of the sums"),
        *_GEMM_EPILOGUE,
    ),
    shared_bytes=_gemm_shared,
    variants=(*_TILED, *_LAID_OUT, *_TYPED, *_FINISHED),
    requires=(
        "rows of A and B (and of C unless store is direct) start at multiples of 16 bytes",
        "operands that are not 16-bit run along K",
        "split: bm is 128, no other cluster, share is rows, two blocks of 128 bytes of K",
    ),
)

_EXACT_NARROW: list[dict[str, Value]] = [
    {"dtype": "e4m3", "rows": 128, "bn": bn, "stages": 6, "sums": sums, "extras": "true",
     "act": "gelu"}
    for sums, bn in (("promoted", 64), ("promoted", 128), ("blocks", 64), ("blocks", 112))]

NARROW = KernelSpec(
    name="matmul.sm90.narrow",
    source="matmul/sm90/narrow.cu",
    entry="gemm_narrow<{dtype}, {out}, {rows}, {bn}, {stages}, {split}, Sums::{sums}, "
          "Act::{act}, {extras}>",
    summary="what gpukit.matmul runs for up to 128 rows of A: weights at the speed of memory",
    archs=("sm_90a",),
    tunables=(
        *_TYPES,
        Tunable("rows", tuple(range(8, 257, 8)), 64, "columns of C (rows of weights) per CTA"),
        Tunable("bn", tuple(range(8, 129, 8)), 16, "rows of C (tokens) per CTA"),
        Tunable("stages", tuple(range(2, 25)), 8, "tiles in flight"),
        Tunable("split", (1, 2, 3, 4, 6, 8), 1, "CTAs that divide K"),
        _SUMS, *_FINISH,
    ),
    params=(
        Param("W", "tensor_map", "[batch, N, K]"), Param("X", "tensor_map", "[batch, M, K]"),
        Param("scale_map", "tensor_map", "sums=blocks: factors of X's blocks [1, K / 128, M]"),
        Param("C", "pointer", "[batch, M, N]"),
        Param("c_row", "i64", "elements from row to row of C"),
        Param("c_batch", "i64", "from matrix to matrix"),
        Param("M", "i32", ""), Param("N", "i32", ""), Param("K", "i32", ""),
        Param("alpha", "f32", "factor of the sums"),
        *_TERMS, _SCALE_N_K,
    ),
    shared_bytes=_narrow_shared,
    variants=(
        {}, {"bn": 8, "rows": 32, "stages": 16}, {"split": 2},
        {"rows": 112, "bn": 64, "stages": 6, "split": 2}, {"rows": 128, "bn": 128, "stages": 6},
        {"dtype": "f16", "out": "f32", "split": 4}, {"dtype": "tf32", "out": "f32"},
        {"dtype": "e4m3", "extras": "true", "act": "silu"}, {"dtype": "e5m2", "rows": 24},
        {"extras": "true", "act": "gelu", "bn": 64}, {"act": "relu", "rows": 56},
        *_EXACT_NARROW,
        {"dtype": "e5m2", "rows": 48, "bn": 8, "split": 2, "sums": "blocks"},
        {"dtype": "e4m3_e5m2"},
    ),
    requires=("K runs fastest in both operands, whose rows start at multiples of 16 bytes",
              "N fastest in C and residual", "split divides bn rows / 4",
              "sums=blocks: rows is a multiple of 16"),
)

EPILOGUE = KernelSpec(
    name="matmul.epilogue",
    source="matmul/epilogue.cu",
    entry="epilogue<{out}, Act::{act}>",
    summary="scale, bias, activation and residual for sums of a kernel that has no epilogue",
    archs=("sm_75", "sm_80", "sm_90", "sm_100"),
    tunables=(Tunable("out", _OUTPUTS, "bf16", "element type of C, bias and residual"), _FINISH[0]),
    params=(
        Param("sums", "pointer", "null for zeros, or f32 [batch, slices, M, N] without gaps"),
        Param("slices", "i32", "of K, to be added up"),
        Param("C", "pointer", "[batch, M, N]"),
        Param("c_row", "i64", "elements from row to row of C"),
        Param("c_batch", "i64", "from matrix to matrix"),
        Param("M", "i64", ""), Param("N", "i64", ""), Param("batch", "i64", "matrices"),
        Param("alpha", "f32", "factor of the sums"), *_TERMS,
    ),
    variants=tuple({"out": out, "act": act} for out in _OUTPUTS for act in ACTIVATIONS),
    requires=("N fastest in C and residual", "one thread per element"),
)

SPECS = (GEMM, NARROW, EPILOGUE)
