"""The usual target: a CUDA device of `gpukit.devices`, timed by `gpukit.measure`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpukit.errors import ArgumentError, GpukitError, NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpukit.devices.cuda import CudaDevice
    from gpukit.measure import Timing, TimingOptions, Work

#: Element types whose rate a datasheet prints under another name.
_PEAK_NAMES = {"e4m3": "fp8", "e5m2": "fp8"}


class GpuTarget:
    """A CUDA device made current; see `gpukit.bench.model.Target`."""

    def __init__(self, device: CudaDevice) -> None:
        from gpukit.measure import peak_for

        self.device = device
        self.name = device.properties.name
        self.arch = device.properties.arch
        self.l2_bytes = device.properties.l2_bytes
        self._peak = peak_for(self.name)

    def environment(self) -> dict[str, Any]:
        """Return the device's and the software's facts."""
        from gpukit.measure import environment

        return environment(self.device.index)

    def peaks(self, dtype: str) -> Mapping[str, float]:
        """Return the datasheet peaks, none for a part that is not in the table."""
        if self._peak is None:
            return {}
        tflops = self._peak.tflops.get(_PEAK_NAMES.get(dtype, dtype))
        return {"gbs": self._peak.gbs, **({"tflops": tflops} if tflops else {})}

    def time(self, works: Sequence[Work], options: TimingOptions) -> Sequence[Timing]:
        """Time the works interleaved."""
        from gpukit.measure import time_works

        return time_works(works, options)


def open_target(device: str) -> GpuTarget:
    """Open ``cuda:1``, ``1`` or ``auto`` (the first GPU) and make it CuPy's current device for
    this process.

    Raises:
        ArgumentError: no such form of name, or a device that is no GPU.
        NoDeviceError: no CuPy, no driver, or no such GPU; says what to do.
    """
    from gpukit import devices

    name = "cuda:0" if device == "auto" else f"cuda:{device}" if device.isdigit() else device
    try:
        opened = devices.get(name)
    except (ArgumentError, NoDeviceError):
        raise
    except GpukitError as problem:  # CuPy is missing or cannot be imported
        raise NoDeviceError(str(problem)) from problem
    from gpukit.devices.cuda import CudaDevice, load_cupy

    if not isinstance(opened, CudaDevice):
        raise ArgumentError(f"device {device!r} has no clock to measure with; use a CUDA device")
    load_cupy().cuda.Device(opened.index).use()
    return GpuTarget(opened)
