"""Specs of the matmul family."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable

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

SPECS = (K1,)
