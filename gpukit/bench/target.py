"""The usual targets: a CUDA device timed by `gpukit.measure`, or an emulated one, not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gpukit.bench.emulated_target import EmulatedTarget
from gpukit.errors import ArgumentError, GpukitError, NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpukit.devices.cuda import CudaDevice
    from gpukit.devices.emulated import EmulatedDevice
    from gpukit.devices.protocol import Device
    from gpukit.measure import Timing, TimingOptions, Work

#: Element types whose rate a datasheet prints under another name.
_PEAK_NAMES = {"e4m3": "fp8", "e5m2": "fp8"}


class GpuTarget:
    """A CUDA device made current; see `gpukit.bench.model.Target`."""

    timed = True

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

    def counters(self) -> dict[str, Any] | None:
        """Hardware keeps its counters to itself."""
        return None


def is_emulated(device: str) -> bool:
    """Whether a device name means an emulated device; ``auto`` does where there is no GPU.

    Raises `NoDeviceError` when looking for a GPU fails.
    """
    if device != "auto":
        return device.partition(":")[0] == "emu"
    return bool(_device(device).emulated)


def open_target(device: str) -> GpuTarget | EmulatedTarget:
    """Open ``cuda:1``, ``1``, ``emu:h100`` or ``auto`` (the first GPU, else the emulator).

    A GPU becomes CuPy's current device for this process.

    Raises:
        ArgumentError: no such form of name.
        NoDeviceError: no CuPy, no driver, or no such GPU; says what to do.
    """
    opened = _device(f"cuda:{device}" if device.isdecimal() else device)
    if opened.emulated:
        return EmulatedTarget(cast("EmulatedDevice", opened))
    from gpukit.devices.cuda import load_cupy

    cuda = cast("CudaDevice", opened)
    load_cupy().cuda.Device(cuda.index).use()
    return GpuTarget(cuda)


def _device(name: str) -> Device:
    from gpukit import devices

    try:
        return devices.get(name)
    except (ArgumentError, NoDeviceError):
        raise
    except GpukitError as problem:  # CuPy is missing or cannot be imported
        raise NoDeviceError(str(problem)) from problem
