"""Checks of asynchronous operations against generic accesses and against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.check import places
from gpukit.emulator.check.clocks import MOMENT, WARP_SHIFT, Clock, Clocks
from gpukit.emulator.check.inflight import REDUCING, InFlight
from gpukit.emulator.check.order import hidden, unordered
from gpukit.emulator.check.shadow import Shadow
from gpukit.emulator.check.touch import Touch
from gpukit.emulator.errors import AsyncHazardError, DataRaceError, MissingProxyFenceError

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp, Range
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.mem.access import Access
    from gpukit.emulator.mem.store import Store
    from gpukit.emulator.wave import Wave

NOBODY = np.zeros(1, np.int32)
WAIT = "; wait for it first"
FENCED_WRITES = ("launch_cancel",)  # of which the ISA asks for a fence behind generic reads


def _first(found: Any) -> tuple[int, int]:
    """Index of the first hit, and its position in the range; ``found`` may have several rows."""
    where = int(found.argmax())
    return where, where % found.shape[-1]


class Site:
    """A range of an operation in shadow memory: a slice or an array ``at`` of granules."""

    def __init__(self, op: AsyncOp, part: Range, store: Store, shadow: Shadow, base: int) -> None:
        self.op = op
        self.part = part
        self.store = store
        self.shadow = shadow
        self.across_waves = part.space == "global"
        self.key, self.at = self._granules(part, base + shadow.skew)

    def _granules(self, part: Range, base: int) -> tuple[Any, Any]:
        size = self.shadow.granule
        if part.starts is None:
            start = base + part.start
            found = slice(start // size, (start + part.size - 1) // size + 1)
            return (found.start, found.stop), found
        key = part if part.kept else (part.starts.tobytes(), part.size, base)
        indices = self.shadow.ranges.get(key)
        if indices is None:
            steps = np.arange(0, part.size, size) + base
            indices = ((part.starts[:, None] + steps) // size).ravel()
            self.shadow.keep_range(key, indices)
        return key, indices

    def address(self, position: int) -> int:
        """The address of the granule at a position of ``at``."""
        first = self.at.start + position if isinstance(self.at, slice) else self.at[position]
        return self.store.address_of(int(first) * self.shadow.granule - self.shadow.skew)

    def where(self, position: int) -> str:
        return f"{self.part.space} memory at 0x{self.address(position):x}"

    @property
    def lane(self) -> int:
        return 0 if self.op.mask is None else int(self.op.mask.argmax())


class Asynchronous:
    """Judges operations when they are issued, and generic accesses to what they use."""

    def __init__(self, wave: Wave, clocks: Clocks, inflight: InFlight) -> None:
        self._wave = wave
        self._clocks = clocks
        self._inflight = inflight
        self._rules = wave.launch.rules

    # Operations

    def reads(self, site: Site, bit: int) -> None:
        """The operation reads these bytes from now on."""
        if not self._readable(site):
            self._judge_read(site)
        site.shadow.note_async_read(site.key, site.at, bit)

    def _readable(self, site: Site) -> bool:
        """Whether all earlier writes are ordered and visible, by what is known of the range."""
        clocks, number = self._clocks, site.op.warp.lo // 32
        seen = clocks.seen_async if site.op.proxy == "async" else clocks.seen
        clock = clocks.of_warp[number]
        last = site.shadow.last_writes(site.key, site.at)
        for stamp in last.stamps:
            writer = (stamp >> WARP_SHIFT) - clocks.first
            if writer < 0 or stamp & MOMENT >= seen.item(number, writer):
                return False
        return not any(self._inflight.missing(n, clock, False, False) for n in last.sets)

    def _judge_read(self, site: Site) -> None:
        shadow, at = site.shadow, site.at
        writes = [*shadow.written(at), *shadow.strong_writes.at(at)]
        histories = [("wrote", stamps) for stamps in writes]
        self._judge(site, histories, "reads", site.op.proxy == "async")
        writers, _ = shadow.async_arrays()
        self._judge_ops(site, writers[at], "reads", "write", False)

    def _reading(self, shadow: Shadow) -> Any:
        """Which operations read each granule, up to date."""
        _, reading = shadow.async_arrays()
        for at, bits in shadow.take_async_reads():
            reading[at] = self._inflight.merge(reading[at], bits)
        return reading

    def writes(self, site: Site, bit: int) -> None:
        """The operation writes these bytes from now on."""
        shadow, at = site.shadow, site.at
        reduces = site.op.kind in REDUCING
        writes, readers = shadow.written(at), shadow.reads.at(at)
        if not reduces:
            writes = [*writes, *shadow.strong_writes.at(at)]
            readers = [*readers, *shadow.strong_reads.at(at)]
        self._judge(site, [("wrote", stamps) for stamps in writes], "writes", False)
        self._judge(
            site, [("read", stamps) for stamps in readers], "writes", site.op.kind in FENCED_WRITES
        )
        writers, reading = shadow.async_arrays()[0], self._reading(shadow)
        self._judge_ops(site, writers[at], "writes", "write", False, reduces)
        self._judge_ops(site, reading[at], "writes", "read", True)
        shadow.changes.add(at)
        if reduces:
            writers[at] = self._inflight.merge(writers[at], bit)
            return
        shadow.forget_before(at)
        writers[at] = self._inflight.merge(NOBODY, bit)
        reading[at] = 0

    def _judge(self, site: Site, histories: list[tuple[str, Any]], verb: str, proxy: bool) -> None:
        clocks, warp = self._clocks, site.op.warp.lo // 32
        for earlier, prior in histories:
            if not np.count_nonzero(prior):
                continue
            unseen = hidden(clocks, prior, warp) if proxy else None
            if proxy and unseen is None and not (site.across_waves and clocks.first):
                continue  # what the async proxy sees also happens before
            late = unordered(clocks, prior, warp, site.across_waves)
            if late is not None:
                self._report_race(site, prior, late, verb, earlier)
            if unseen is not None:
                self._report_missing_fence(site, prior, unseen, verb, earlier)

    def _report_race(self, site: Site, prior: Any, late: Any, verb: str, earlier: str) -> None:
        where, position = _first(late)
        fault = DataRaceError(
            f"data race: this {site.op.kind} {verb} {site.where(position)}, which "
            f"{places.of_stamp(self._wave, int(prior.flat[where]))} {earlier}, and nothing orders "
            "the two",
            lane=site.lane,
            address=site.address(position),
        )
        self._rules.report("races", fault)

    def _report_missing_fence(
        self, site: Site, prior: Any, unseen: Any, verb: str, earlier: str
    ) -> None:
        where, position = _first(unseen)
        fault = MissingProxyFenceError(
            f"missing fence.proxy.async: this {site.op.kind} {verb} {site.where(position)} through "
            f"the async proxy, which {places.of_stamp(self._wave, int(prior.flat[where]))} "
            f"{earlier} through the generic proxy, and no fence.proxy.async is between",
            lane=site.lane,
            address=site.address(position),
        )
        self._rules.report("proxy-fences", fault)

    def _judge_ops(
        self, site: Site, ids: Any, verb: str, use: str, reads: bool, atomic: bool = False
    ) -> None:
        clock = self._clocks.of_warp[site.op.warp.lo // 32]
        number = self._inflight.unobserved(ids, clock, reads, atomic)
        if number:
            position = int((ids == number).argmax())
            fault = AsyncHazardError(
                f"this {site.op.kind} {verb} {site.where(position)}, which "
                f"{self._name(number, clock, reads)} may still {use}{WAIT}",
                lane=site.lane,
                address=site.address(position),
            )
            self._rules.report("async-hazards", fault)

    def _name(self, number: int, clock: Clock, reads: bool) -> str:
        op = self._inflight.culprit(number, clock, reads)
        if op is None:
            return "an asynchronous operation of another CTA"
        warp = places.of_warp(self._wave, self._clocks.first + op.warp.lo // 32)
        return f"the {op.kind} of {warp} at {places.shortened(op.place)}"

    # Generic accesses

    def accessed(
        self, lanes: Lanes, access: Access, shadow: Shadow, touch: Touch, kind: str, weak: bool
    ) -> None:
        """A generic access to a memory that asynchronous operations use."""
        at = touch.at
        writers, _ = shadow.async_arrays()
        verb = "reads" if kind == "read" else "writes"
        atomic = kind == "atomic"
        self._check(access, shadow, touch, writers[at], verb, "write", False, atomic)
        if kind == "read":
            return
        reading = self._reading(shadow)
        self._check(access, shadow, touch, reading[at], verb, "read", True, False)
        if weak:
            writers[at] = 0
            reading[at] = 0

    def _check(
        self, access: Access, shadow: Shadow, touch: Touch, ids: Any, verb: str, use: str,
        reads: bool, atomic: bool,
    ) -> None:  # fmt: skip
        if not np.count_nonzero(ids):
            return
        for warp, mine in touch.shares(ids):
            clock = self._clocks.of_warp[warp]
            number = self._inflight.unobserved(ids[mine], clock, reads, atomic)
            if number:
                hits = np.zeros(ids.shape, np.bool_)
                hits[mine] = ids[mine] == number
                position = int(hits.argmax())
                address = shadow.address(access.store, touch.granule(position))
                fault = AsyncHazardError(
                    f"{verb} {access.space} memory at 0x{address:x}, which "
                    f"{self._name(number, clock, reads)} may still {use}{WAIT}",
                    lane=touch.lane(position),
                    address=address,
                )
                self._rules.report("async-hazards", fault)
