"""Copies of matrices that TMA can read: rows at multiples of 16 bytes, zeros in the pad columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.errors import UnsupportedError
from gpukit.kernels.spec import Value
from gpukit.ops.gemv import low_bit

_CHUNK = 16
_THREADS = 256
_MAX_ROW = 2**31 - 16  # bytes, counted in 32 bits


def pitch(cols: int, itemsize: int, align: int = _CHUNK) -> int:
    """Elements from row to row of a packed matrix: `cols` rounded up to `align` bytes."""
    return -(-cols * itemsize // align) * align // itemsize


class Plan(NamedTuple):
    """A decided launch, for any arrays that lie like those it was decided for."""

    name: str
    tunables: dict[str, Value]
    ctas: int
    numbers: tuple[int, ...]

    def bind(self, device: Device) -> Callable[..., None]:
        """The launch: takes `Device.pointer`s of src and dst."""
        kernel = device.compile(kernels.get(self.name), self.tunables)
        enqueue, numbers = kernel.bind((self.ctas,), (_THREADS,)), self.numbers
        return lambda src, dst: enqueue(src, dst, *numbers)


def pack(device: Device, src: Any, dst: Any) -> None:
    """dst[:, :cols] = src, zeros in dst's other columns.

    Args:
        src: [rows, cols], elements of 1, 2 or 4 bytes, any strides in whole elements.
        dst: [rows, pitch] of src's element size, C-contiguous, aligned to 16 bytes; its rows are a
            multiple of 16 bytes long, at least `pitch(cols, itemsize)`. Must not overlap src.
    """
    if dst.size:
        chosen = plan(device, src, dst.shape[1])
        device.compile(kernels.get(chosen.name), chosen.tunables).launch(
            (chosen.ctas,), (_THREADS,), (src, dst, *chosen.numbers))


def plan(device: Device, src: Any, width: int) -> Plan:
    """What `pack` launches for rows of `width` elements, neither of them empty."""
    if src.shape[1] < 2 or src.strides[1] == src.dtype.itemsize:
        return _rows(device, src, width)
    return _tiled(device, src, width)


def _rows(device: Device, src: Any, width: int) -> Plan:
    (rows, cols), itemsize = src.shape, src.dtype.itemsize
    if cols * itemsize > _MAX_ROW:
        raise UnsupportedError(f"matmul: rows of {cols * itemsize} bytes would have to be copied; "
                               f"accepted: up to {_MAX_ROW}, or rows at multiples of 16 bytes")
    row_chunks = width * itemsize // _CHUNK
    chunks = rows * row_chunks
    # Four chunks a thread once that leaves every SM full of threads.
    unroll = 4 if chunks >= 4 * device.properties.sm_count * 1024 else 1
    ctas = -(-chunks // (_THREADS * unroll))
    index = "u32" if ctas * _THREADS * unroll < 2**32 else "u64"
    return Plan("matmul.pack", {"unroll": unroll, "index": index}, ctas,
                (rows, cols * itemsize, src.strides[0], row_chunks, *divmod(_THREADS, row_chunks)))


def _tiled(device: Device, src: Any, width: int) -> Plan:
    (rows, cols), itemsize = src.shape, src.dtype.itemsize
    down = abs(src.strides[0]) <= abs(src.strides[1])
    tunables: dict[str, Value] = {"dtype": f"u{8 * itemsize}", "down": str(down).lower(),
                                  "vec": _vec(device, src) if down else 1}
    side = 128 // itemsize
    ctas = -(-rows // side) * -(-width // side)
    strides = [stride // itemsize for stride in src.strides]
    return Plan("matmul.pack_tiled", tunables, ctas,
                (rows, cols, *strides, width * itemsize // _CHUNK))


def _vec(device: Device, src: Any) -> int:
    """Elements per load down the columns: what divides their addresses and their length."""
    rows: int = src.shape[0]
    itemsize: int = src.dtype.itemsize
    if src.strides[0] != itemsize:
        return 1
    bits = device.phase(src) | src.strides[1] | rows * itemsize | _CHUNK
    return low_bit(bits) // itemsize
