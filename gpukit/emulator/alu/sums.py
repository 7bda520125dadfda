"""Float sums made by the memory system: atomics, reductions and bulk reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit.emulator.alu.formats import F32, F64, canonical, flush, keep_nan

Sum = Callable[[Any, Any], Any]


def memory_sum(dtype: Any, atomic: bool) -> Sum:
    """``sum(old, new)`` in global memory; ``atomic`` for atom and red, else for bulk copies."""
    if dtype == F64:
        return _sum64
    return _sum_flushing if dtype == F32 and atomic else shared_sum


def shared_sum(old: Any, new: Any) -> Any:
    """In shared memory a loop around compare-and-swap adds, as the add instruction does."""
    return canonical(old + new, old, new)


def _sum_flushing(old: Any, new: Any) -> Any:
    return canonical(flush(flush(old) + flush(new)))


def _sum64(old: Any, new: Any) -> Any:
    """A NaN, the new one before the old, stays as it is, even signalling."""
    result = old + new
    return keep_nan(result, result != result, old, new, quiet=False)
