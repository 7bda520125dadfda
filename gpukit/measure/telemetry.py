"""SM and memory clocks, power, temperature and throttle reasons around a measurement."""

from __future__ import annotations

import statistics
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gpukit.measure.nvml import Reading, open_device

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# Reasons that make a number smaller than the device's honest one. The software power cap is not
# among them: holding the power limit is how a busy data-centre GPU normally runs.
DISTORTING = frozenset({
    "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown",
})  # fmt: skip


class Range(NamedTuple):
    """Smallest, middle and largest reading."""

    min: float
    median: float
    max: float


@dataclass(frozen=True)
class ClockReport:
    """What NVML said while the samples were taken; a quantity it did not tell is None.

    Clocks in MHz, power in watts, temperature in degrees Celsius. ``reasons`` are NVML's clock
    event reasons seen at least once, idleness aside. ``readings`` counts the polls.
    """

    sm_mhz: Range | None
    mem_mhz: Range | None
    power_w: Range | None
    temp_c: Range | None
    reasons: tuple[str, ...]
    readings: int

    @property
    def throttled(self) -> bool:
        """Whether a slowdown (hardware, thermal, power brake) was seen."""
        return not DISTORTING.isdisjoint(self.reasons)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: ranges as {min, median, max}, and ``throttled``."""
        ranges = {
            key: value._asdict() if isinstance(value, Range) else value
            for key, value in vars(self).items()
        }
        return ranges | {"reasons": list(self.reasons), "throttled": self.throttled}


class Source(Protocol):
    """Where readings come from."""

    def read(self) -> Reading: ...

    def close(self) -> None: ...


class Monitor:
    """Polls a device, found by UUID, from a background thread while the block runs.

    >>> with Monitor(uuid) as monitor:
    ...     run()
    >>> monitor.report, monitor.note

    Without NVML, or for a device it does not know, ``report`` is None and ``note`` says why.
    """

    def __init__(
        self, uuid: str | None, interval_s: float = 0.05, source: Source | None = None
    ) -> None:
        self.report: ClockReport | None = None
        self.note = ""
        self._interval_s = interval_s
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._source = source
        if source is None:
            self._source, self.note = open_device(uuid)

    def sm_clock(self) -> float | None:
        """The SM clock now, in MHz."""
        return None if self._source is None else self._source.read().sm_mhz

    def __enter__(self) -> Monitor:
        if self._source is not None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._poll, name="gpukit-clocks", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self.report = summarize(self._readings)

    def close(self) -> None:
        """Let go of NVML."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _poll(self) -> None:
        assert self._source is not None
        while True:  # at least one reading, however short the block
            self._readings.append(self._source.read())
            if self._stop.wait(self._interval_s):
                return


def summarize(readings: Sequence[Reading]) -> ClockReport | None:
    """The report on a run of readings; None for none."""
    if not readings:
        return None
    reasons = sorted({reason for reading in readings for reason in reading.reasons})
    return ClockReport(
        sm_mhz=_range([reading.sm_mhz for reading in readings]),
        mem_mhz=_range([reading.mem_mhz for reading in readings]),
        power_w=_range([reading.power_w for reading in readings]),
        temp_c=_range([reading.temp_c for reading in readings]),
        reasons=tuple(reasons),
        readings=len(readings),
    )


def _range(values: Sequence[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return Range(min(known), statistics.median(known), max(known)) if known else None
