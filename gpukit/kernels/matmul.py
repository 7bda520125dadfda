"""Specs of the matmul family."""

from __future__ import annotations

from gpukit.kernels.matmul_helpers import ACTIVATIONS
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

_TYPES = ("f32", "f16", "bf16")

K1 = KernelSpec(
    name="matmul.k1",
    source="matmul/k1_naive.cu",
    entry="k1_naive<{dtype}, {out}, {tile}>",
    summary="naive: one thread per output element, f32 accumulation, any shape and strides",
    archs=("sm_75", "sm_80", "sm_90", "sm_100"),
    tunables=(
        Tunable("dtype", _TYPES, "bf16", "element type of A and B"),
        Tunable("out", _TYPES, "bf16", "element type of C"),
        Tunable("tile", (8, 16, 32), 32, "rows and columns of C per CTA"),
    ),
    params=(
        Param("A", "pointer", "[M, K]"), Param("B", "pointer", "[K, N]"),
        Param("C", "pointer", "[M, N], row-major"),
        Param("M", "i64", ""), Param("N", "i64", ""), Param("K", "i64", ""),
        Param("a_m", "i64", "stride of A along m, in elements"),
        Param("a_k", "i64", "stride of A along k"),
        Param("b_k", "i64", "stride of B along k"),
        Param("b_n", "i64", "stride of B along n"),
    ),
    variants=tuple({"dtype": d, "out": o} for d in _TYPES for o in dict.fromkeys((d, "f32"))),
)

SGEMM_BK = 16  # of K per tile
_COPIES = ("k", "mn", "chunks")


def _sgemm_shared(tunables: Tunables) -> int:
    """The ring."""
    bm, bn, stages = (int(tunables[name]) for name in ("bm", "bn", "stages"))
    return stages * (bm + 4 + bn + 4) * SGEMM_BK * 4


def sgemm_threads(bm: int, bn: int) -> int:
    """8 x 8 sums each."""
    return bm * bn // 64


_COPIED: list[dict[str, Value]] = [
    {"a_copy": a, "b_copy": b} for a in _COPIES for b in _COPIES]
_TILED: list[dict[str, Value]] = [
    {"bm": bm, "bn": bn, "a_copy": copy, "b_copy": copy}
    for bm, bn in ((32, 128), (64, 64), (64, 128), (128, 64)) for copy in _COPIES]
_FINISHED: list[dict[str, Value]] = [
    {"act": act, "extras": "true", "out": out}
    for act, out in zip(ACTIVATIONS, ("f32", "f16", "bf16", "f32", "f32"), strict=True)]

SGEMM = KernelSpec(
    name="matmul.sgemm",
    source="matmul/simt/sgemm.cu",
    entry="sgemm<{out}, {bm}, {bn}, {stages}, Copy::{a_copy}, Copy::{b_copy}, Act::{act}, "
          "{extras}>",
    summary="f32 without tensor cores: exact products, 8 x 8 sums a thread; fused epilogue",
    archs=("sm_80", "sm_90", "sm_100"),
    tunables=(
        Tunable("out", _TYPES, "f32", "element type of C, bias and residual"),
        Tunable("bm", (32, 64, 128), 128, "rows of C per CTA"),
        Tunable("bn", (64, 128), 128, "columns of C per CTA"),
        Tunable("stages", (2, 3, 4), 3, "tiles of A and B in flight"),
        *(Tunable(f"{x}_copy", _COPIES, "k", f"what neighbouring threads copy of {x.upper()}: "
                  f"elements along k, along {other}, or 16 bytes along {other}")
          for x, other in (("a", "m"), ("b", "n"))),
        Tunable("act", ACTIVATIONS, "none", "activation of the epilogue"),
        Tunable("extras", ("false", "true"), "false",
                "whether there is a bias, a residual or scales"),
    ),
    params=(
        Param("A", "pointer", "[batch, M, K]"), Param("B", "pointer", "[batch, K, N]"),
        Param("C", "pointer", "[batch, M, N]"),
        Param("M", "i32", ""), Param("N", "i32", ""), Param("K", "i32", ""),
        Param("slice", "i32", "of K, that a CTA sums up"),
        Param("a_m", "i64", "stride of A along m, in elements"),
        Param("a_k", "i64", "along k"), Param("a_batch", "i64", "from matrix to matrix"),
        Param("b_n", "i64", "stride of B along n"), Param("b_k", "i64", "along k"),
        Param("b_batch", "i64", "from matrix to matrix"),
        Param("c_row", "i64", "elements from row to row of C"),
        Param("c_batch", "i64", "from matrix to matrix"),
        Param("c_slice", "i64", "from slice to slice"),
        Param("alpha", "f32", "factor of the sums"),
        Param("bias", "pointer", "null, or [N]"), Param("residual", "pointer", "null, or like C"),
        Param("residual_row", "i64", "elements from row to row of residual"),
        Param("residual_batch", "i64", "from matrix to matrix"),
        Param("scale_m", "pointer", "null, or f32 factors of the rows"),
        Param("scale_n", "pointer", "null, or f32 factors of the columns"),
        Param("scale_m_step", "i32", "0: one factor for all"),
        Param("scale_n_step", "i32", "0: one factor for all"),
    ),
    shared_bytes=_sgemm_shared,
    variants=(*_COPIED, *_TILED, *_FINISHED, {"stages": 2},
              {"stages": 4, "bm": 64, "bn": 64, "a_copy": "mn"}),
    requires=("chunks: unit stride along m / n, base and other strides at multiples of 16 bytes",
              "N fastest in C and residual", "K is positive", "bm bn is 4096 or more",
              "slice is K, or a multiple of 16 and C a workspace of each slice's sums"),
)

SPECS = (K1, SGEMM)
