"""NVML through nvidia-ml-py: one device, found by UUID, never by index.

An NVML index is not a CUDA index once CUDA_VISIBLE_DEVICES is set; a neighbour's clocks would
be reported as ours.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# NVML constant (clocks event reason, older name: throttle reason) -> our name for it.
REASONS = {
    "ApplicationsClocksSetting": "applications_clocks_setting",
    "SwPowerCap": "sw_power_cap",
    "HwSlowdown": "hw_slowdown",
    "SyncBoost": "sync_boost",
    "SwThermalSlowdown": "sw_thermal_slowdown",
    "HwThermalSlowdown": "hw_thermal_slowdown",
    "HwPowerBrakeSlowdown": "hw_power_brake_slowdown",
    "DisplayClockSetting": "display_clock_setting",
}


class Reading(NamedTuple):
    """One poll; None for what the device does not tell."""

    sm_mhz: float | None
    mem_mhz: float | None
    power_w: float | None
    temp_c: float | None
    reasons: tuple[str, ...]


class NvmlDevice:
    """A device handle of an initialised NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> Reading:
        """Clocks in MHz, power in W, temperature in degrees Celsius, and event reasons."""
        nvml = self._nvml
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage)
        return Reading(
            sm_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            mem_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            temp_c=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            reasons=self._reasons(),
        )

    def max_clocks_mhz(self) -> dict[str, float | None]:
        """The highest SM and memory clocks the device runs at."""
        nvml = self._nvml
        return {
            "sm": self._ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            "mem": self._ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        }

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _reasons(self) -> tuple[str, ...]:
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return decode_reasons(self._nvml, int(bits or 0))

    def _ask(self, question: Callable[..., float], *arguments: Any) -> float | None:
        try:
            return question(self._handle, *arguments)
        except self._nvml.NVMLError:  # not supported on this board, or in a virtual machine
            return None


def decode_reasons(nvml: Any, bits: int) -> tuple[str, ...]:
    """The names of the set bits, idleness aside."""
    return tuple(
        name for key, name in REASONS.items()
        if bits & getattr(nvml, f"nvmlClocksThrottleReason{key}")
    )  # fmt: skip


def open_device(uuid: str | None) -> tuple[NvmlDevice | None, str]:
    """The device with this UUID, or None and a note on why there is none."""
    try:
        import pynvml as nvml
    except ImportError:
        return None, "clocks were not read: nvidia-ml-py is not installed"
    if uuid is None:
        return None, "clocks were not read: the device's UUID is unknown"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, f"clocks were not read: {error}"
    try:
        return NvmlDevice(nvml, _handle(nvml, uuid)), ""
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        return None, f"clocks of {uuid} were not read: {error}"


def driver_version() -> str | None:
    """The NVIDIA driver's version, like ``580.159.03``; None without NVML."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:  # absent package or absent driver
        return None
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _handle(nvml: Any, uuid: str) -> Any:
    """The handle to ask; for a MIG slice (CUDA tells the slice's UUID) its parent's."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        slice_ = nvml.nvmlDeviceGetHandleByUUID(uuid.replace("GPU-", "MIG-", 1))
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slice_)
