"""Data races: conflicting accesses of two warps with nothing that orders them.

Two accesses conflict if they touch the same bytes, at least one writes, and at least one is weak (a
plain load or store; atomics, volatile and relaxed accesses do not race among themselves). It makes
no difference whether the values agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import Clocks
from gpukit.emulator.check.history import ReadersPerWarp
from gpukit.emulator.check.order import unordered
from gpukit.emulator.check.shadow import Shadow
from gpukit.emulator.check.touch import Touch
from gpukit.emulator.errors import DataRaceError

if TYPE_CHECKING:
    from gpukit.emulator.check.latest import Latest
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.wave import Wave


class Races:
    """Checks generic accesses against the shadow and records them there."""

    def __init__(self, wave: Wave, clocks: Clocks) -> None:
        self._wave = wave
        self._clocks = clocks

    def read(self, lanes: Lanes, access: Access, shadow: Shadow, touch: Touch, weak: bool) -> None:
        """A load."""
        self._against_writes(access, shadow, touch, weak, "reads")
        if shadow.latest_reads is not None:
            shadow.latest_reads.note(lanes)
        if weak:
            self._note_read(shadow, touch)
        else:
            shadow.note_strong("read", touch.at, touch.stamps)

    def write(self, lanes: Lanes, access: Access, shadow: Shadow, touch: Touch, weak: bool) -> None:
        """A store or an atomic."""
        self._against_writes(access, shadow, touch, weak, "writes")
        self._against_reads(access, shadow, touch, weak)
        if shadow.latest_writes is not None:
            shadow.latest_writes.note(lanes)
        if not weak:
            shadow.note_strong("write", touch.at, touch.stamps)
            return
        shadow.note_write(touch.at, touch.stamps)
        if not touch.single and not isinstance(touch.at, slice):
            self._check_together(access, shadow, touch)

    def _against_writes(
        self, access: Access, shadow: Shadow, touch: Touch, weak: bool, verb: str
    ) -> None:
        if _all_seen(shadow.latest_writes, touch):
            return
        self._judge_all(access, shadow, touch, shadow.written(touch.at), verb, "wrote")
        if weak:
            strong = shadow.strong_writes.at(touch.at)
            self._judge_all(access, shadow, touch, strong, verb, "wrote")

    def _against_reads(self, access: Access, shadow: Shadow, touch: Touch, weak: bool) -> None:
        if _all_seen(shadow.latest_reads, touch):
            return
        self._judge_all(access, shadow, touch, shadow.reads.at(touch.at), "writes", "read")
        if weak:
            strong = shadow.strong_reads.at(touch.at)
            self._judge_all(access, shadow, touch, strong, "writes", "read")

    def _judge_all(
        self, access: Access, shadow: Shadow, touch: Touch, histories: list[Any], verb: str,
        earlier: str,
    ) -> None:  # fmt: skip
        for prior in histories:
            self._judge(access, shadow, touch, prior, verb, earlier)

    def _judge(
        self, access: Access, shadow: Shadow, touch: Touch, prior: Any, verb: str, earlier: str
    ) -> None:
        late = unordered(self._clocks, prior, touch.warps, access.space == "global")
        if late is not None:
            where = int(late.argmax())
            position = where % touch.count
            self._report(access, shadow, touch, position, int(prior.flat[where]), verb, earlier)

    def _check_together(self, access: Access, shadow: Shadow, touch: Touch) -> None:
        """Several warps that run in lockstep store to one address by the same instruction."""
        (kept,) = shadow.written(touch.at)
        lost = kept != touch.stamps
        if lost.any():
            where = int(lost.argmax())
            stamp = int(kept.flat[where])
            self._report(access, shadow, touch, where, stamp, "writes", "wrote")

    def _report(
        self, access: Access, shadow: Shadow, touch: Touch, position: int, stamp: int, verb: str,
        earlier: str,
    ) -> None:  # fmt: skip
        address = shadow.address(access.store, touch.granule(position))
        fault = DataRaceError(
            f"data race on {access.space} memory at 0x{address:x}: {verb} what "
            f"{places.of_stamp(self._wave, stamp)} {earlier}, and nothing orders the two",
            lane=touch.lane(position),
            address=address,
        )
        self._wave.launch.rules.report("races", fault)

    def _note_read(self, shadow: Shadow, touch: Touch) -> None:
        readers = shadow.reads
        if not isinstance(readers, ReadersPerWarp):
            readers.note(touch.at, touch.stamps)
            return
        per_cta = self._clocks.warps_per_cta
        if self._wave.cluster_size > 1:
            self._note_cluster_read(readers, shadow, touch)
        elif touch.single:
            readers.note(touch.at, touch.stamps, touch.warps % per_cta)
        else:
            readers.note(touch.array(), touch.stamps, touch.warps % per_cta)

    def _note_cluster_read(self, readers: ReadersPerWarp, shadow: Shadow, touch: Touch) -> None:
        at = touch.array()
        slots = at * shadow.granule // self._wave.shared.stride
        warps = np.broadcast_to(touch.warps, at.shape)
        stamps = np.broadcast_to(touch.stamps, at.shape)
        per_cta = self._clocks.warps_per_cta
        own = slots == warps // per_cta
        readers.note(at[own], stamps[own], warps[own] % per_cta)
        if not own.all():
            readers.note_remote(at[~own], stamps[~own])


def _all_seen(latest: Latest | None, touch: Touch) -> bool:
    """Whether the one warp that accesses has seen all earlier accesses of a kind."""
    return latest is not None and touch.single and latest.all_seen(touch.warps)
