"""Copies of operands that TMA can address."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpukit.devices.protocol import Device
from gpukit.ops.matmul.problem import Operand

_captured: list[Any] = []  # what graphs use must live as long as they may be replayed


class Packed(NamedTuple):
    """A workspace [batch, rows, pitch], and how it lies in memory."""

    array: Any
    operand: Operand


def pack(device: Device, matrices: Any) -> Packed:
    """A copy of [batch, rows, K], of any strides, with rows at multiples of 16 bytes."""
    from gpukit.ops import pack as packing

    batch, rows, k = matrices.shape
    size = matrices.dtype.itemsize
    pitch = packing.pitch(k, size)
    copy = empty(device, (batch, rows, pitch), matrices.dtype)
    for i in range(batch):
        packing.pack(device, matrices[i], copy[i])
    return Packed(copy, Operand("k", pitch * size, rows * pitch * size, True))


def empty(device: Device, shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory for what follows on the current stream. While a CUDA graph is captured it is kept for
    good: the pool would give it to others while replays still write it."""
    array = device.empty(shape, dtype)
    if not device.emulated and _capturing(device):
        _captured.append(array)
    return array


def _capturing(device: Device) -> bool:
    stream = device.xp.cuda.get_current_stream()
    return bool(device.xp.cuda.runtime.streamIsCapturing(stream.ptr))
