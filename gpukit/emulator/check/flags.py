"""Synchronisation through memory: fences, and releasing and acquiring accesses.

A release is ``st/atom/red.release``, or a fence followed by any strong store or atomic. What it
publishes stays at the address: an atomic adds to it, a store replaces it. An acquire is
``ld/atom.acquire``, or any strong load or atomic followed by a fence.

Fence and access may be in different threads with a barrier between: ``__threadfence()`` is a
``fence.sc``, and those of two threads are ordered by what happens between them.

A CTA barrier acquires nothing by itself. It does here after an atomic, for the sake of the last
CTA of a reduction, which by custom takes its ticket without a fence behind it.
"""

from __future__ import annotations

from gpukit.emulator.check.clocks import Clock, Clocks, joined
from gpukit.emulator.check.shadow import Shadow
from gpukit.emulator.check.touch import Touch


class Flags:
    """What the warps' fences and strong accesses publish and find in memory."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._any_fence = False
        self._taken: dict[int, Clock] = {}  # by warp: found by atomics, neither fence nor barrier
        self._shadows: dict[Shadow, None] = {}  # with clocks

    def restart(self) -> None:
        """New CTAs: fences of the old warps do not matter, what they published in memory does."""
        self._any_fence = False
        self._taken.clear()

    def end_wave(self) -> None:
        """Keep only which CTAs were heard of."""
        for shadow in self._shadows:
            for clock in shadow.clocks.values():
                self._clocks.forget(clock)

    def drop(self, shadow: Shadow) -> None:
        """The memory's contents are undefined again."""
        shadow.clocks.clear()
        self._shadows.pop(shadow, None)

    # Fences

    def fence(self, warp: int) -> None:
        """A fence orders what was found before it, and covers all that happens before it."""
        self._any_fence = True
        clock = self._clocks.of_warp[warp]
        self.settle(warp)
        if clock.found is not None:
            found, clock.found = clock.found, None
            clock.join(found)
        clock.fenced = self._clocks.release(warp).plain()

    def settle(self, warp: int) -> None:
        """What the warp's atomics have found now happens before it."""
        found = self._taken.pop(warp, None)
        if found is not None:
            self._clocks.of_warp[warp].join(found)

    def fenced(self, warp: int) -> Clock | None:
        """What a relaxed operation of this warp publishes."""
        return self._clocks.of_warp[warp].fenced

    def found(self, warp: int, clock: Clock) -> None:
        """A relaxed operation saw ``clock``; the next fence makes it count."""
        mine = self._clocks.of_warp[warp]
        mine.found = joined(mine.found, clock)

    # Strong accesses

    def access(self, shadow: Shadow, touch: Touch, kind: str, order: str) -> None:
        """A strong load, store or atomic, warp after warp."""
        releases = kind != "read" and (self._any_fence or order.startswith(("release", "acq_")))
        if not shadow.clocks and not releases:
            return
        for warp, granules in touch.by_warp():
            if kind != "write":
                self._acquire(shadow, warp, granules, kind, order)
            if kind != "read":
                self._release(shadow, warp, granules, kind, order)

    def _acquire(
        self, shadow: Shadow, warp: int, granules: list[int], kind: str, order: str
    ) -> None:
        for granule in granules:
            clock = shadow.clocks.get(granule)
            if clock is not None and order.startswith(("acquire", "acq_")):
                self._clocks.of_warp[warp].join(clock)
            elif clock is not None and kind == "atomic":
                self._taken[warp] = joined(self._taken.get(warp), clock)
            elif clock is not None:
                self.found(warp, clock)

    def _release(
        self, shadow: Shadow, warp: int, granules: list[int], kind: str, order: str
    ) -> None:
        published = self.fenced(warp)
        if order.startswith(("release", "acq_")):
            published = self._clocks.release(warp)
        for granule in granules:
            if kind == "write":
                shadow.clocks.pop(granule, None)
            if published is not None:
                self._publish(shadow, granule, published)

    def _publish(self, shadow: Shadow, granule: int, published: Clock) -> None:
        self._shadows[shadow] = None
        clock = shadow.clocks.get(granule)
        if clock is None:
            shadow.clocks[granule] = published.copy()
        else:
            clock.join(published)
