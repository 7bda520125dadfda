"""The kernel registry: every kernel gpukit ships, by name."""

from __future__ import annotations

from functools import cache

from gpukit.errors import UnknownKernelError
from gpukit.kernels import (
    attention,
    attention_decode,
    attention_fp8,
    attention_naive,
    attention_sm100,
    ceilings,
    elementwise,
    matmul,
    matmul_helpers,
    matmul_library,
    matmul_sm80,
    matmul_sm90,
    matmul_sm100,
    matmul_sm100_library,
    sampling,
    sampling_ladder,
    timing,
    wgmma_demo,
)
from gpukit.kernels.spec import KernelSpec, Param, Tunable

__all__ = ["KernelSpec", "Param", "Tunable", "get", "names", "registry"]


@cache
def registry() -> dict[str, KernelSpec]:
    """All specs by name, in the order of their ladders."""
    families = (elementwise, matmul, matmul_sm80, matmul_sm90, matmul_library, matmul_sm100,
                matmul_sm100_library, matmul_helpers, attention_naive, attention, attention_sm100,
                attention_fp8, attention_decode, sampling, sampling_ladder, wgmma_demo, ceilings,
                timing)
    return {spec.name: spec for family in families for spec in family.SPECS}


def names() -> tuple[str, ...]:
    """The names of all kernels."""
    return tuple(registry())


def get(name: str) -> KernelSpec:
    """The spec called `name`.

    Raises:
        UnknownKernelError: lists the known names.
    """
    try:
        return registry()[name]
    except KeyError:
        raise UnknownKernelError(name, registry()) from None
