"""The errors that belong to measuring alone."""

from __future__ import annotations

from gpukit.errors import GpukitError, UnsupportedError


class MeasurementError(GpukitError):
    """No honest number could be taken; the message says what disturbed the measurement."""


class CaptureError(UnsupportedError):
    """A work cannot be captured in a CUDA graph. ``work`` is its name."""

    def __init__(self, work: str, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(
            f"work {work!r} cannot be captured in a CUDA graph{because}; use method='events'"
        )
        self.work = work
