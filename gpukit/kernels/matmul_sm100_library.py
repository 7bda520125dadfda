"""Specs of the matmul behind `gpukit.matmul` on Blackwell, and of what packs its scale factors.

No hardware of ours has run them: they are emulator-verified.
"""

from __future__ import annotations

from gpukit.kernels.matmul_helpers import ACTIVATIONS
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

ROW = 128  # bytes of a row of an operand tile: what a stage holds of K
SLAB = 64 * ROW  # bytes of 64 of M or N by 64 of K, for operands that run along M or N
BM = 128  # rows of C per CTA
THREADS = 224  # four warps that write out, a scheduler, a loader, a multiplier
PIECE_COLUMNS = 32  # of C on its way through a buffer
SCALE_CHUNK = 512  # bytes: factors of 128 rows and four blocks of K
SCALE_ROWS = 128
PACK_THREADS = 256

_SIXTEEN_BIT = ("bf16", "f16")
_EIGHT_BIT = ("e4m3", "e5m2", "e4m3_e5m2", "e5m2_e4m3")
# What A and B are: with factors of blocks "mx" (32 elements, ue8m0) or "nv" (16, ue4m3).
FORMATS = (*_SIXTEEN_BIT, "tf32", *_EIGHT_BIT, *(f"mx{name}" for name in _EIGHT_BIT), "nve2m1")
_OUTPUTS = {"bf16": 2, "f16": 2, "f32": 4}
_SHARED_LATER = 64  # bytes of answers and of the address of Tensor Memory, rounded up
_COLUMNS = 512  # of Tensor Memory
_MAX_SUMS = 4


def k_chunks(dtype: str) -> int:
    """Chunks of factors along K in a stage; 0 for formats without."""
    return 1 if dtype.startswith("mx") else 4 if dtype.startswith("nv") else 0


def b_chunks(bn: int) -> int:
    """Chunks of factors along a tile's columns."""
    return -(-bn // SCALE_ROWS)


def scale_bytes(dtype: str, bn: int) -> int:
    """Factors of A and B in a stage."""
    return k_chunks(dtype) * (1 + b_chunks(bn)) * SCALE_CHUNK


def accumulators(dtype: str, bn: int) -> int:
    """Tiles of sums that Tensor Memory holds beside the factors of a stage; 4 at most."""
    factors = k_chunks(dtype) * (1 + b_chunks(bn)) * SCALE_CHUNK // 128
    return min((_COLUMNS - factors) // (-(-bn // 32) * 32), _MAX_SUMS)


def stage_bytes(tunables: Tunables) -> int:
    """A tile of A and a CTA's part of one of B."""
    rows = int(tunables["bn"]) // int(tunables["ctas"])
    return BM * ROW + (rows * ROW if tunables["b_major"] == "k" else -(-rows // 64) * SLAB)


def _shared(tunables: Tunables) -> int:
    """The ring, factors beside it, two pieces of C, barriers, and what is small."""
    dtype, bn, stages = str(tunables["dtype"]), int(tunables["bn"]), int(tunables["stages"])
    stage = stage_bytes(tunables) + scale_bytes(dtype, bn) + 16
    pieces = 2 * BM * PIECE_COLUMNS * _OUTPUTS[str(tunables["out"])]
    sums = 16 * accumulators(dtype, bn)
    return (stages * stage + (pieces if tunables["store"] == "rows" else 0) + sums
            + 40 + _SHARED_LATER)


_TILED: tuple[dict[str, Value], ...] = (
    {}, {"bn": 256, "stages": 6}, {"bn": 192, "stages": 6, "cluster": 4}, {"bn": 224, "stages": 6},
    {"bn": 64, "stages": 9}, {"ctas": 1, "cluster": 1}, {"ctas": 1, "cluster": 2, "bn": 96},
    {"ctas": 1, "cluster": 1, "bn": 16, "store": "columns", "stages": 12},
    {"ctas": 1, "cluster": 2, "bn": 176, "store": "columns", "stages": 5},
    {"bn": 64, "store": "columns"},
)
_LAID_OUT: tuple[dict[str, Value], ...] = (
    {"a_major": "mn"}, {"b_major": "mn"}, {"dtype": "f16", "out": "f16", "a_major": "mn",
                                           "b_major": "mn", "ctas": 1, "cluster": 1},
)
_TYPED: tuple[dict[str, Value], ...] = (
    {"out": "f32"}, {"dtype": "f16", "out": "f32", "store": "columns"},
    *[dict[str, Value](dtype=dtype) for dtype in (*_EIGHT_BIT, *FORMATS[-5:])],
    {"dtype": "tf32", "out": "f32"}, {"dtype": "tf32", "out": "f32", "ctas": 1, "cluster": 1},
    *[dict[str, Value](dtype=dtype, ctas=1, cluster=1, bn=32, store="columns")
      for dtype in ("e4m3", "mxe4m3", "nve2m1")],
    {"dtype": "mxe4m3", "bn": 192, "stages": 5, "cluster": 4},
    {"dtype": "nve2m1", "bn": 224, "stages": 5}, {"dtype": "nve2m1", "bn": 256, "stages": 4},
)
_FINISHED: tuple[dict[str, Value], ...] = (
    {"act": "gelu", "extras": "true"}, {"act": "relu"},
    {"act": "silu", "extras": "true", "out": "f32"},
    {"act": "gelu", "extras": "true", "store": "columns"}, {"act": "relu", "store": "columns"},
    {"act": "gelu_tanh", "extras": "true", "store": "columns", "ctas": 1, "cluster": 1},
)

GEMM = KernelSpec(
    name="matmul.sm100.gemm",
    source="matmul/sm100/gemm.cu",
    entry="gemm<Format::{dtype}, {out}, {bn}, {stages}, {ctas}, {cluster}, Major::{a_major}, "
          "Major::{b_major}, Store::{store}, Act::{act}, {extras}>",
    summary="what gpukit.matmul runs on Blackwell: any layout, type and tile; fused epilogue",
    archs=("sm_100a",),
    tunables=(
        Tunable("dtype", FORMATS, "bf16", "A and B: one type, or A's _ and B's; mx, nv: with "
                "factors of blocks"),
        Tunable("out", tuple(_OUTPUTS), "bf16", "element type of C, bias and residual"),
        Tunable("bn", tuple(range(16, 257, 16)), 128, "columns of C per CTA, N of an MMA"),
        Tunable("stages", tuple(range(2, 13)), 8, "tiles of A and B in flight"),
        Tunable("ctas", (1, 2), 2, "CTAs that multiply together: MMAs of 128 or 256 rows"),
        Tunable("cluster", (1, 2, 4), 2, "CTAs along M that share the tiles of B"),
        Tunable("a_major", ("k", "mn"), "k", "contiguous dimension of A: k, or m"),
        Tunable("b_major", ("k", "mn"), "k", "contiguous dimension of B: k, or n"),
        Tunable("store", ("rows", "columns"), "rows",
                "how C leaves: row-major by TMA, or column-major by plain stores"),
        Tunable("act", ACTIVATIONS, "none", "activation of the epilogue"),
        Tunable("extras", ("false", "true"), "false",
                "whether there is a bias, a residual or scales"),
    ),
    params=(
        Param("A", "tensor_map", "[batch, M, K]"), Param("B", "tensor_map", "[batch, N, K]"),
        Param("C_map", "tensor_map", "[batch slices, M, N]; unused if store is columns"),
        Param("scale_map_a", "tensor_map", "mx, nv: packed factors of A"),
        Param("scale_map_b", "tensor_map", "mx, nv: packed factors of B"),
        Param("C", "pointer", "[batch slices, N, M] if store is columns"),
        Param("c_column", "i64", "elements from column to column of C"),
        Param("c_batch", "i64", "from matrix to matrix"),
        Param("M", "i32", ""), Param("N", "i32", ""),
        Param("K", "i32", "elements, or pairs of 4 bits"),
        Param("batch", "i32", "matrices"), Param("slices", "i32", "of K, each a matrix of C"),
        Param("depth", "i32", "steps of 128 bytes of K in a slice"),
        Param("group", "i32", "cluster tile rows walked together"),
        Param("alpha", "f32", "factor of the sums"),
        Param("bias", "pointer", "null, or [N] (transposed: [M])"),
        Param("bias_m", "i64", "step of bias along m"), Param("bias_n", "i64", "step along n"),
        Param("residual", "pointer", "null, or [batch, M, N]"),
        Param("residual_m", "i64", "elements from row to row of residual"),
        Param("residual_n", "i64", "from column to column"),
        Param("residual_batch", "i64", "from matrix to matrix"),
        Param("scale_m", "pointer", "null, or f32 factors of the rows"),
        Param("scale_n", "pointer", "null, or f32 factors of the columns"),
        Param("scale_m_step", "i32", "0: one factor for all"),
        Param("scale_n_step", "i32", "0: one factor for all"),
    ),
    shared_bytes=_shared,
    variants=(*_TILED, *_LAID_OUT, *_TYPED, *_FINISHED),
    requires=(
        "rows of A and B (and of C if store is rows) start at multiples of 16 bytes",
        "operands that are not 16-bit run along K",
        "cluster is a multiple of ctas, each of its groups loads an equal part of B: whole blocks "
        "of 8 rows, or of 64 columns if B runs along n",
        "bn is a multiple of 32 if store is rows; of 32 with ctas=2",
    ),
)

PACK_SCALES = KernelSpec(
    name="matmul.pack_scales",
    source="matmul/pack_scales.cu",
    entry="pack_scales",
    summary="factors of blocks of K in the order of Blackwell's tensor core",
    archs=("sm_100",),
    tunables=(),
    params=(
        Param("src", "pointer", "[rows, blocks] bytes, any strides"),
        Param("dst", "pointer", "[tiles, steps, groups, chunks, 512]"),
        Param("words", "i64", "32-bit words of dst"), Param("rows", "i64", ""),
        Param("blocks", "i32", ""),
        Param("src_row", "i64", "bytes from row to row of src"),
        Param("src_block", "i64", "from block to block"),
        Param("tile_rows", "i32", "rows of a tile of the matmul"),
        Param("steps", "i32", "of 128 bytes of K"), Param("groups", "i32", "of four blocks a step"),
        Param("chunks", "i32", "of 128 rows a tile"),
    ),
    requires=("a thread per word",),
)

SPECS = (GEMM, PACK_SCALES)
