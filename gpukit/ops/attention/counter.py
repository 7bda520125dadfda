"""The counter from which persistent CTAs take tiles."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from gpukit.devices.protocol import Device

_PER_THREAD = 2  # CUDA's name for the default stream that every thread has for itself
_SPARE = 4096  # counters of a device for launches that are captured
_counters: dict[tuple[str, int, int], Any] = {}
_spare: dict[str, list[Any]] = {}
_captured: list[Any] = []  # what graphs use must live as long as they may be replayed


def counter(device: Device) -> Any:
    """A u32 zero that no other launch uses at the same time; kernels leave a zero behind.

    Launches of a stream come one after another and share one. A captured launch has its own: its
    graph may be replayed beside others of the same stream.
    """
    if device.emulated:
        return device.xp.zeros(1, "uint32")
    stream = int(device.xp.cuda.get_current_stream(_index(device)).ptr)
    if device.xp.cuda.runtime.streamIsCapturing(stream):
        _captured.append(_for_capture(device))
        return _captured[-1]
    thread = threading.get_ident() if stream == _PER_THREAD else 0
    key = (device.name, stream, thread)
    if key not in _counters:
        _counters[key] = _zeros(device, 1)
        _refill(device)
    return _counters[key]


def _refill(device: Device) -> None:
    """Zeros made in time, so that a graph need not clear its own; once per device, or when used
    up."""
    if not _spare.get(device.name):
        zeros = _zeros(device, _SPARE)
        device.synchronize()  # any stream may use them
        _spare[device.name] = [zeros[i:i + 1] for i in range(_SPARE)]


def _for_capture(device: Device) -> Any:
    spare = _spare.get(device.name)
    return spare.pop() if spare else _zeros(device, 1)  # cleared by the graph, at every replay


def _zeros(device: Device, count: int) -> Any:
    with device.xp.cuda.Device(_index(device)):
        return device.xp.zeros(count, "uint32")


def _index(device: Device) -> int:
    return _number(device.name)


@cache
def _number(name: str) -> int:
    return int(name.removeprefix("cuda:"))
