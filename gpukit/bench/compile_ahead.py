"""Kernels compiled before a sweep, on all cores: one after the other they would eat its time."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gpukit.errors import GpukitError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.bench.model import Case, Family
    from gpukit.kernels.spec import KernelSpec, Tunables


@runtime_checkable
class Foresees(Protocol):
    """A family that knows, before a case is prepared, what it will compile."""

    def variants(self, case: Case, device: Any) -> Sequence[tuple[KernelSpec, Tunables]]:
        """Return the kernels and tunables of a case; a wrong guess costs time and nothing else."""


def compile_ahead(family: Family, cases: Sequence[Case], device: Any) -> int:
    """Compile what these cases need, each variant once, and return how many variants that was.

    NVRTC compiles in as many threads as there are. What does not compile is left to its case,
    which reports it.
    """
    if not isinstance(family, Foresees) or device.emulated:
        return 0
    wanted = {}
    for case in cases:
        with contextlib.suppress(GpukitError):
            for spec, tunables in family.variants(case, device):
                key = (spec.name, *sorted(tunables.items()))
                wanted[key] = (spec, tunables)

    def compile_one(variant: tuple[KernelSpec, Tunables]) -> None:
        with contextlib.suppress(GpukitError):
            device.compile(*variant)

    if wanted:
        with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
            list(pool.map(compile_one, wanted.values()))
    return len(wanted)
