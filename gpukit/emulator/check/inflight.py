"""Asynchronous operations: which of them each warp has observed to be complete.

An operation uses its bytes at any time from its issue until somebody observes its completion (by
passing the mbarrier phase that it signals, or by waiting for its group) and passes that knowledge
on. Operations are numbered per wave; sets of them are bit masks of Python ints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check.changes import distinct
from gpukit.emulator.check.clocks import Clock, Clocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpukit.emulator.check.async_ops import AsyncOp

REDUCING = ("bulk_reduce", "tma_reduce", "red_async")


@dataclass(frozen=True, slots=True)
class OpSet:
    """Operations of this wave as bits; of earlier waves, which CTAs issued them.

    ``reducing`` are those CTAs whose operations only combined values atomically.
    """

    bits: int = 0
    past: int = 0
    reducing: int = 0


class InFlight:
    """All operations of a launch, and the sets of them that shadow memory refers to by number."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.ops: list[AsyncOp] = []  # of this wave
        self._bits: dict[AsyncOp, int] = {}
        self._sets: list[OpSet] = [OpSet()]
        self._reductions = 0  # bits

    def add(self, op: AsyncOp) -> int:
        """Number a new operation; returns its bit."""
        bit = self._bits[op] = 1 << len(self.ops)
        self.ops.append(op)
        if op.kind in REDUCING:
            self._reductions |= bit
        return bit

    def bits(self, ops: Iterable[AsyncOp]) -> int:
        """The bits of some operations."""
        result = 0
        for op in ops:
            result |= self._bits[op]
        return result

    def end_wave(self) -> None:
        """From now on only the CTAs of this wave's operations matter."""
        ctas = self._issuers()
        self._sets = [self._retired(item, ctas) if item.bits else item for item in self._sets]
        self._bits.clear()
        self.ops = []
        self._reductions = 0

    def _issuers(self) -> list[tuple[int, int]]:
        """Of each CTA that issued operations in this wave its bit and theirs."""
        found: dict[int, int] = {}
        for op, bit in self._bits.items():
            number = (self._clocks.first + op.warp.lo // 32) // self._clocks.warps_per_cta
            found[number] = found.get(number, 0) | bit
        return [(1 << number, bits) for number, bits in found.items()]

    def _retired(self, item: OpSet, ctas: list[tuple[int, int]]) -> OpSet:
        past, reducing = item.past, item.reducing
        for cta, bits in ctas:
            if item.bits & bits & self._reductions:
                reducing |= cta
            if item.bits & bits & ~self._reductions:
                past |= cta
        return OpSet(0, past, reducing)

    # Sets

    def merge(self, ids: Any, bits: int) -> Any:
        """``ids`` (numbers of sets) with the operations ``bits`` added to each."""
        known = distinct(ids)
        if len(known) == 1:
            return self._with(known[0], bits)
        table = np.array([self._with(number, bits) for number in known])
        return table[np.searchsorted(known, ids)]

    def _with(self, number: int, bits: int) -> int:
        old = self._sets[number]
        self._sets.append(OpSet(old.bits | bits, old.past, old.reducing))
        return len(self._sets) - 1

    # Looking for what has not been observed

    def unobserved(self, ids: Any, clock: Clock, reads: bool, atomic: bool) -> int:
        """The number of a set that ``clock`` has not seen complete (0 if it has seen all).

        ``reads``: it is enough that the operations have read their sources. ``atomic`` accesses do
        not mind operations that combine values atomically.
        """
        numbers = (number for number in distinct(ids) if number)
        return next((n for n in numbers if self.missing(n, clock, reads, atomic)), 0)

    def missing(self, number: int, clock: Clock, reads: bool, atomic: bool) -> bool:
        """Whether ``clock`` has not seen all of a set complete."""
        item = self._sets[number]
        bits = item.bits & ~(clock.read if reads else clock.done)
        past = item.past
        if atomic:
            bits &= ~self._reductions
        else:
            past |= item.reducing
        return bool(bits or past & ~clock.past)

    def culprit(self, number: int, clock: Clock, reads: bool) -> AsyncOp | None:
        """One operation of a set that the clock has not seen; None if of an earlier wave."""
        missing = self._sets[number].bits & ~(clock.read if reads else clock.done)
        return self.ops[missing.bit_length() - 1] if missing else None
