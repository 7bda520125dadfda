"""Specs of the Ampere matmul ladder: mma.sync, every GPU since sm_80."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

_ARCHS = ("sm_80", "sm_90", "sm_100")
_FLOATS = ("f32", "f16", "bf16")
_OPERANDS = ("f16", "bf16")
_ALIGNMENTS = (16, 8, 4, 2)
_ELEMENT = 2  # bytes of A's and B's

_DTYPE = Tunable("dtype", _OPERANDS, "bf16", "element type of A and B")
_OUT = Tunable("out", _FLOATS, "bf16", "element type of C")
_TILE = (
    Tunable("bm", (64, 128, 256), 128, "rows of C per CTA"),
    Tunable("bn", (64, 128, 256), 128, "columns of C per CTA"),
    Tunable("bk", (32, 64), 32, "step along k"),
    Tunable("wm", (32, 64), 64, "rows of C per warp"),
    Tunable("wn", (32, 64), 64, "columns of C per warp"),
)
_LAYOUT = (
    Tunable("a", ("k", "mn"), "k", "contiguous dimension of A: k, or m"),
    Tunable("b", ("k", "mn"), "k", "contiguous dimension of B: k, or n"),
    Tunable("align_a", _ALIGNMENTS, 16, "bytes that divide A's base, row stride and row length"),
    Tunable("align_b", _ALIGNMENTS, 16, "bytes that divide B's base, row stride and row length"),
)
_ALIGN_C = Tunable("align_c", _ALIGNMENTS, 16, "bytes that divide C's base and row length; "
                   "at least one element")
_RING = (
    Tunable("stages", (2, 3, 4, 5), 3, "tiles of A and B in shared memory"),
    Tunable("group", (1, 4, 8, 16), 8, "tile rows that are walked together"),
)
_MATRICES = (
    Param("A", "pointer", "[M, K], or stored as [K, M]"),
    Param("B", "pointer", "[N, K], or stored as [K, N]"),
)
_SIZES = (
    Param("M", "i64", ""), Param("N", "i64", ""), Param("K", "i64", ""),
    Param("a_stride", "i64", "elements between stored rows of A"),
    Param("b_stride", "i64", "elements between stored rows of B"),
)
_REQUIRES = (
    "A and B each have a unit stride along one dimension",
    "bm and bn are multiples of wm and wn; at most 1024 threads, 32 per wm x wn of C",
    "C is row-major without gaps",
)
_SHAPE = "Shape<{bm}, {bn}, {bk}, {wm}, {wn}>"
_ENDS = "Major::{a}, Major::{b}, {align_a}, {align_b}"

# One variant per layout and alignment, and the output types of either input type.
_LAYOUTS: tuple[dict[str, Value], ...] = (
    {"dtype": "f16", "out": "f16", "b": "mn"},
    {"dtype": "f16", "out": "f32", "a": "mn", "align_a": 8, "align_b": 8},
    {"a": "mn", "b": "mn", "align_a": 4, "align_b": 4, "align_c": 4},
    {"align_a": 2, "align_b": 2, "align_c": 2},
)
_LARGE: dict[str, Value] = {"bn": 256, "bk": 64}
_SMALL: dict[str, Value] = {"bm": 64, "bn": 64, "bk": 64, "wm": 32, "wn": 32}
_WIDE: dict[str, Value] = {"bm": 64, "bk": 64, "wm": 32, "stages": 4}


def _operands(layout: dict[str, Value]) -> dict[str, Value]:
    """What a layout says of A and B, without C."""
    return {name: value for name, value in layout.items() if name not in ("out", "align_c")}


def threads(tunables: Tunables) -> int:
    """Threads per CTA: a warp for every wm x wn part of its bm x bn tile."""
    bm, bn, wm, wn = (int(tunables[name]) for name in ("bm", "bn", "wm", "wn"))
    return bm // wm * (bn // wn) * 32


def _stage_bytes(tunables: Tunables) -> int:
    bm, bn, bk = (int(tunables[name]) for name in ("bm", "bn", "bk"))
    return (bm + bn) * bk * _ELEMENT


def _ring_bytes(tunables: Tunables) -> int:
    """The ring, which the output passes through afterwards: 16 rows per warp."""
    out = 2 if tunables.get("out", "f32") != "f32" else 4
    staging = threads(tunables) // 32 * 16 * int(tunables["wn"]) * out
    return max(int(tunables["stages"]) * _stage_bytes(tunables), staging)


A1 = KernelSpec(
    name="matmul.sm80.a1",
    source="matmul/sm80/a1_shared.cu",
    entry=f"a1_shared<{{dtype}}, {{out}}, {_SHAPE}, {_ENDS}, {{align_c}}>",
    summary="mma.sync on shared-memory tiles, two barriers per step",
    archs=_ARCHS,
    tunables=(_DTYPE, _OUT, *_TILE, *_LAYOUT, _ALIGN_C),
    params=(*_MATRICES, Param("C", "pointer", "[M, N], row-major"), *_SIZES),
    shared_bytes=_stage_bytes,
    variants=({}, *_LAYOUTS, _SMALL),
    requires=_REQUIRES,
)

A2 = KernelSpec(
    name="matmul.sm80.a2",
    source="matmul/sm80/a2_pipelined.cu",
    entry=f"a2_pipelined<{{dtype}}, {{out}}, {_SHAPE}, {{stages}}, {_ENDS}, {{align_c}}, "
          "{group}>",
    summary="cp.async ring and register pipeline, swizzled shared memory",
    archs=_ARCHS,
    tunables=(_DTYPE, _OUT, *_TILE, *_RING, *_LAYOUT, _ALIGN_C),
    params=A1.params,
    shared_bytes=_ring_bytes,
    variants=({}, *_LAYOUTS, _SMALL, _LARGE, *(_LARGE | layout for layout in _LAYOUTS),
              {"stages": 2}, {"stages": 5}),
    requires=_REQUIRES,
)

A3 = KernelSpec(
    name="matmul.sm80.a3",
    source="matmul/sm80/a3_split_k.cu",
    entry=f"a3_split_k<{{dtype}}, {_SHAPE}, {{stages}}, {_ENDS}, {{align_w}}, {{group}}>",
    summary="split-K: partial sums of slices of K, for results of few tiles",
    archs=_ARCHS,
    tunables=(_DTYPE, *_TILE, *_RING, *_LAYOUT,
              Tunable("align_w", (16, 8, 4), 16, "bytes that divide a row of W")),
    params=(*_MATRICES, Param("W", "pointer", "[slices, M, N], f32"), *_SIZES,
            Param("slice", "i64", "k per slice, a multiple of bk")),
    shared_bytes=_ring_bytes,
    variants=({}, _WIDE, *(_WIDE | _operands(layout) for layout in _LAYOUTS), {"align_w": 4}),
    requires=(*_REQUIRES, "the grid is (tiles, slices)"),
)

A3_REDUCE = KernelSpec(
    name="matmul.sm80.a3_reduce",
    source="matmul/sm80/a3_split_k.cu",
    entry="a3_reduce<{out}, {vec}>",
    summary="split-K: adds the slices up, in order",
    archs=_ARCHS,
    tunables=(_OUT, Tunable("vec", (1, 2, 4), 4, "elements per thread")),
    params=(Param("W", "pointer", "[slices, M, N], f32"), Param("C", "pointer", "[M, N]"),
            Param("size", "i64", "M N, a multiple of vec"), Param("slices", "i32", "")),
    variants=tuple({"out": out, "vec": vec} for out in _FLOATS for vec in (1, 4)),
    requires=("W and C are aligned to vec elements",),
)

SPECS = (A1, A2, A3, A3_REDUCE)
