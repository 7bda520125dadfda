"""Specs of kernels that exist to test the timer."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param

SPIN = KernelSpec(
    name="timing.spin",
    source="timing/spin.cu",
    entry="spin",
    summary="holds every CTA for a given number of clock cycles",
    archs=("sm_75", "sm_80", "sm_90", "sm_100"),
    tunables=(),
    params=(
        Param("cycles", "i64", "SM clock cycles to hold"),
        Param("spent", "pointer", "i64 per CTA: cycles really spent"),
    ),
    requires=("one wave of CTAs",),
)

WHERE = KernelSpec(
    name="timing.where",
    source="timing/where.cu",
    entry="where",
    summary="tells which SM each CTA is on",
    archs=SPIN.archs,
    tunables=(),
    params=(
        Param("cycles", "i64", "SM clock cycles to hold each CTA"),
        Param("sm", "pointer", "u32 per CTA: the SM it ran on"),
    ),
    requires=("one wave of CTAs",),
)

SPECS = (SPIN, WHERE)
