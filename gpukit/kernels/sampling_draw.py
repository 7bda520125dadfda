"""Specs of the other ways to a token: Gumbel-max, the verification of drafts, beams."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable

_ARCHS = ("sm_90", "sm_100")
_FLOATS = ("f32", "f16", "bf16")
_DTYPE = Tunable("dtype", _FLOATS, "f32", "type of the logits")
_VEC = Tunable("vec", (1, 2, 4, 8), 4, "logits per memory access, 16 bytes at most")
_THREADS = Tunable("threads", (256, 512), 256, "threads per CTA")
_CLUSTER = Tunable("cluster", (1, 2, 4, 8), 8, "CTAs that share a row")

GUMBEL = KernelSpec(
    name="sampling.gumbel",
    source="sampling/gumbel.cu",
    entry="gumbel_argmax<{dtype}, {vec}, {threads}, {cluster}>",
    summary="a draw in one reading: the largest logit after Gumbel noise",
    archs=_ARCHS,
    tunables=(_DTYPE, _VEC, _THREADS, _CLUSTER),
    params=(Param("logits", "pointer", "[B, V]"), Param("temperature", "pointer", "[B] f32"),
            Param("seed", "pointer", "[B] u64"), Param("position", "pointer", "[B] i64"),
            Param("ids", "pointer", "[B] i64"), Param("pitch", "i64", "elements from row to row"),
            Param("V", "i32", "tokens"),
            Param("temperature0", "f32", "for all rows where the array is null, as what follows"),
            Param("seed0", "u64", ""), Param("position0", "i64", "")),
    variants=({}, {"dtype": "bf16", "vec": 8}, {"dtype": "f16", "vec": 1, "cluster": 1},
              {"threads": 512, "cluster": 2}),
    requires=("unit stride along V", "vec divides the row pitch; rows are aligned to vec elements"),
)

SPECS = (GUMBEL,)
