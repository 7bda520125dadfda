"""All cases by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from . import (
    alu,
    barrier_cases,
    control_cases,
    convert_forms,
    copy_cases,
    float_forms,
    integer_forms,
    memory_cases,
    mma_cases,
    tma_cases,
    warp_forms,
    wgmma_cases,
)
from .alu import Form
from .model import ApiCase, Case

Cases: TypeAlias = "Callable[[], Iterable[Case | ApiCase]]"


def _forms(family: Callable[[], Iterator[Form]]) -> Cases:
    return lambda: map(alu.case, family())


def _registry() -> Iterable[ApiCase]:
    from . import registry_cases  # needs gpukit; the recorder's other groups need NumPy alone

    return registry_cases.cases()


def _matmul() -> Iterable[ApiCase]:
    from . import matmul_cases

    return matmul_cases.cases()


GROUPS: dict[str, Cases] = {
    "alu_integer": _forms(integer_forms.arithmetic),
    "alu_carry": _forms(integer_forms.carries),
    "alu_logic": _forms(integer_forms.logic),
    "alu_select": _forms(integer_forms.selection),
    "alu_compare": _forms(integer_forms.comparisons),
    "float_arithmetic": _forms(float_forms.arithmetic),
    "float_extremes": _forms(float_forms.extremes),
    "float_division": _forms(float_forms.divisions),
    "float_approximate": _forms(float_forms.approximations),
    "float_compare": _forms(float_forms.comparisons),
    "convert_integers": _forms(convert_forms.integers),
    "convert_to_integers": _forms(convert_forms.to_integers),
    "convert_floats": _forms(convert_forms.floats),
    "convert_narrow": _forms(convert_forms.narrow),
    "warp": _forms(warp_forms.forms),
    "control": control_cases.cases,
    "memory": memory_cases.cases,
    "mma": mma_cases.cases,
    "wgmma": wgmma_cases.cases,
    "mbarrier": barrier_cases.cases,
    "copies": copy_cases.cases,
    "tma": tma_cases.cases,
    "tma_multicast": tma_cases.multicasts,
    "tma_unusual": tma_cases.unusual,
    "registry": _registry,
    "matmul": _matmul,
}
