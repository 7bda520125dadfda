"""Specs of the attention ladder: the sources say what each rung teaches."""

from __future__ import annotations

from dataclasses import replace

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

ROW = 128  # bytes of a row of a slab: 64 columns of a head
ROWS = 64  # queries of a warpgroup
SOFTCAP, ALIBI, ADDITIVE, RELATIVE = 1, 2, 4, 8  # bits of what is done to scores
HEAD_DIMS = tuple(range(8, 257, 8))

DTYPE = Tunable("dtype", ("bf16", "f16"), "bf16", "element type of q, k, v and out")
_D = Tunable("d", HEAD_DIMS, 128, "columns of a head of q and k")
_DV = Tunable("dv", HEAD_DIMS, 128, "columns of a head of v and out")
_N = Tunable("n", tuple(range(16, 257, 16)), 128, "keys per step")
_WGS = Tunable("wgs", (1, 2, 3), 2, "consumer warpgroups, of 64 queries each")
_STAGES = Tunable("stages", (1, 2, 3, 4), 2, "blocks of keys in flight, and as many of values")
_MASK = Tunable("mask", ("full", "causal", "window"), "full",
                "what may hide keys: their end alone, what follows a query, or both sides")
_KEYS = Tunable("keys", ("dense", "spans", "paged"), "dense",
                "where keys lie: in strided arrays, in rows with lengths, in pages")
_TERMS = Tunable("terms", tuple(range(16)), 0,
                 "sum of what is done to scores: 1 softcap, 2 ALiBi, 4 additive, 8 relative")
_CTAS = Tunable("ctas", (1, 2), 1, "CTAs of a cluster, which share keys and values")

_MORE_WGS = replace(_WGS, choices=(1, 2, 3, 4))
_MORE_STAGES = replace(_STAGES, choices=(1, 2, 3, 4, 5, 8))
_TURNS = Tunable("turns", (0, 1), 1, "whether warpgroups take turns at starting products")

_RESULTS = (
    Param("out", "pointer", "[batch, queries, heads, dv] by the steps that follow"),
    Param("out_token", "i64", "elements from query to query"),
    Param("out_head", "i64", "from head to head"), Param("out_batch", "i64", "from batch to batch"),
    Param("lse", "pointer", "null, or f32 [batch, heads, queries]: ln of sums of exponentials"),
    Param("lse_token", "i64", ""), Param("lse_head", "i64", ""), Param("lse_batch", "i64", ""),
)
_SIZES = (
    Param("queries", "i32", "of each sequence, unless q_offsets says"),
    Param("keys", "i32", "of each sequence, unless k_offsets or k_lengths says"),
)
_TILES = (
    Param("m_tiles", "i32", "tiles of queries (clusters of them) of a head's longest sequence"),
    Param("heads", "i32", "heads, or groups of heads that share tiles"),
    Param("batch", "i32", "sequences"),
    Param("section", "i32", "heads that are finished before the next ones start"),
    Param("group", "i32", "heads of q that share a tile"),
    Param("share", "i32", "such groups per head of k"),
)
VISIBLE = (
    Param("scale", "f32", "of products"),
    Param("top_left", "i32", "query i stands at key i, not at i + keys - queries"),
    Param("left", "i32", "keys seen before a query's own"),
    Param("right", "i32", "keys seen after it"),
    Param("chunk", "i32", "0, or keys of a chunk"),
)
_TERM_ARRAYS = (
    Param("sinks", "pointer", "null, or f32 [heads]: a logit more in each sum"),
    Param("softcap", "f32", "s becomes softcap tanh(s / softcap)"),
    Param("slopes", "pointer", "f32: ALiBi's, by head"),
    Param("slopes_batch", "i64", "from batch to batch"),
    Param("bias", "pointer", "added to scores: [batch, heads, queries, keys] by these steps"),
    Param("bias_batch", "i64", ""), Param("bias_head", "i64", ""),
    Param("bias_query", "i64", ""), Param("bias_key", "i64", ""),
    Param("relative", "pointer", "[batch, queries, heads, extent], added by distance"),
    Param("relative_batch", "i64", ""), Param("relative_query", "i64", ""),
    Param("relative_head", "i64", ""), Param("extent", "i32", "distances that have a logit"),
)
_LENGTHS = (
    Param("q_offsets", "pointer", "null, or u32 [batch + 1] first rows of q"),
    Param("q_lengths", "pointer", "null, or u32 [batch] queries that count"),
    Param("k_offsets", "pointer", "null, or u32 [batch + 1] first rows of k"),
    Param("k_lengths", "pointer", "null, or u32 [batch] keys that count"),
    Param("table", "pointer", "u32 [batch, ...] pages"),
    Param("table_batch", "i32", "entries from sequence to sequence"),
    Param("page", "i32", "keys of a page"),
    Param("page_box", "i32", "keys that one copy moves"),
    Param("counter", "pointer", "null, or a u32 zero: tiles are taken as CTAs get free"),
)
_MAPS = (
    Param("q", "tensor_map", "[batch, heads / group, queries, group, d]"),
    Param("k", "tensor_map", "[batch, heads, keys, 1, d], or rows by two coordinates"),
    Param("v", "tensor_map", "the same of v"),
)


def _numbers(tunables: Tunables, *names: str) -> tuple[int, ...]:
    return tuple(int(tunables[name]) for name in names)


def hopper_shared(tunables: Tunables) -> int:
    """Queries, stages of keys and values, and their barriers; the next tile."""
    d, dv, n, wgs, stages = _numbers(tunables, "d", "dv", "n", "wgs", "stages")
    k_slabs, v_slabs = -(-d // 64), -(-dv // 64)
    return (wgs * k_slabs * ROWS * ROW + stages * n * ROW * (k_slabs + v_slabs)
            + 8 * (2 * wgs + 4 * stages + 4))


K5 = KernelSpec(
    name="attention.sm90.k5", source="attention/sm90/k5_pingpong.cu",
    entry="k5_pingpong<{dtype}, {d}, {dv}, {n}, {wgs}, {stages}, attention::Mask::{mask}, "
          "attention::Keys::{keys}, {terms}, {ctas}, {turns}>",
    summary="tiles run into each other, persistent CTAs, every mask: what gpukit.attention runs",
    archs=("sm_90a",),
    tunables=(DTYPE, _D, _DV, _N, _MORE_WGS, _MORE_STAGES, _MASK, _KEYS, _TERMS, _CTAS,
              _TURNS),
    params=(*_MAPS, *_RESULTS, *_SIZES, *_TILES, *VISIBLE, *_TERM_ARRAYS, *_LENGTHS),
    shared_bytes=hopper_shared,
    variants=(
        {}, {"ctas": 2}, {"n": 176}, {"mask": "causal", "turns": 0},
        {"mask": "causal", "dtype": "f16"},
        {"mask": "window", "turns": 0}, {"d": 64, "dv": 64, "wgs": 3},
        {"n": 64, "wgs": 3, "stages": 5, "mask": "window", "turns": 0},
        {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8, "mask": "window", "turns": 0},
        {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8, "mask": "causal", "turns": 0},
        {"d": 64, "dv": 64, "n": 64, "wgs": 4, "stages": 8},
        {"n": 80, "wgs": 3, "stages": 4},
        {"n": 80, "wgs": 3, "stages": 4, "mask": "causal", "turns": 0},
        {"d": 256, "dv": 256, "n": 80}, {"d": 192, "mask": "causal"},
        {"d": 80, "dv": 80, "mask": "causal"},
        {"mask": "causal", "keys": "spans"}, {"mask": "causal", "keys": "paged"},
        {"mask": "window", "keys": "spans", "terms": 15, "turns": 0},
    ),
    requires=("rows of q, k, v and out start at multiples of 16 bytes",
              "heads that share a tile divide 64"),
)

def _rung(name: str, source: str, entry: str, summary: str) -> KernelSpec:
    """A rung that knows one tile per CTA and dense arrays."""
    return KernelSpec(
        name=name, source=source, archs=("sm_90a",), summary=summary,
        entry=f"{entry}<{{dtype}}, {{d}}, {{dv}}, {{n}}, {{wgs}}, {{stages}}, "
              "attention::Mask::{mask}>",
        tunables=(DTYPE, _D, _DV, _N, _WGS, _STAGES, _MASK),
        params=(*_MAPS, *_RESULTS, *_SIZES, Param("share", "i32", "heads of q per head of k"),
                *VISIBLE),
        shared_bytes=hopper_shared,
        variants=({}, {"mask": "causal"}, {"d": 64, "dv": 64, "wgs": 3, "dtype": "f16"},
                  {"d": 256, "dv": 256, "n": 80, "mask": "window"}),
        requires=("rows of q, k, v and out start at multiples of 16 bytes",))


K3 = _rung("attention.sm90.k3", "attention/sm90/k3_warpgroups.cu", "k3_warpgroups",
           "TMA and wgmma: a warp that copies, warpgroups that compute")
K4 = _rung("attention.sm90.k4", "attention/sm90/k4_overlap.cu", "k4_overlap",
           "a block's softmax under the product of the block before")


def fa2_rows(tunables: Tunables) -> int:
    """Rows of queries of a CTA of `attention.k2`."""
    warps, repeat = _numbers(tunables, "warps", "repeat")
    return warps * 16 * repeat


def _fa2_shared(tunables: Tunables) -> int:
    """Queries, a block of keys and one of values, in rows of whole 128 bytes."""
    d, dv, n = _numbers(tunables, "d", "dv", "n")
    pitches = -(-d // 64) * ROW, -(-dv // 64) * ROW
    return fa2_rows(tunables) * pitches[0] + n * sum(pitches)


def strided(name: str) -> tuple[Param, ...]:
    """An array of any strides, and its steps."""
    return (Param(name, "pointer", "[batch, rows, heads, columns] by the steps that follow"),
            Param(f"{name}_token", "i64", "elements from row to row"),
            Param(f"{name}_head", "i64", "from head to head"),
            Param(f"{name}_batch", "i64", "from batch to batch"))


K2 = KernelSpec(
    name="attention.k2", source="attention/k2_fa2.cu",
    entry="k2_fa2<{dtype}, {d}, {dv}, {n}, {warps}, {repeat}, attention::Mask::{mask}, {terms}>",
    summary="FlashAttention-2 by mma.sync and cp.async: scores stay in registers",
    archs=("sm_80", "sm_90", "sm_100"),
    tunables=(DTYPE, _D, _DV, Tunable("n", (16, 32, 64, 128), 64, "keys per step"),
              Tunable("warps", (4, 8), 4, "warps of a CTA"),
              Tunable("repeat", (1, 2), 1, "sixteens of queries per warp"), _MASK, _TERMS),
    params=(*strided("q"), *strided("k"), *strided("v"), *_RESULTS, *_SIZES,
            Param("m_tiles", "i32", "tiles of queries per head, of the longest sequence"),
            Param("heads", "i32", "of q"), Param("batch", "i32", "sequences"),
            Param("section", "i32", "heads that are finished before the next ones start"),
            Param("share", "i32", "heads of q per head of k"),
            *VISIBLE, *_TERM_ARRAYS, *_LENGTHS[:4]),
    shared_bytes=_fa2_shared,
    variants=({}, {"mask": "causal"}, {"d": 64, "dv": 64, "dtype": "f16"},
              {"d": 256, "dv": 256, "warps": 8, "n": 16},
              {"mask": "window", "terms": 15, "d": 80, "dv": 80, "n": 32}),
    requires=("rows of q, k, v and out start at multiples of 16 bytes",),
)

MERGED = 8  # states that are merged at a time

MERGE = KernelSpec(
    name="attention.merge", source="attention/merge.cu", entry="merge<{dtype}, {vec}>",
    summary="states over disjoint keys become one", archs=("sm_80", "sm_90", "sm_100"),
    tunables=(DTYPE, Tunable("vec", (1, 8), 8, "columns of a thread")),
    params=(
        Param("out", "pointer", "[rows, columns]"),
        Param("lse", "pointer", "null, or f32 [batch, heads, tokens]"),
        *(Param(f"out{i}", "pointer", "a state's, like out") for i in range(MERGED)),
        *(Param(f"lse{i}", "pointer", "a state's, like lse") for i in range(MERGED)),
        Param("parts", "i32", "states"), Param("rows", "i64", "batch x tokens x heads"),
        Param("tokens", "i32", "of a sequence"), Param("heads", "i32", ""),
        Param("columns", "i32", "of a row, a multiple of vec")),
    variants=({}, {"dtype": "f16", "vec": 1}),
    requires=("with vec 8, rows start at multiples of 16 bytes",),
)

SPECS = (K2, K3, K4, K5, MERGE)
