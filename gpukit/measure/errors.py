"""The one error that belongs to measuring alone."""

from __future__ import annotations

from gpukit.errors import GpukitError


class MeasurementError(GpukitError):
    """No honest number could be taken; the message says what disturbed the measurement."""
