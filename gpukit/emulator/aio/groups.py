"""Async-groups: per thread, commit what was issued and wait for all but the newest groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.check.async_ops import AsyncOp
from gpukit.emulator.instructions import Mask
from gpukit.emulator.outcomes import Outcome, Park
from gpukit.emulator.waits import WaitQueue

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp

ALL = 0xFFFFFFFF


def bits_of(mask: Mask) -> int:
    """A lane mask as an integer."""
    if mask is None:
        return ALL
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


@dataclass(slots=True)
class Member:
    """An operation and the lanes that issued it."""

    op: AsyncOp
    lanes: int


@dataclass(slots=True)
class Group:
    """What the lanes of ``lanes`` committed together; ``read_seen`` waited for its reads."""

    lanes: int
    members: list[Member]
    read_seen: int = 0

    def finished(self, lanes: int, reads_only: bool) -> bool:
        """Whether all that these lanes issued has completed (or been read)."""
        for member in self.members:
            op = member.op
            if not (op.read_done if reads_only else op.done) and member.lanes & lanes:
                return False
        return True


class AsyncGroups:
    """The groups of one warp's threads."""

    def __init__(self, warp: Warp) -> None:
        self.warp = warp
        self.queue = WaitQueue()
        self.open: list[Member] = []  # issued, not yet committed
        self.groups: list[Group] = []  # oldest first

    def add(self, op: AsyncOp) -> None:
        """An operation that the next commit of its lanes takes in."""
        self.open.append(Member(op, bits_of(op.mask)))

    def commit(self, mask: Mask) -> None:
        lanes = bits_of(mask)
        inside = [Member(m.op, m.lanes & lanes) for m in self.open if m.lanes & lanes]
        self.open = [Member(m.op, m.lanes & ~lanes) for m in self.open if m.lanes & ~lanes]
        self.groups.append(Group(lanes, inside))

    def older_than(self, lanes: int, newest: int) -> list[tuple[Group, int]]:
        """Groups with those of the lanes for which they are not among the ``newest`` latest."""
        found = []
        counted = [lanes] + [0] * newest  # counted[k]: lanes that have seen k groups at least
        for group in reversed(self.groups):
            here = group.lanes & counted[newest]
            if here:
                found.append((group, here))
            for k in range(newest, 0, -1):
                counted[k] |= group.lanes & counted[k - 1]
        return found

    def wait(self, mask: Mask, newest: int, reads_only: bool) -> Outcome:
        """Go on once all but the ``newest`` latest groups have completed."""
        older = self.older_than(bits_of(mask), newest)
        if not all(group.finished(lanes, reads_only) for group, lanes in older):
            pending = sum(not group.finished(lanes, reads_only) for group, lanes in older)
            return Park(self.queue, lambda: f"{pending} async-groups to complete", retry=True)
        self._observe(mask, older, reads_only)
        return None

    def _observe(self, mask: Mask, older: list[tuple[Group, int]], reads_only: bool) -> None:
        ops = []
        for group, lanes in older:
            fresh = lanes & ~group.read_seen if reads_only else lanes
            ops += [m.op for m in group.members if m.lanes & fresh]
            group.read_seen |= lanes
            if not reads_only:
                group.lanes &= ~lanes
        if not reads_only:
            self.groups = [group for group in self.groups if group.lanes]
        if ops:
            for listener in self.warp.wave.listeners:
                listener.group_waited(self.warp, mask, ops, reads_only)


class CpAsyncGroups:
    """cp.async-groups of a CTA's warps, made on first use."""

    def __init__(self, cta: Cta) -> None:
        self._warps = [AsyncGroups(warp) for warp in cta.warps]

    def of(self, warp: Warp) -> AsyncGroups:
        return self._warps[warp.index]


class BulkGroups(CpAsyncGroups):
    """Bulk async-groups: separate from the others."""
