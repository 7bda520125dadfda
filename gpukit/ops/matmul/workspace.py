"""Copies of operands that TMA can address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit.devices.protocol import Device
from gpukit.ops import pack
from gpukit.ops.matmul.problem import Operand

_captured: list[Any] = []  # what graphs use must live as long as they may be replayed


class Copy(NamedTuple):
    """How an operand is packed.

    Attributes:
        make: takes what a bound launch takes for the operand; an array, already being filled.
        operand: how that lies in memory.
    """

    make: Callable[[Any], Any]
    operand: Operand


def bind(device: Device, matrices: Any) -> Copy:
    """Copies of [batch, rows, K], of any strides, along K with rows at multiples of 16 bytes."""
    batch, rows, k = matrices.shape
    dtype, size, step = matrices.dtype, matrices.dtype.itemsize, matrices.strides[0]
    width = pack.pitch(k, size)
    copies = [pack.plan(device, matrix, width).bind(device) for matrix in matrices]
    shape, target_step = (batch, rows, width), rows * width * size
    sources = matrices if device.emulated else None  # addresses alone keep nothing alive

    def make(source: Any) -> Any:
        target = empty(device, shape, dtype)
        if sources is not None:
            pairs: Any = zip(sources, target, strict=True)
        else:
            start = device.pointer(target)
            pairs = ((source + i * step, start + i * target_step) for i in range(batch))
        for copy, (matrix, place) in zip(copies, pairs, strict=True):
            copy(matrix, place)
        return target

    return Copy(make, Operand("k", width * size, rows * width * size, True))


def empty(device: Device, shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory for what follows on the current stream. While a CUDA graph is captured it is kept for
    good: the pool would give it to others while replays still write it."""
    array = device.empty(shape, dtype)
    if not device.emulated and _capturing(device):
        _captured.append(array)
    return array


def _capturing(device: Device) -> bool:
    cuda = device.xp.cuda
    index = int(device.name.removeprefix("cuda:"))
    return bool(cuda.runtime.streamIsCapturing(cuda.get_current_stream(index).ptr))
