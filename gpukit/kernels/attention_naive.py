"""Specs of the ladder's first rung: three launches with all scores in memory between them."""

from __future__ import annotations

from gpukit.kernels.attention import DTYPE, VISIBLE, strided
from gpukit.kernels.spec import KernelSpec, Param, Tunable

_SOURCE = "attention/k1_naive.cu"
_ARCHS = ("sm_80", "sm_90", "sm_100")
_SCORES = Param("scores", "pointer", "f32 [batch, heads, queries, keys]")
_SIZES = (Param("queries", "i32", ""), Param("keys", "i32", ""), Param("heads", "i32", "of q"))
_SHARE = Param("share", "i32", "heads of q per head of k")


def _spec(name: str, summary: str, params: tuple[Param, ...],
          tunables: tuple[Tunable, ...] = (DTYPE,)) -> KernelSpec:
    entry = f"k1_{name}" + ("<{dtype}>" if tunables else "")
    return KernelSpec(name=f"attention.k1_{name}", source=_SOURCE, entry=entry, summary=summary,
                      archs=_ARCHS, tunables=tunables, params=params)


SCORES = _spec("scores", "naive: a thread per query and key", (
    *strided("q"), *strided("k"), _SCORES, *_SIZES, _SHARE, Param("columns", "i32", "of q and k"),
    *VISIBLE))
SOFTMAX = _spec("softmax", "naive: scores become weights, a warp per query", (
    _SCORES, Param("lse", "pointer", "null, or f32 [batch, heads, queries]"),
    Param("lse_token", "i64", "elements from query to query"),
    Param("lse_head", "i64", "from head to head"), Param("lse_batch", "i64", ""), *_SIZES), ())
VALUES = _spec("values", "naive: a thread per query and column", (
    _SCORES, *strided("v"), *strided("out"), *_SIZES, _SHARE,
    Param("columns", "i32", "of v and out")))

SPECS = (SCORES, SOFTMAX, VALUES)
