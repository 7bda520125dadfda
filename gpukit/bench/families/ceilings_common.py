"""What the ceilings' cases share: how many CTAs, the clocks they report, facts after timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukit.bench.model import CheckResult
from gpukit.bench.peers import Absent
from gpukit.measure import Work

EXACT = "exact"


def ctas(device: Any, per_sm: int = 1) -> int:
    """One wave of the GPU; two CTAs where a clock does not matter."""
    return 2 if device.emulated else per_sm * int(device.properties.sm_count)


def verdict(same: bool) -> CheckResult:
    """Sums of integers have no tolerance."""
    return CheckResult(0.0 if same else float("inf"), EXACT, same)


class Prepared:
    """The parts of `gpukit.bench.model.Prepared` that all ceilings answer alike.

    ``facts`` are known before a launch; ``laps`` are clocks and nanoseconds of each CTA, i64.
    """

    peers: tuple[Work, ...] = ()
    notes: tuple[Absent, ...] = ()
    bytes_moved, flops, footprint = 0, 0, 0
    facts: Mapping[str, Any]
    work: Work

    def __init__(self, device: Any, grid: int) -> None:
        self.device, self.grid = device, grid
        self.laps = device.xp.zeros((2, grid), np.int64)

    @property
    def launch(self) -> Mapping[str, Any]:
        """What runs, and after a launch what its clocks say."""
        laps = self.device.to_host(self.laps)
        if self.device.emulated or not (laps > 0).all():
            return self.facts
        clocks, nanoseconds = np.median(laps, axis=1)
        return {**self.facts, **self.measured(float(clocks)),
                "MHz": round(1e3 * clocks / nanoseconds)}

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Facts from the median CTA's clocks."""
        raise NotImplementedError

    def poison(self) -> None:
        """Fill the output with what no right answer holds."""
        raise NotImplementedError

    def check(self, slot: int = 0) -> CheckResult:
        """Compare the output with what it must be."""
        raise NotImplementedError

    def close(self) -> None:
        """Let the buffers go."""
        self.__dict__ = {"device": self.device}
        self.device.release_memory()
