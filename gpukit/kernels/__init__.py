"""The kernel registry: every kernel gpukit ships, by name."""

from __future__ import annotations

from functools import cache

from gpukit.errors import UnknownKernelError
from gpukit.kernels import elementwise, matmul, timing
from gpukit.kernels.spec import KernelSpec, Param, Tunable

__all__ = ["KernelSpec", "Param", "Tunable", "get", "names", "registry"]


@cache
def registry() -> dict[str, KernelSpec]:
    """All specs by name, in the order of their ladders."""
    return {spec.name: spec for spec in (*elementwise.SPECS, *matmul.SPECS, *timing.SPECS)}


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
