"""Speeds of a case from its bytes, FLOPs and time, and how they stand against a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Rates:
    """Achieved speeds: ``gbs`` in 1e9 bytes/s, ``tflops`` in 1e12 FLOP/s; None if there is none."""

    gbs: float | None
    tflops: float | None

    @classmethod
    def of(cls, bytes_moved: int, flops: int, time_us: float) -> Rates:
        """Return the rates of one launch that took ``time_us`` microseconds."""
        return cls(_rate(bytes_moved, time_us, 1e3), _rate(flops, time_us, 1e6))

    def percent_of(self, limits: Mapping[str, Any] | None) -> float | None:
        """Return the percentage of the limit that binds: the largest share of any of them.

        ``limits`` holds any of ``gbs`` and ``tflops``. This is the roofline: the time that the
        tighter limit allows, over the time taken. None when no limit applies.
        """
        achieved = {"gbs": self.gbs, "tflops": self.tflops}
        shares = [
            100 * speed / limits[name]
            for name, speed in achieved.items()
            if speed is not None and limits and limits.get(name)
        ]
        return max(shares, default=None)


def _rate(amount: int, time_us: float, unit: float) -> float | None:
    return amount / time_us / unit if amount > 0 and time_us > 0 else None
