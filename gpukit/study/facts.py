"""What a report needs besides rows: the memory interface, and machine code counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpukit import kernels
from gpukit.errors import CompileError, MissingDependencyError
from gpukit.study.design import FAMILY, FULL, sm_counts
from gpukit.study.turns import PUBLISHED_ARCH, count_turns

if TYPE_CHECKING:
    from gpukit.bench.model import Row, Target

_HELD = 200_000  # clock cycles: a tenth of a millisecond
_OF_DEVICE = ("name", "arch", "sm_count", "threads_per_sm", "l2_bytes", "memory_bytes")


def gather(target: Target) -> dict[str, Any]:
    """Facts of an open device, as JSON values: ``device``, ``memory``, ``turns`` with a note where
    they could not be counted."""
    return {"device": _device(target), "memory": _memory(target), "placement": _placement(target),
            **turns((PUBLISHED_ARCH, target.device.properties.arch))}


def turns(archs: tuple[str, ...]) -> dict[str, Any]:
    """Loop turns counted for these targets, or the reason why not."""
    try:
        counted = count_turns(tuple(dict.fromkeys(archs)))
    except (CompileError, MissingDependencyError) as problem:
        return {"turns": [], "turns_note": " ".join(str(problem).split())}
    return {"turns": [turn.to_dict() for turn in counted], "turns_note": ""}


def mismatch(rows: Sequence[Row], facts: Any) -> str:
    """Why rows and facts that were read from files make no report together; empty if they do."""
    device = facts.get("device") if isinstance(facts, dict) else None
    if not isinstance(device, dict) or not {"timed", *_OF_DEVICE} <= set(device):
        return "the facts describe no device"
    if others := sorted({row.family for row in rows} - {FAMILY}):
        return f"rows of {', '.join(others)}, not of a study"
    names = {row.device for row in rows}
    strangers = (names - {device["name"]} if device["timed"]
                 else {name for name in names if not name.startswith("emu:")})
    return f"rows of {', '.join(sorted(strangers))}, facts of {device['name']}" if strangers else ""


def _device(target: Target) -> dict[str, Any]:
    properties = target.device.properties
    return {"timed": target.timed, **{name: getattr(properties, name) for name in _OF_DEVICE}}


def _placement(target: Target) -> dict[str, int]:
    """On how many SMs so many CTAs of 1024 threads are, each held until all have started."""
    if not target.timed:
        return {}
    device = target.device
    kernel = device.compile(kernels.get("timing.where"), {})
    found = {}
    for ctas in sm_counts(device.properties, FULL):
        places = device.empty((ctas,), "uint32")
        kernel.launch((ctas,), (1024,), (_HELD, places))
        found[str(ctas)] = len(set(device.to_host(places).tolist()))
    return found


def _memory(target: Target) -> dict[str, Any]:
    """Bus width in bits and memory clocks in MHz, as driver and NVML tell them, and the datasheet;
    nothing for an emulated device."""
    if not target.timed:
        return {}
    from gpukit.measure import peak_for

    attributes = target.device.xp.cuda.Device(target.device.index).attributes
    peak = peak_for(target.name)
    clocks = target.environment().get("max_clocks_mhz") or {}
    return {
        "bus_bits": attributes.get("GlobalMemoryBusWidth"),
        "clock_mhz_driver": attributes.get("MemoryClockRate", 0) / 1e3 or None,
        "clock_mhz_nvml": clocks.get("mem"),
        "sm_clock_mhz_nvml": clocks.get("sm"),
        "datasheet_gbs": peak.gbs if peak else None,
        "datasheet": peak.source.partition(" (")[0] if peak else None,
    }
