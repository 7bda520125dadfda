"""Specs of attention of a few query rows against long caches: decoding."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

FORMS = {"plain": 16, "transposed_8": 8, "transposed_16": 16}  # query rows of a CTA
WARPGROUP_ROWS = (8, 16, 32, 64)  # of the transposed kernel's
DIMS = (64, 80, 96, 128, 192, 256)
TILE = 16  # keys of a warp's step
STAGES = (1, 2, 3, 4, 6)
CLUSTERS = (1, 2, 4, 8)
CUTS = ("grid", "even")
NARROW_DIMS = (64, 96, 128, 192, 256)  # of an 8-bit cache
STEP = 64  # keys of the transposed kernel's step
_WARPS = 4  # of its CTAs
_ELEMENT = 2

_STRIDES = tuple(Param(f"{name}_{step}", "i64", "elements")
                 for name, steps in (("q", ("batch", "token", "head")),
                                     ("k", ("batch", "row", "head")),
                                     ("v", ("batch", "row", "head")),
                                     ("out", ("batch", "token", "head"))) for step in steps)
_PARAMS = (
    Param("Q", "pointer", "[sequences, tokens, heads, dim]"),
    Param("K", "pointer", "[sequences or pages, rows, KV heads, dim]"),
    Param("V", "pointer", "as K"),
    Param("O", "pointer", "as Q"),
    Param("lse", "pointer", "[sequences, heads, tokens], f32, or null"),
    Param("lengths", "pointer", "[sequences], u32, or null: `keys` of each"),
    Param("table", "pointer", "[sequences, entries], u32, page numbers, or null"),
    Param("sinks", "pointer", "[heads], f32, or null"),
    Param("slopes", "pointer", "[heads], f32, of ALiBi, or null"),
    Param("extra", "pointer", "[sequences, tokens, heads, keys or distances], or null"),
    Param("values", "pointer", "workspace of parts > 1: f32 [sequences, blocks, parts, rows, dim]"),
    Param("statistics", "pointer", "workspace: f32, half the size of values"),
    Param("arrived", "pointer", "u32 [sequences, blocks, cluster], zeros, which it leaves zeros"),
    *_STRIDES,
    Param("table_row", "i64", "entries from sequence to sequence"),
    *(Param(f"extra_{step}", "i64", "elements") for step in ("batch", "token", "head")),
    Param("extent", "i32", "distances that have a relative logit"),
    Param("shift", "i32", "log2 of the rows of a page"),
    Param("sequences", "i32", ""),
    Param("keys", "i32", "most keys of a sequence"),
    Param("tokens", "i32", "query tokens of a sequence, its last ones"),
    Param("group", "i32", "query heads of a KV head"),
    Param("heads", "i32", "query heads"),
    Param("left", "i32", "keys seen before a query's position; 2^30: all"),
    Param("right", "i32", "keys seen after it"),
    Param("chunk", "i32", "keys of a chunk, beyond which none is seen; 2^30: one chunk"),
    Param("scale", "f32", "of q.k, times log2 e"),
    Param("cap_in", "f32", "scale / softcap"),
    Param("cap", "f32", "softcap times log2 e, 0 for none"),
)


def shared_bytes(tunables: Tunables) -> int:
    """The queries, then every warp's ring of tiles, in whose place states meet at the end."""
    dim, warps, stages = (int(tunables[name]) for name in ("dim", "warps", "stages"))
    rows, pitch = FORMS[str(tunables["form"])], dim * _ELEMENT + 16
    rings = warps * 2 * stages * TILE * pitch
    board = warps * rows * ((dim + 4) * 4 + 8)
    exchange = rows * dim * 8 if int(tunables["cluster"]) > 1 else 0
    return rows * pitch + max(rings, board + exchange) + _lists(tunables, warps)


def _lists(tunables: Tunables, warps: int) -> int:
    """Entries of the page table; pieces of an even cut that are parts."""
    entries = 0 if tunables["pages"] == "none" else 4 * TILE * warps * int(tunables["stages"])
    return entries + (128 if tunables["cut"] == "even" else 0)


def narrow_bytes(tunables: Tunables) -> int:
    """As `shared_bytes`, with tiles of bytes and a factor per query row."""
    dim, warps, stages, rows = (int(tunables[name]) for name in ("dim", "warps", "stages", "rows"))
    rings = warps * 2 * stages * TILE * (dim + 16)
    board = warps * rows * ((dim + 4) * 4 + 8)
    exchange = rows * dim * 8 if int(tunables["cluster"]) > 1 else 0
    return rows * (dim * _ELEMENT + 16 + 4) + max(rings, board + exchange) + _lists(tunables, warps)


_VARIANTS: tuple[dict[str, Value], ...] = (
    {}, {"form": "plain"}, {"form": "transposed_16"}, {"dtype": "f16", "pages": "whole"},
    {"pages": "any", "cluster": 8}, {"dim": 64, "pages": "whole"}, {"dim": 80},
    {"dim": 96, "form": "plain", "cut": "even"}, {"dim": 192}, {"dim": 256},
    {"dim": 256, "form": "plain"},
    {"dim": 256, "form": "transposed_16"},
    {"warps": 8, "stages": 3}, {"extra": "bias"}, {"extra": "relative", "form": "plain"},
)

D6 = KernelSpec(
    name="attention.decode.d6",
    source="attention/decode/d6_split.cu",
    entry="d6_split<{dtype}, {dim}, form::{form}, {warps}, {stages}, {cluster}, Pages::{pages}, "
          "Extra::{extra}, Cut::{cut}, {blocks}>",
    summary="split keys: a ring of cp.async per warp, mma.sync, combined in the same launch",
    archs=("sm_90", "sm_100"),
    tunables=(
        Tunable("dtype", ("f16", "bf16"), "bf16", "element type of Q, K, V and O"),
        Tunable("dim", DIMS, 128, "head dim"),
        Tunable("form", tuple(FORMS), "transposed_8", "what is on the MMA's M; rows of a CTA"),
        Tunable("warps", (1, 2, 4, 8), 4, "warps per CTA"),
        Tunable("stages", STAGES, 2, "tiles of K and of V in a warp's ring"),
        Tunable("cluster", CLUSTERS, 1, "CTAs that combine through shared memory"),
        Tunable("pages", ("none", "whole", "any"), "none",
                "contiguous; pages of a multiple of 16 rows; pages of any power of two"),
        Tunable("extra", ("none", "bias", "relative"), "none", "a term of the caller's in scores"),
        Tunable("cut", CUTS, "grid", "every unit in as many parts; or as many "
                "steps for every gang of CTAs"),
        Tunable("blocks", (1, 2, 3, 4, 6, 8), 1, "CTAs per SM that registers must suffice for"),
    ),
    params=_PARAMS,
    shared_bytes=shared_bytes,
    variants=_VARIANTS,
    requires=(
        "dim is contiguous, all else at multiples of 16 bytes",
        "pages have a power of two of rows",
        "the grid is (KV heads x blocks of rows, parts x cluster, sequences); for cut=even it is "
        "(KV heads x blocks of rows, gangs), cluster=1, values and statistics have room for two "
        "states of each CTA, arrived for a count of each",
    ),
)


def together_bytes(tunables: Tunables) -> int:
    """Queries, weights, the ring of tiles, maxima; states of warps meet behind the ring where the
    next piece's tiles fill it already, otherwise in its place."""
    dim, rows, stages = (int(tunables[name]) for name in ("dim", "rows", "stages"))
    transposed = tunables["form"] == "transposed"
    wide = -(-dim // 64) * 64
    ring = 2 * stages * STEP * wide * _ELEMENT
    board = rows * ((dim + 4) * 4 + (_WARPS if transposed else 1) * 8)
    exchange = rows * dim * 8 if int(tunables["cluster"]) > 1 else 0
    own = rows * (wide * _ELEMENT + (128 if transposed else 0) + _WARPS * 4)
    whole = ring + board if tunables["cut"] == "even" else max(ring, board + exchange)
    return own + whole + _lists(tunables, _WARPS)


D7 = KernelSpec(
    name="attention.decode.d7",
    source="attention/decode/d7_transposed.cu",
    entry="d7_transposed<{dtype}, {dim}, form::{form}, {rows}, {stages}, {cluster}, "
          "Pages::{pages}, Extra::{extra}, Cut::{cut}, {blocks}>",
    summary="the transposed form on wgmma: keys on M, a group's query rows on N",
    archs=("sm_90a",),
    tunables=(
        *(tunable for tunable in D6.tunables if tunable.name not in ("form", "warps")),
        Tunable("form", ("transposed", "upright"), "transposed", "keys on the MMA's M, or queries"),
        Tunable("rows", WARPGROUP_ROWS, 8, "query rows of a CTA, the MMA's N; 64 upright"),
    ),
    params=_PARAMS,
    shared_bytes=together_bytes,
    variants=({"cut": "even", "stages": 3}, {"rows": 16, "dtype": "f16", "cut": "even"},
              {"rows": 32, "pages": "whole"}, {"rows": 64, "cluster": 8},
              {"dim": 64, "pages": "any", "cut": "even"}, {"dim": 256, "stages": 1}, {"dim": 80},
              {"dim": 96, "cut": "even", "pages": "whole"},
              {"extra": "bias"}, {"extra": "relative", "rows": 32},
              {"dim": 256, "stages": 3, "rows": 32}, {"form": "upright", "rows": 64}),
    requires=D6.requires,
)

_SCALES = tuple(Param(f"{name}_scales", "pointer", f"f32 factors of {name}, or null")
                for name in "qkv")
_OWN = 10  # parameters in front of the workspace
D8 = KernelSpec(
    name="attention.decode.d8",
    source="attention/decode/d8_narrow.cu",
    entry="d8_narrow<{queries}, {dtype}, {dim}, {rows}, {warps}, {stages}, {cluster}, "
          "Pages::{pages}, Extra::{extra}, Cut::{cut}, {blocks}>",
    summary="a cache of 8-bit floats, widened between shared memory and mma.sync",
    archs=("sm_90", "sm_100"),
    tunables=(
        *(tunable for tunable in D6.tunables if tunable.name not in ("dtype", "dim", "form")),
        Tunable("queries", ("f16", "bf16", "e4m3"), "bf16", "element type of Q"),
        Tunable("dtype", ("f16", "bf16"), "bf16", "element type of O"),
        Tunable("dim", NARROW_DIMS, 128, "head dim"),
        Tunable("rows", (8, 16), 8, "query rows of a CTA, the MMA's N"),
    ),
    params=(*_PARAMS[:_OWN], *_SCALES, *_PARAMS[_OWN:],
            Param("value_scale", "f32", "of V"),
            *(Param(f"{name}_scale_{step}", "i32", "from factor to factor, 0: one for all")
              for name in "qkv" for step in ("batch", "head"))),
    shared_bytes=narrow_bytes,
    variants=({"pages": "whole", "cluster": 8}, {"dim": 64, "pages": "any", "cut": "even"},
              {"rows": 16, "dtype": "f16", "queries": "e4m3", "stages": 4},
              {"dim": 256, "rows": 16, "cut": "even", "blocks": 2}),
    requires=D6.requires,
)

SPECS = (D6, D7, D8)
