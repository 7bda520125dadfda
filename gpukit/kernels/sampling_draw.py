"""Specs of the other ways to a token: Gumbel-max, the verification of drafts, beams."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

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

VERIFY = KernelSpec(
    name="sampling.verify",
    source="sampling/verify.cu",
    entry="verify<{index}, {threads}, {cluster}>",
    summary="accepts a chain of drafted tokens and draws the one that follows",
    archs=_ARCHS,
    tunables=(Tunable("index", ("i32", "i64"), "i32", "type of the drafts"), _THREADS, _CLUSTER),
    params=(Param("drafts", "pointer", "[B, n]"),
            Param("lengths", "pointer", "[B] i32: drafts of each row; or null: n"),
            Param("draft", "pointer", "[B, n, V] f32: drawn from this; or null: certain"),
            Param("target", "pointer", "[B, n + 1, V] f32"), Param("seed", "pointer", "[B] u64"),
            Param("position", "pointer", "[B] i64"),
            Param("tokens", "pointer", "[B, n + 1] i64, -1 pads"),
            Param("accepted", "pointer", "[B] i32, or null"), Param("most", "i32", "n"),
            Param("V", "i32", "tokens"), Param("seed0", "u64", ""), Param("position0", "i64", "")),
    variants=({}, {"index": "i64", "cluster": 1}, {"threads": 512, "cluster": 4}),
    requires=("n is at most threads", "V is at most 2^23"),
)


def _beam_bytes(t: Tunables) -> int:
    return 4 * int(t["scores"])


BEAM = KernelSpec(
    name="sampling.beam",
    source="sampling/beam.cu",
    entry="beam<{threads}, {scores}>",
    summary="the best continuations of all beams of a batch entry",
    archs=_ARCHS,
    tunables=(_THREADS, Tunable("scores", (1024, 8192, 32768), 1024, "beams * width, at most")),
    params=(Param("values", "pointer", "[B, beams, width] f32"),
            Param("tokens", "pointer", "[B, beams, width] i32"),
            Param("log_sum", "pointer", "[B, beams] f32"),
            Param("scores", "pointer", "[B, beams] f32"),
            Param("next_beam", "pointer", "[B, best] i32"),
            Param("next_token", "pointer", "[B, best] i32"),
            Param("next_score", "pointer", "[B, best] f32"), Param("beams", "i32", ""),
            Param("width", "i32", ""), Param("best", "i32", "")),
    shared_bytes=_beam_bytes,
    variants=({},),
)

DRAWS = (GUMBEL, VERIFY, BEAM)
