"""A device without a clock that pretends to have one, and rows as a simple GPU would give them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gpukit.bench.emulated_target import EmulatedTarget
from gpukit.devices import emulated
from gpukit.devices.protocol import Properties
from gpukit.measure import Timing, TimingOptions, Work

#: A GPU like an H200; the numbers that reports are computed from are invented.
GPU = Properties(name="Test GPU", uuid="", capability=(9, 0), sm_count=100, threads_per_sm=2048,
                 shared_per_cta=227 << 10, l2_bytes=50 << 20, memory_bytes=80 << 30)


def timing(name: str, samples: Sequence[float], options: TimingOptions) -> Timing:
    """A timing of these samples."""
    middle = sorted(samples)[len(samples) // 2]
    return Timing(name, options.method, options.l2, tuple(samples), middle, 0.01, 0.001, True, None)


class ClockedTarget(EmulatedTarget):
    """The emulated device; every launch takes about ten microseconds."""

    timed = True

    def __init__(self) -> None:
        super().__init__(emulated.get("h100"))
        self.timed_works: list[list[str]] = []

    def time(self, works: Sequence[Work], options: TimingOptions) -> Sequence[Timing]:
        self.timed_works.append([work.name for work in works])
        rng = random.Random(0)
        return [timing(work.name, [10 + rng.random() for _ in range(20)], options)
                for work in works]

    def peaks(self, dtype: str) -> dict[str, float]:
        return {"gbs": 3350.0}
