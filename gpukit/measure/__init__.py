"""Honest measurement of GPU work: clocks, L2 state, timing methods, statistics and ceilings.

>>> from gpukit.measure import TimingOptions, Work, time_works
>>> ours = Work("ours", lambda slot: kernel(grid, block, buffers[slot]), slots=len(buffers))
>>> time_works([ours, peer], TimingOptions(l2="flush"))

Importing this package loads neither CuPy nor CUDA. Times are in microseconds, rates in GB/s
(GB = 1e9 bytes) and TFLOPS (1e12 per second).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "gpukit.measure.agreement": ("compare_methods",),
    "gpukit.measure.calibration": ("Calibration", "calibrate"),
    "gpukit.measure.provenance": ("environment", "environment_id"),
    "gpukit.measure.errors": ("CaptureError", "MeasurementError"),
    "gpukit.measure.peaks": ("Peak", "attainable_tflops", "flag_impossible", "peak_for"),
    "gpukit.measure.statistics": (
        "median", "median_interval", "quantile", "spread", "standard_error"),
    "gpukit.measure.telemetry": ("ClockReport", "Monitor", "Range"),
    "gpukit.measure.timing": ("time_works",),
    "gpukit.measure.works": ("Timing", "TimingOptions", "Work"),
}  # fmt: skip
_LAZY = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Calibration", "CaptureError", "ClockReport", "MeasurementError", "Monitor", "Peak", "Range",
    "Timing", "TimingOptions", "Work", "attainable_tflops", "calibrate", "compare_methods",
    "environment", "environment_id", "flag_impossible", "median", "median_interval", "peak_for",
    "quantile", "spread", "standard_error", "time_works",
]  # fmt: skip

if TYPE_CHECKING:
    from gpukit.measure.agreement import compare_methods
    from gpukit.measure.calibration import Calibration, calibrate
    from gpukit.measure.errors import CaptureError, MeasurementError
    from gpukit.measure.peaks import Peak, attainable_tflops, flag_impossible, peak_for
    from gpukit.measure.provenance import environment, environment_id
    from gpukit.measure.statistics import (
        median,
        median_interval,
        quantile,
        spread,
        standard_error,
    )
    from gpukit.measure.telemetry import ClockReport, Monitor, Range
    from gpukit.measure.timing import time_works
    from gpukit.measure.works import Timing, TimingOptions, Work


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gpukit.measure' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
