"""Specs of what happens to logits before, and to counts after a token is drawn."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable

_ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100")
_DTYPE = Tunable("dtype", ("f32", "f16", "bf16"), "f32", "type of the logits")
_THREADS = Tunable("threads", (128, 256, 512), 256, "threads per CTA")
_PITCH = Param("pitch", "i64", "elements from row to row")
_V = Param("V", "i32", "tokens")

BITMASK = KernelSpec(
    name="sampling.bitmask",
    source="sampling/bitmask.cu",
    entry="apply_bitmask<{dtype}, {threads}>",
    summary="logits of forbidden tokens become a constant, in place",
    archs=_ARCHS,
    tunables=(_DTYPE, _THREADS),
    params=(Param("logits", "pointer", "[B, V], changed"),
            Param("mask", "pointer", "[n, >= V/32] u32, 1: allowed"),
            Param("rows", "pointer", "[n] i32: the row of each mask, or null: its own"), _PITCH,
            Param("mask_pitch", "i64", "words from row to row of the mask"), _V,
            Param("B", "i32", "rows"), Param("fill", "f32", "what forbidden logits become")),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128}),
)

PENALTIES = KernelSpec(
    name="sampling.penalties",
    source="sampling/penalize.cu",
    entry="apply_penalties<{dtype}, {threads}>",
    summary="frequency, presence and repetition penalties from CSR counts, in place",
    archs=_ARCHS,
    tunables=(_DTYPE, _THREADS),
    params=(Param("logits", "pointer", "[B, V], changed"),
            Param("offsets", "pointer", "[B + 1] i32: each row's entries of the CSR list"),
            Param("tokens", "pointer", "i32 tokens of the list, -1 is skipped"),
            Param("counts", "pointer", "i32 occurrences in the output, 0: in the prompt only"),
            Param("frequency", "pointer", "[B] f32"), Param("presence", "pointer", "[B] f32"),
            Param("repetition", "pointer", "[B] f32"), _PITCH, _V,
            Param("frequency0", "f32", "for all rows where the array is null"),
            Param("presence0", "f32", ""), Param("repetition0", "f32", "")),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128}),
)

COUNT = KernelSpec(
    name="sampling.count",
    source="sampling/count.cu",
    entry="update_counts<{threads}>",
    summary="counts each row's new token in its CSR list",
    archs=_ARCHS,
    tunables=(_THREADS,),
    params=(Param("offsets", "pointer", "[B + 1] i32"),
            Param("tokens", "pointer", "i32, changed; -1: a free slot"),
            Param("counts", "pointer", "i32, changed"),
            Param("drawn", "pointer", "[B] i64, negative: none"),
            Param("full", "pointer", "[B] u8: 1 where there was no slot; or null"),
            Param("rows", "i32", "B")),
    variants=({},),
)

SCATTER = KernelSpec(
    name="sampling.scatter",
    source="sampling/scatter.cu",
    entry="scatter<{dtype}, {index}, {threads}>",
    summary="values to (row, column) pairs of a matrix, pairs outside skipped",
    archs=_ARCHS,
    tunables=(_DTYPE, Tunable("index", ("i32", "i64"), "i32", "type of the indices"), _THREADS),
    params=(Param("matrix", "pointer", "[rows, columns], changed"),
            Param("indices", "pointer", "[n, 2]"),
            Param("values", "pointer", "[n] of the matrix's type, or null: `value` everywhere"),
            _PITCH, Param("rows", "i64", ""), Param("columns", "i64", ""),
            Param("n", "i64", "pairs"), Param("value", "f32", "")),
    variants=({}, {"dtype": "bf16", "index": "i64"}, {"dtype": "f16"}),
)

EDITS = (BITMASK, PENALTIES, COUNT, SCATTER)
