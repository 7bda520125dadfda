from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit.measure import Monitor, nvml
from gpukit.measure.nvml import NvmlDevice, Reading, decode_reasons
from gpukit.measure.telemetry import Range, summarize


class FakeNvmlError(Exception):
    pass


def fake_nvml(**overrides: Any) -> SimpleNamespace:
    """The part of pynvml that is used, for one device "GPU-1"."""

    def by_uuid(uuid: str) -> str:
        if uuid != "GPU-1":
            raise FakeNvmlError("Not Found")
        return "handle"

    bits = {f"nvmlClocksThrottleReason{key}": 1 << i for i, key in enumerate(nvml.REASONS)}
    calls = {
        "NVMLError": FakeNvmlError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetPowerUsage": lambda handle: 412_345,
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0b10,
    }
    return SimpleNamespace(**calls | bits | overrides)


def not_supported(*arguments: Any) -> float:
    raise FakeNvmlError("Not Supported")


def test_a_reading_has_units_and_reason_names() -> None:
    assert NvmlDevice(fake_nvml(), "handle").read() == Reading(
        1980, 2619, pytest.approx(412.345), 61, ("sw_power_cap",)
    )


def test_what_a_device_does_not_tell_is_none() -> None:
    silent = fake_nvml(
        nvmlDeviceGetPowerUsage=not_supported,
        nvmlDeviceGetCurrentClocksThrottleReasons=not_supported,
    )
    reading = NvmlDevice(silent, "handle").read()
    assert reading.power_w is None and reading.reasons == ()
    assert reading.sm_mhz == 1980


def test_reason_bits_are_the_real_ones() -> None:
    pynvml = pytest.importorskip("pynvml")
    bits = (
        pynvml.nvmlClocksEventReasonSwPowerCap
        | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        | pynvml.nvmlClocksEventReasonGpuIdle
    )
    assert decode_reasons(pynvml, bits) == ("sw_power_cap", "hw_thermal_slowdown")
    assert decode_reasons(pynvml, 0) == ()


def test_every_nvml_function_in_use_exists() -> None:
    pynvml = pytest.importorskip("pynvml")
    used = [name for name in vars(fake_nvml()) if name.lower().startswith("nvml")]
    used += ["nvmlDeviceGetMaxClockInfo", "nvmlSystemGetDriverVersion",
             "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"]  # fmt: skip
    assert [name for name in used if not hasattr(pynvml, name)] == []


def reading(sm: float | None, *reasons: str) -> Reading:
    return Reading(sm, 2619.0, None, 60.0, reasons)


def test_a_report_sums_the_readings_up() -> None:
    report = summarize([reading(1980), reading(1700, "sw_power_cap"), reading(None)])
    assert report is not None
    assert report.sm_mhz == Range(1700, 1840, 1980)
    assert report.power_w is None
    assert report.readings == 3
    assert summarize([]) is None


@pytest.mark.parametrize(
    ("reason", "throttled"),
    [("sw_power_cap", False), ("sync_boost", False), ("hw_slowdown", True),
     ("hw_thermal_slowdown", True), ("sw_thermal_slowdown", True),
     ("hw_power_brake_slowdown", True)],
)  # fmt: skip
def test_only_distorting_reasons_throttle(reason: str, throttled: bool) -> None:
    report = summarize([reading(1980), reading(1500, reason)])
    assert report is not None
    assert report.throttled is throttled
    assert report.reasons == (reason,)


def test_a_report_is_jsonable() -> None:
    report = summarize([reading(1980, "hw_slowdown")])
    assert report is not None
    told = json.loads(json.dumps(report.as_dict()))
    assert told["sm_mhz"] == {"min": 1980, "median": 1980, "max": 1980}
    assert told["throttled"] is True and told["reasons"] == ["hw_slowdown"]
    assert told["power_w"] is None


class Counting:
    def __init__(self) -> None:
        self.reads = 0
        self.closed = False

    def read(self) -> Reading:
        self.reads += 1
        return reading(1000.0 + self.reads)

    def close(self) -> None:
        self.closed = True


def test_the_monitor_polls_until_the_block_ends() -> None:
    source = Counting()
    with Monitor("GPU-1", interval_s=0.005, source=source) as monitor:
        assert any(thread.name == "gpukit-clocks" for thread in threading.enumerate())
        time.sleep(0.1)
    seen = source.reads
    assert monitor.report is not None and 3 <= monitor.report.readings == seen
    assert not any(thread.name == "gpukit-clocks" for thread in threading.enumerate())
    monitor.close()
    assert source.closed


def test_a_short_block_still_has_a_reading_and_errors_pass_through() -> None:
    monitor = Monitor("GPU-1", source=Counting())
    with pytest.raises(ZeroDivisionError), monitor:
        1 / 0  # noqa: B018
    assert monitor.report is not None and monitor.report.readings == 1


def test_no_nvml_is_a_note_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake_nvml(nvmlInit=not_supported)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", broken)
    with Monitor("GPU-1") as monitor:
        pass
    assert monitor.report is None and monitor.sm_clock() is None
    assert monitor.note == "clocks were not read: Not Supported"


def test_an_absent_package_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert Monitor("GPU-1").note == "clocks were not read: nvidia-ml-py is not installed"


def test_devices_are_found_by_uuid_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake_nvml())
    assert nvml.open_device("GPU-1")[0] is not None
    device, note = nvml.open_device("GPU-2")
    assert device is None and "GPU-2" in note and "Not Found" in note
    assert nvml.open_device(None)[1].endswith("UUID is unknown")


def test_a_mig_slice_is_asked_through_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_uuid(uuid: str) -> str:
        if uuid != "MIG-7":
            raise FakeNvmlError("Not Found")
        return "slice"

    fake = fake_nvml(
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle={"slice": "parent"}.__getitem__,
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    device, _ = nvml.open_device("GPU-7")
    assert device is not None and device._handle == "parent"
