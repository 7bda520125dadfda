"""Factors of blocks of K for Blackwell's tensor core: packed, and a tensor map of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_sm100_library as specs
from gpukit.ops.matmul import maps, workspace

Pack = Callable[[Any], tuple[Any, Any]]
_WORDS = specs.SCALE_CHUNK // 4  # 32-bit ones of a chunk


class Tiling(NamedTuple):
    """How the matmul cuts an operand: rows of a tile, steps of 128 bytes of K, chunks of four
    blocks of K in a step."""

    rows: int
    steps: int
    groups: int

    @property
    def chunks(self) -> int:
        """Of 128 rows, in a tile."""
        return -(-self.rows // specs.SCALE_ROWS)


def bind(device: Device, factors: Any, tiling: Tiling) -> Pack:
    """Packing of [rows, blocks] bytes of any strides.

    Returns:
        Takes what a bound launch takes for the factors; an array, already being filled, that must
        be kept until its reader is enqueued, and its tensor map: a box is what a step of a tile
        needs.
    """
    rows, blocks = factors.shape
    boxes = -(-rows // tiling.rows) * tiling.steps
    in_box = tiling.groups * tiling.chunks
    words = boxes * in_box * _WORDS
    kernel = device.compile(specs.PACK_SCALES, {})
    enqueue = kernel.bind((-(-words // specs.PACK_THREADS),), (specs.PACK_THREADS,))
    numbers = (words, rows, blocks, *factors.strides, tiling.rows, tiling.steps, tiling.groups,
               tiling.chunks)
    size = specs.SCALE_CHUNK
    encode = maps.bound(device, TensorMap(
        "u32", (_WORDS, boxes * in_box, 1), (size, size * boxes * in_box), (_WORDS, in_box, 1), 0))

    def pack(source: Any) -> tuple[Any, Any]:
        target = workspace.empty(device, (words,), "uint32")
        place = device.pointer(target)
        enqueue(source, place, *numbers)
        return target, encode(place)

    return pack
