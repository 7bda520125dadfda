"""Specs of the sampling ladder: five algorithms for the same job, to be read and measured."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable

_ARCHS = ("sm_80", "sm_90")
_DTYPE = Tunable("dtype", ("f32", "f16", "bf16"), "f32", "type of the logits")
_THREADS = Tunable("threads", (128, 256, 512, 1024), 1024, "threads per CTA")
_FEWER = Tunable("threads", (128, 256, 512), 256, "threads per CTA")
_SIZE = Tunable("size", (512, 1024, 2048), 2048, "pairs on the list")

_LOGITS = Param("logits", "pointer", "[B, V]")
_IDS = Param("ids", "pointer", "[B] i64: the tokens")
_LIMITS = Param("limits", "pointer", "[B] f32: the logit that all kept tokens reach; or null")
_ROW = (Param("pitch", "i64", "elements from row to row"), Param("V", "i32", "tokens"))
_TEMPERATURE = Param("temperature", "f32", "divides the logits; 1e-5 or less: the first maximum")
_TOP_K = Param("top_k", "i32", "0: off; less than V")
_TOP_P = Param("top_p", "f32", "1 or more: off")
_JOINT = Param("joint", "i32", "1: top-p of the whole row's mass, 0: of what top-k keeps")
_DRAW = (Param("seed", "u64", ""), Param("position", "i64", ""))
_FILTERS = (_TEMPERATURE, _TOP_K, _TOP_P, _JOINT, *_DRAW)

S1 = KernelSpec(
    name="sampling.s1",
    source="sampling/ladder/s1_sort.cu",
    entry="s1<{dtype}, {threads}>",
    summary="a token per row from the row sorted by radix: least significant digit first",
    archs=_ARCHS,
    tunables=(_DTYPE, Tunable("threads", (128, 256, 512), 512, "threads per CTA")),
    params=(_LOGITS, _IDS, _LIMITS,
            Param("workspace", "pointer", "u64 [grid, 2, V]"), *_ROW,
            Param("rows", "i32", "B, of which a CTA takes every n-th"), *_FILTERS),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128}),
    requires=("unit stride along V",),
)

S2_LISTS = KernelSpec(
    name="sampling.s2_lists",
    source="sampling/ladder/s2_lists.cu",
    entry="s2_lists<{dtype}, {threads}, {size}>",
    summary="the k largest logits of every part of every row, with their tokens",
    archs=_ARCHS,
    tunables=(_DTYPE, _FEWER, _SIZE),
    params=(_LOGITS, Param("workspace", "pointer", "u64 [B, parts, keep], written"), *_ROW,
            Param("keep", "i32", "k + 1, at most size / 2")),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128, "size": 512}),
    requires=("unit stride along V", "the grid is parts, B", "threads is at most size / 2"),
)

S2 = KernelSpec(
    name="sampling.s2",
    source="sampling/ladder/s2_lists.cu",
    entry="s2<{dtype}, {threads}, {size}>",
    summary="a token per row from the lists of its parts: merged, filtered, drawn",
    archs=_ARCHS,
    tunables=(_DTYPE, _FEWER, _SIZE),
    params=(_LOGITS, _IDS, _LIMITS, Param("workspace", "pointer", "u64 [B, parts, keep]"), *_ROW,
            Param("parts", "i32", "lists per row"), Param("keep", "i32", "k + 1"), _TEMPERATURE,
            _TOP_P, *_DRAW),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128, "size": 512}),
    requires=("unit stride along V", "keep is at most size / 2", "threads is at most size / 2"),
)

S3 = KernelSpec(
    name="sampling.s3",
    source="sampling/ladder/s3_pivots.cu",
    entry="s3<{dtype}, {threads}, {pivots}>",
    summary="a token per row, thresholds by bisection with several pivots per reading",
    archs=_ARCHS,
    tunables=(_DTYPE, _THREADS, Tunable("pivots", (1, 3, 7), 3, "keys measured per reading")),
    params=(_LOGITS, _IDS, _LIMITS, *_ROW, *_FILTERS),
    variants=({}, {"dtype": "bf16", "pivots": 1}, {"dtype": "f16", "threads": 128, "pivots": 7}),
    requires=("unit stride along V",),
)

S4 = KernelSpec(
    name="sampling.s4",
    source="sampling/ladder/s4_rejection.cu",
    entry="s4<{dtype}, {threads}>",
    summary="a token per row by rejection with two pivots, top-k and top-p joint",
    archs=_ARCHS,
    tunables=(_DTYPE, _THREADS),
    params=(_LOGITS, _IDS, *_ROW, _TEMPERATURE, _TOP_K, _TOP_P, *_DRAW),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128}),
    requires=("unit stride along V",),
)

S5 = KernelSpec(
    name="sampling.s5",
    source="sampling/ladder/s5_radix.cu",
    entry="s5<{dtype}, {threads}>",
    summary="a token per row, thresholds by radix select: a histogram per digit",
    archs=_ARCHS,
    tunables=(_DTYPE, _THREADS),
    params=(_LOGITS, _IDS, _LIMITS, *_ROW, *_FILTERS),
    variants=({}, {"dtype": "bf16"}, {"dtype": "f16", "threads": 128}),
    requires=("unit stride along V",),
)

SPECS = (S1, S2_LISTS, S2, S3, S4, S5)
