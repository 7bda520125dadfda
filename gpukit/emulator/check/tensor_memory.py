"""Checks of tcgen05 operations against each other in Tensor Memory.

An operation uses its cells until it is *complete for* who comes next: ``tcgen05.wait`` completes
the warp's own ld or st, passing an mbarrier phase that a ``tcgen05.commit`` signalled completes
what the commit tracked, and both travel on with any synchronisation. An operation of another
thread, or one that a commit completed, counts from the next ``fence::after_thread_sync`` on.

Some pairs are *pipelined*: the second runs behind the first without that. In one thread that
needs nothing, between threads a ``tcgen05.fence::before_thread_sync`` behind the first,
synchronisation, and a ``fence::after_thread_sync``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import MOMENT, Clock, Clocks
from gpukit.emulator.check.tensor_uses import (
    MANY,
    OWN,
    Knowledge,
    Use,
    lane_of,
    pipelined,
    relaxed,
    shown,
)
from gpukit.emulator.errors import (
    AsyncHazardError,
    DataRaceError,
    MissingTensorFenceError,
    TensorMemoryError,
)

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp, Cells
    from gpukit.emulator.tcgen05.tmem import Allocated
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave


class TensorMemory:
    """Judges tcgen05 operations when they are issued."""

    def __init__(self, wave: Wave, clocks: Clocks) -> None:
        self._wave = wave
        self._clocks = clocks
        self._relaxes = any(relaxed(instr) for instr in wave.program.instrs)
        self.restart()

    def restart(self) -> None:
        """New CTAs take over."""
        self._uses: dict[int, list[Use]] = {}  # by CTA slot
        self._known = [Knowledge() for _ in range(self._clocks.warps)]
        self._allocated: dict[Allocated, tuple[int, int]] = {}  # by whom, stamp
        self._issued: dict[tuple[Warp, int], int] = {}  # by thread: bits, for its commits
        self._commits: dict[tuple[Warp, int, int], int] = {}  # ... and CTA signalled

    # Operations

    def issued(self, op: AsyncOp, bit: int) -> None:
        """An operation that uses Tensor Memory."""
        if self._continues(op, bit):
            return
        chain = bit
        parts = [(False, cells) for cells in op.cells_read]
        parts += [(True, cells) for cells in op.cells_written]
        for writes, cells in parts:
            chain |= self._check(op, cells, writes)
        self._count(op, bit, chain)
        moment = self._clocks.lane_stamps.item(op.warp.lo) & MOMENT
        for writes, cells in parts:
            self._note(Use(op, bit, cells, writes, moment, chain))

    def _continues(self, op: AsyncOp, bit: int) -> bool:
        """The usual case: the same accumulator again, and nothing else has been used since."""
        if op.cells_read or not op.form:
            return False
        lasts = [self._last_use(cells) for cells in op.cells_written]
        chain = bit
        for last in lasts:
            if last is None or last.op.form != op.form or last.op.warp is not op.warp:
                return False
            chain |= last.chain
        for last in lasts:
            assert last is not None
            last.op, last.bit, last.chain = op, bit, chain
            last.moment = self._clocks.lane_stamps.item(op.warp.lo) & MOMENT
        self._count(op, bit, chain)
        return True

    def _last_use(self, cells: Cells) -> Use | None:
        """The latest use of a CTA's memory, if it wrote just these cells."""
        uses = self._uses.get(cells.slot)
        last = uses[-1] if uses else None
        return last if last is not None and last.writes and last.cells == cells else None

    def _count(self, op: AsyncOp, bit: int, chain: int) -> None:
        """What the warp has in flight, and what its thread's next commit will stand for."""
        known = self._known[op.warp.lo // 32]
        if op.kind in OWN:
            known.pending |= bit
            return
        known.issued |= bit
        thread = op.warp, lane_of(op)
        self._issued[thread] = self._issued.get(thread, 0) | chain

    def _check(self, op: AsyncOp, cells: Cells, writes: bool) -> int:
        """Compare with earlier uses; returns those that the operation runs behind."""
        known = self._known[op.warp.lo // 32]
        self._check_allocated(op.warp, cells, known)
        complete, chain = known.complete | known.waited, 0
        for use in self._uses.get(cells.slot, ()):
            if not (writes or use.writes) or not use.cells.meets(cells) or use.bit & complete:
                continue
            if not self._runs_behind(use, op, known):
                self._report(self._complaint(use, op, cells, writes))
            chain |= use.chain
        return chain

    def _runs_behind(self, use: Use, op: AsyncOp, known: Knowledge) -> bool:
        return bool(use.op.warp is op.warp or use.bit & known.ordered) and pipelined(use, op)

    def _note(self, new: Use) -> None:
        """Remember a use; those that it replaces need no longer be looked at."""
        uses = self._uses.setdefault(new.cells.slot, [])
        if new.writes or len(uses) > MANY:
            uses[:] = [use for use in uses if not self._replaces(new, use)]
        uses.append(new)

    @staticmethod
    def _replaces(new: Use, old: Use) -> bool:
        if not new.cells.covers(old.cells):
            return False
        if new.writes:
            return old.op is not new.op or old.writes
        same = old.op.warp is new.op.warp and old.op.kind == new.op.kind
        return same and not old.writes and old.op is not new.op

    # Allocations

    def allocated(self, warp: Warp, held: Allocated) -> None:
        """A warp has allocated columns."""
        number = warp.lo // 32
        self._allocated[held] = number, self._clocks.lane_stamps.item(warp.lo) + warp.current.pc
        self._known[number].allocations.add(held)
        self._clocks.release(number)  # so that the thread's next commit tells of it

    def _check_allocated(self, warp: Warp, cells: Cells, known: Knowledge) -> None:
        """The use must come after the allocation."""
        for held, (number, stamp) in self._allocated.items():
            if held in known.allocations or held.warp.cta.slot != cells.slot:
                continue
            if not held.overlaps(cells):
                continue
            if not (self._heard(warp, number, stamp) or self._knows(warp, held.partner)):
                fault = DataRaceError(
                    f"uses columns of Tensor Memory that {places.of_stamp(self._wave, stamp)} "
                    "allocates, and nothing orders the two"
                )
                self._report(fault)
            known.allocations.add(held)

    def _knows(self, warp: Warp, held: Allocated | None) -> bool:
        """Whether the warp has heard of an allocation; a pair's is made in both CTAs at once."""
        known = self._allocated.get(held) if held is not None else None
        return known is not None and self._heard(warp, *known)

    def _heard(self, warp: Warp, number: int, stamp: int) -> bool:
        return warp.lo // 32 == number or bool(
            stamp & MOMENT < self._clocks.seen.item(warp.lo // 32, number)
        )

    def freed(self, warp: Warp, held: Allocated) -> None:
        """A warp frees columns of its CTA: every use of them must be complete, also for it."""
        number, slot = warp.lo // 32, warp.cta.slot
        done, _ = self._heard_of(self._clocks.of_warp[number])
        complete = done | self._known[number].waited
        uses = self._uses.get(slot, [])
        for use in uses:
            if held.overlaps(use.cells) and not use.bit & complete:
                self._report(self._late(use, "frees", use.cells))
        self._uses[slot] = [use for use in uses if not held.overlaps(use.cells)]
        self._check_peer(warp, held)
        self._allocated.pop(held, None)

    def _check_peer(self, warp: Warp, held: Allocated) -> None:
        """A pair's allocation in the peer CTA must have completed."""
        for other, (number, stamp) in self._allocated.items():
            if other.partner is held and not self._heard(warp, number, stamp):
                fault = TensorMemoryError(
                    "tcgen05.dealloc, and nothing orders it after the tcgen05.alloc of the peer "
                    f"CTA by {places.of_stamp(self._wave, stamp)}; synchronise the pair in between"
                )
                self._report(fault)

    # Order

    def waited(self, warp: Warp, bits: int) -> None:
        """A warp has waited for its own ld or st."""
        known = self._known[warp.lo // 32]
        known.waited |= bits
        known.pending &= ~bits
        self._publish_relaxed(self._clocks.of_warp[warp.lo // 32])

    def _publish_relaxed(self, clock: Clock) -> None:
        """Relaxed synchronisation passes operations on, too (but nothing else)."""
        if self._relaxes:
            clock.fenced = self._clocks.with_operations(clock)

    def fence_before(self, number: int) -> None:
        """What a warp has issued to the tensor core is ordered before what it publishes now."""
        clock, known = self._clocks.of_warp[number], self._known[number]
        clock.before |= known.issued
        self._publish_relaxed(clock)

    def fence_after(self, number: int) -> None:
        """What a warp has heard of so far is ordered before the tcgen05 operations to come."""
        clock, known = self._clocks.of_warp[number], self._known[number]
        known.complete, known.ordered = self._heard_of(clock)

    @staticmethod
    def _heard_of(clock: Clock) -> tuple[int, int]:
        found = clock.found
        if found is None:
            return clock.done, clock.before
        return clock.done | found.done, clock.before | found.before

    def tracked(self, op: AsyncOp, bit: int, slot: int) -> int:
        """The operations whose completion a commit stands for, its own included.

        Commits of a thread signal one CTA in order, so a later one stands for the earlier as well.
        """
        key = op.warp, lane_of(op), slot
        earlier = self._commits.get(key, 0)
        self._commits[key] = earlier | bit
        return earlier | bit | self._issued.get(key[:2], 0)

    # Complaints

    def _report(self, fault: Exception) -> None:
        fence = isinstance(fault, MissingTensorFenceError)
        self._wave.launch.rules.report("tensor-fences" if fence else "tensor-hazards", fault)

    def _complaint(self, use: Use, op: AsyncOp, cells: Cells, writes: bool) -> Exception:
        number = op.warp.lo // 32
        done, before = self._heard_of(self._clocks.of_warp[number])
        verb = "writes" if writes else "reads"
        piped = pipelined(use, op)
        if use.bit & (done | (before if piped else 0)):
            return self._missing("after", use, verb, op)
        own = use.op.warp is op.warp
        seen = self._clocks.seen.item(number, use.op.warp.lo // 32)
        if piped and not own and use.moment < seen:
            return self._missing("before", use, verb, op)
        return self._late(use, verb, cells, op)

    def _missing(self, which: str, use: Use, verb: str, op: AsyncOp) -> Exception:
        where = "in front of it" if which == "after" else "behind that"
        return MissingTensorFenceError(
            f"missing tcgen05.fence::{which}_thread_sync {where}: this {op.kind} {verb} "
            f"{shown(use.cells)}, which {self._name(use)} {'wrote' if use.writes else 'read'}",
            lane=lane_of(op),
        )

    def _late(self, use: Use, verb: str, cells: Cells, op: AsyncOp | None = None) -> Exception:
        """Nobody has waited for the operation, or that is not known here."""
        subject = f"this {op.kind} {verb}" if op else verb
        lane = lane_of(op) if op else None
        pending = self._known[use.op.warp.lo // 32].pending
        if use.op.kind in OWN and not use.bit & pending:
            return DataRaceError(
                f"{subject} {shown(cells)}, which {self._name(use)} "
                f"{'wrote' if use.writes else 'read'}, and nothing orders the two",
                lane=lane,
            )
        wait = OWN.get(use.op.kind, "commit and its mbarrier")
        return AsyncHazardError(
            f"{subject} {shown(cells)}, which {self._name(use)} may still "
            f"{'write' if use.writes else 'read'}; wait for it first (tcgen05.{wait})",
            lane=lane,
        )

    def _name(self, use: Use) -> str:
        number = self._clocks.first + use.op.warp.lo // 32
        place = places.shortened(use.op.place)
        return f"the {use.op.kind} of {places.of_warp(self._wave, number)} at {place}"
