"""The emulated device as a target: it checks and counts, and has no clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpukit.devices.emulated import EmulatedDevice
    from gpukit.measure import Timing, TimingOptions, Work

#: The l2 and method of rows that were not timed.
UNTIMED = "none"


class EmulatedTarget:
    """See `gpukit.bench.model.Target`."""

    timed = False

    def __init__(self, device: EmulatedDevice) -> None:
        device.use()
        self.device = device
        self.name = device.name
        self.arch = device.model.arch
        self.l2_bytes = device.properties.l2_bytes

    def environment(self) -> dict[str, Any]:
        """The software's facts; the GPU is the emulated model."""
        from gpukit.measure import environment

        model = self.device.model
        return {**environment(), "gpu": model.properties.name, "emulated": self.device.name,
                "emulated_from": model.source}

    def peaks(self, dtype: str) -> Mapping[str, float]:
        """Nothing is timed, so nothing has a share of a peak."""
        return {}

    def time(self, works: Sequence[Work], options: TimingOptions) -> Sequence[Timing]:
        """No clock, no times."""
        return ()

    def counters(self) -> dict[str, Any] | None:
        """What the last launch did, as plain values; see `gpukit.emulator.Counters`."""
        counters = self.device.last_counters
        if counters is None:
            return None
        values = dataclasses.asdict(counters)
        del values["lines"]  # per source line: for the emulator's own reports
        values["shared_conflicts"] = counters.shared_loads.conflicts + \
            counters.shared_stores.conflicts
        return values
