"""Specs of the kernels beside the matmul ladders: products with a handful of rows, and packing."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
STAGES = (0, 2048, 4096, 8192, 16384, 32768)  # elements of a row of A that shared memory can hold
ITEMSIZE = {"f32": 4, "f16": 2, "bf16": 2}

_FLOATS = tuple(ITEMSIZE)
_ROWS = 8  # of A, at most
_DTYPES = (
    Tunable("dtype", _FLOATS, "bf16", "element type of A and B"),
    Tunable("out", _FLOATS, "bf16", "element type of C, bias and residual"),
    Tunable("m", tuple(range(1, _ROWS + 1)), 1, "rows of A and C"),
    Tunable("vec", (1, 2, 4, 8), 8, "elements of B per load, 16 bytes at most"),
)
_CTA = (
    Tunable("warps", (2, 4, 8, 16, 32), 16, "warps per CTA"),
    Tunable("blocks", (1, 2, 3, 4, 6, 8), 1, "CTAs per SM that registers must suffice for"),
    Tunable("hint", ("none", "no_allocate", "fetch_256", "evict_first"), "no_allocate",
            "what 16-byte loads of B tell the caches"),
    Tunable("act", ACTIVATIONS, "none", "activation of the epilogue"),
)
_PARAMS = (
    Param("C", "pointer", "[M, N]"),
    Param("bias", "pointer", "[N], read if terms has bit 0"),
    Param("residual", "pointer", "[M, N], read if terms has bit 1"),
    Param("terms", "u32", "what the epilogue adds: 1 bias, 2 residual"),
    Param("N", "i64", ""), Param("K", "i32", ""),
    Param("a_row", "i64", "elements from row to row of A"),
    Param("b_row", "i64", "elements from row to row of B"),
    Param("c_row", "i64", "elements from row to row of C"),
    Param("residual_row", "i64", "elements from row to row of residual"),
    Param("alpha", "f32", "factor of the sums"),
)


def _nk_shared(tunables: Tunables) -> int:
    """x: M rows of `stage` elements."""
    return int(tunables["m"]) * int(tunables["stage"]) * ITEMSIZE[str(tunables["dtype"])]


def _kn_shared(tunables: Tunables) -> int:
    """x, and in its place later the sums of every warp."""
    m, warps, lanes, vec = (int(tunables[name]) for name in ("m", "warps", "lanes", "vec"))
    return max(_nk_shared(tunables), warps * lanes * vec * m * 4)


_TYPED: tuple[dict[str, Value], ...] = (
    {"dtype": "f32", "out": "f32", "vec": 4, "m": 2, "act": "gelu"},
    {"dtype": "f16", "out": "f16", "act": "gelu_tanh"},
    {"out": "f32", "act": "silu"},
)

GEMV_NK = KernelSpec(
    name="matmul.gemv_nk",
    source="matmul/gemv_nk.cu",
    entry="gemv_nk<{dtype}, {out}, {m}, {vec}, {rows}, {unroll}, {warps}, {split}, {blocks}, "
          "{stage}, Hint::{hint}, Act::{act}>",
    summary="A B^T for 1 to 8 rows of A and B stored [N, K]: weights at the speed of memory",
    archs=("sm_80", "sm_90", "sm_100"),
    tunables=(
        *_DTYPES,
        Tunable("rows", (1, 2, 4, 8), 1, "rows of B per warp"),
        Tunable("unroll", (1, 2, 4, 8, 16), 8, "loads in flight per thread and row of B"),
        Tunable("split", ("false", "true"), "false", "whether a CTA's warps share rows of B"),
        Tunable("stage", STAGES, 4096, "elements of a row of A in shared memory; 0: read through "
                "L1"),
        *_CTA,
    ),
    params=(Param("A", "pointer", "[M, K]"), Param("B", "pointer", "[N, K]"), *_PARAMS),
    shared_bytes=_nk_shared,
    variants=(
        *_TYPED, {"blocks": 2}, {"m": 2, "rows": 2, "unroll": 4, "blocks": 2},
        {"m": 4, "rows": 2, "unroll": 4}, {"m": 8, "rows": 2, "unroll": 4, "stage": 0},
        {"rows": 4, "unroll": 2, "split": "true", "warps": 8, "blocks": 4, "stage": 0},
        {"m": 3, "vec": 1, "rows": 2, "unroll": 16, "stage": 8192},
        {"m": 5, "rows": 4, "unroll": 1, "split": "true", "warps": 4, "blocks": 3, "stage": 0,
         "hint": "evict_first", "act": "relu"},
    ),
    requires=("unit stride along k in A and B, along n in C and residual",
              "vec divides K and the row strides of A and B; both are aligned to vec elements",
              "stage is 0 or holds K rounded up to a batch: 32 vec unroll, times warps if split",
              "K < 2^31"),
)

GEMV_KN = KernelSpec(
    name="matmul.gemv_kn",
    source="matmul/gemv_kn.cu",
    entry="gemv_kn<{dtype}, {out}, {m}, {vec}, {xvec}, {lanes}, {unroll}, {warps}, {cluster}, "
          "{blocks}, {stage}, Hint::{hint}, Act::{act}>",
    summary="A B for 1 to 8 rows of A and B stored [K, N]: weights at the speed of memory",
    archs=("sm_90", "sm_100"),
    tunables=(
        *_DTYPES,
        Tunable("xvec", (1, 2, 4, 8), 8, "elements of A per copy to shared memory"),
        Tunable("lanes", (4, 8, 16, 32), 8, "lanes side by side on a row of B"),
        Tunable("unroll", (1, 2, 4, 8, 16), 8, "rows of B, and loads in flight, per thread"),
        Tunable("cluster", (1, 2, 4, 8), 1, "CTAs that divide K"),
        Tunable("stage", STAGES[1:], 4096, "elements of a row of A in shared memory"),
        *_CTA,
    ),
    params=(Param("A", "pointer", "[M, K]"), Param("B", "pointer", "[K, N]"), *_PARAMS),
    shared_bytes=_kn_shared,
    variants=(
        *({**typed, "xvec": typed.get("vec", 8)} for typed in _TYPED), {"lanes": 4, "blocks": 2},
        {"m": 2, "blocks": 1, "cluster": 2}, {"m": 3, "lanes": 16}, {"m": 4, "lanes": 4},
        {"m": 8, "unroll": 4, "lanes": 32, "cluster": 8},
        {"m": 3, "vec": 1, "xvec": 1, "unroll": 16, "lanes": 32, "act": "relu"},
        {"m": 5, "unroll": 2, "cluster": 4, "hint": "evict_first"},
    ),
    requires=("unit stride along k in A, along n in B, C and residual",
              "vec divides N and the row stride of B, which is aligned to vec elements",
              "xvec divides the row stride of A, which is aligned to xvec elements",
              "a CTA's share of K, rounded up to 32 warps / lanes unroll, fits stage; K < 2^31"),
)

_COPY = (Param("src", "pointer", "[rows, cols], any strides"),
         Param("dst", "pointer", "[rows, pitch], without gaps, aligned to 16 bytes"))

PACK = KernelSpec(
    name="matmul.pack",
    source="matmul/pack.cu",
    entry="pack_rows<{unroll}, {index}>",
    summary="copy contiguous rows at any address to rows at multiples of 16 bytes, zero-padded",
    archs=("sm_80", "sm_90", "sm_100"),
    tunables=(
        Tunable("unroll", (1, 2, 4), 4, "16-byte chunks per thread"),
        Tunable("index", ("u32", "u64"), "u32", "type that counts the chunks"),
    ),
    params=(
        *_COPY, Param("rows", "i64", ""), Param("row_bytes", "i32", "bytes of a row of src"),
        Param("src_row", "i64", "bytes from row to row of src"),
        Param("row_chunks", "i32", "16-byte chunks in a row of dst"),
        Param("step_rows", "i32", "256 chunks: whole rows of dst"),
        Param("step_chunks", "i32", "256 chunks: what is left of them"),
    ),
    variants=({}, {"unroll": 1}, {"index": "u64"}),
    requires=("unit stride along the rows of src",
              "index=u32 counts all chunks, the last CTA's included"),
)

PACK_TILED = KernelSpec(
    name="matmul.pack_tiled",
    source="matmul/pack.cu",
    entry="pack_tiled<{dtype}, {vec}, {down}>",
    summary="copy or transpose a matrix of any strides to rows at multiples of 16 bytes",
    archs=("sm_80", "sm_90", "sm_100"),
    tunables=(
        Tunable("dtype", ("u8", "u16", "u32"), "u16", "element, by size"),
        Tunable("vec", (1, 2, 4, 8, 16), 1, "elements of src per load, 16 bytes at most"),
        Tunable("down", ("false", "true"), "true", "whether src runs fastest down its columns"),
    ),
    params=(
        *_COPY, Param("rows", "i64", ""), Param("cols", "i64", ""),
        Param("src_r", "i64", "elements from row to row of src"),
        Param("src_c", "i64", "elements from column to column of src"),
        Param("row_chunks", "i64", "16-byte chunks in a row of dst"),
    ),
    variants=({}, {"vec": 8}, {"dtype": "u32", "vec": 4}, {"dtype": "u32", "down": "false"},
              {"dtype": "u8"}, {"dtype": "u8", "vec": 16}, {"dtype": "u8", "vec": 2}),
    requires=("vec > 1: unit stride along the faster dimension of src, whose length, address and "
              "other stride vec divides",),
)

SPECS = (GEMV_NK, GEMV_KN, PACK, PACK_TILED)
