"""The counter from which persistent CTAs take tiles."""

from __future__ import annotations

import threading
from typing import Any

from gpukit.devices.protocol import Device

_PER_THREAD = 2  # CUDA's name for the default stream that every thread has for itself
_counters: dict[tuple[str, int, int], Any] = {}
_captured: list[Any] = []  # what graphs use must live as long as they may be replayed


def counter(device: Device) -> Any:
    """A u32 zero that no other launch uses at the same time; kernels leave a zero behind.

    Launches of a stream come one after another and share one. A captured launch has its own: its
    graph may be replayed beside others of the same stream.
    """
    if device.emulated:
        return _zero(device)
    stream = int(device.xp.cuda.get_current_stream().ptr)
    if device.xp.cuda.runtime.streamIsCapturing(stream):
        _captured.append(_zero(device))
        return _captured[-1]
    thread = threading.get_ident() if stream == _PER_THREAD else 0
    key = (device.name, stream, thread)
    if key not in _counters:
        _counters[key] = _zero(device)
    return _counters[key]


def _zero(device: Device) -> Any:
    return device.xp.zeros(1, "uint32")
