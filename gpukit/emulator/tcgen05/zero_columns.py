"""Zero-column masks of ``tcgen05.mma.ws``: columns of B that count as zero, and a shift of B.

The names of the spans follow the examples of the PTX ISA: columns of a *skip* span are zero. (Its
table of fields has it the other way round.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.errors import KernelFault

_FIELDS = ((39, 1), (40, 8), (48, 8), (56, 6))  # non-zero mask, skip span, use span, column shift
_KNOWN = 0x3FFFFF8FFFFFFFFF


class ZeroColumnsError(KernelFault):
    """A zero-column mask descriptor that means nothing, or not what its instruction can do."""


@dataclass(frozen=True, eq=False, slots=True)
class ZeroColumns:
    """``shift`` is the column of B that the first column of D takes.

    ``zero`` is a bool per column of D, None if no mask is wanted.
    """

    zero: Any
    shift: int


NO_ZEROS = ZeroColumns(None, 0)


@lru_cache(maxsize=256)
def decode(raw: int, m: int, n: int, max_shift: int) -> ZeroColumns:
    """Take the word apart; one sub-mask per 128 / M columns. Raises ``ZeroColumnsError``."""
    if raw & ~_KNOWN:
        raise _refuse(raw, f"reserved bits 0x{raw & ~_KNOWN:x} are set")
    wanted, skip, use, shift = (raw >> at & (1 << size) - 1 for at, size in _FIELDS)
    limit = 16 if m == 32 else 32
    if shift > limit:
        raise _refuse(raw, f"column shift {shift}; accepted with M = {m}: 0 to {limit}")
    if shift > max_shift:
        raise _refuse(
            raw, f"column shift {shift}, but the instruction descriptor allows up to {max_shift}"
        )
    parts = 128 // m
    masks = [
        _mask(n // parts, raw >> 8 * i & 255, raw >> 32 + i & 1, skip + 1, use + 1)
        for i in range(parts)
    ]
    return ZeroColumns(np.concatenate(masks) if wanted else None, shift)


def _mask(size: int, start: int, first: int, skip: int, use: int) -> Any:
    """Spans of both kinds in turn, from column ``start`` of the pattern on; 1: begins with skip."""
    at = (start + np.arange(size)) % (skip + use)
    return at < skip if first else at >= use


def _refuse(raw: int, why: str) -> ZeroColumnsError:
    return ZeroColumnsError(f"zero-column mask descriptor 0x{raw:016x}: {why}")
