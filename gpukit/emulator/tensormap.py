"""Tensor maps: what a TMA instruction needs to know about a tensor in global memory.

``encode`` takes what ``cuTensorMapEncodeTiled`` takes and refuses what it refuses; its 128 bytes
are a format of our own that only the emulator reads. ``TensorMap`` describes a NumPy array and can
be given to ``gpukit.emulator.run`` as a by-value argument.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import instance, integer
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.tensormap_rules import (
    ALL_SWIZZLES,
    ALL_TYPES,
    DATA_TYPES,
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    check_box,
    check_lengths,
    check_names,
    check_tensor,
    integers_of,
)

__all__ = [
    "DATA_TYPES",
    "INTERLEAVES",
    "L2_PROMOTIONS",
    "OOB_FILLS",
    "SWIZZLES",
    "Encoded",
    "TensorMap",
    "decode",
    "encode",
]

BYTES, ALIGN = 128, 64
_MAGIC = b"gkTM"
_FORMAT = struct.Struct("<4s6B6xQ5I4Q5H5B")


@dataclass(frozen=True, slots=True)
class Encoded:
    """The fields of a tensor map, innermost dimension first; ``strides`` has rank - 1 entries."""

    data_type: str
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    oob_fill: str

    @property
    def rank(self) -> int:
        return len(self.dims)


def encode(
    data_type: str,
    global_address: int,
    global_dim: Sequence[int],
    global_strides: Sequence[int],
    box_dim: Sequence[int],
    element_strides: Sequence[int] | None = None,
    interleave: str = "none",
    swizzle: str = "none",
    l2_promotion: str = "none",
    oob_fill: str = "zero",
    arch: str = "sm_90a",
) -> bytes:
    """A tensor map for the emulator, by the rules of ``cuTensorMapEncodeTiled``.

    All sequences start with the innermost dimension. ``global_address`` is a device address
    (``GlobalMemory.map``); ``global_strides`` are bytes of all dimensions but the innermost;
    ``box_dim`` and ``element_strides`` count elements. ``data_type`` is a name of ``DATA_TYPES``,
    ``swizzle`` one of ``SWIZZLES``; GPUs from sm_100 on (``arch``) have more of both, those of
    ``PACKED`` and ``LATER_SWIZZLES``. Returns 128 bytes, to be passed by value into a
    ``const __grid_constant__`` parameter or placed in memory at a multiple of 64 bytes.

    Raises ``LaunchError`` for whatever the driver answers with ``CUDA_ERROR_INVALID_VALUE``, and
    for interleaved layouts, which the emulator does not have.
    """
    global_address = integer("global_address", global_address, 0, (1 << 64) - 1)
    dims = integers_of("global_dim", global_dim)
    strides = integers_of("global_strides", global_strides)
    box, steps = integers_of("box_dim", box_dim), (1,) * len(dims)
    if element_strides is not None:
        steps = integers_of("element_strides", element_strides)
    check_names(data_type, interleave, swizzle, l2_promotion, oob_fill, arch)
    check_lengths(dims, strides, box, steps)
    check_tensor(global_address, dims, strides, data_type)
    check_box(data_type, box, steps, swizzle)
    return _FORMAT.pack(
        _MAGIC,
        ALL_TYPES.index(data_type),
        len(dims),
        INTERLEAVES.index(interleave),
        list(ALL_SWIZZLES).index(swizzle),
        L2_PROMOTIONS.index(l2_promotion),
        OOB_FILLS.index(oob_fill),
        global_address,
        *_padded([extent - 1 for extent in dims], 5),
        *_padded(strides, 4),
        *_padded(box, 5),
        *_padded(steps, 5),
    ).ljust(BYTES, b"\0")


@lru_cache(maxsize=1024)
def decode(raw: bytes) -> Encoded | None:
    """The fields of an encoded tensor map, or None if these bytes are none of ours."""
    magic, kind, rank, _, swizzle, _, fill, address, *rest = _FORMAT.unpack(raw[: _FORMAT.size])
    if magic != _MAGIC:
        return None
    dims, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:]
    return Encoded(
        ALL_TYPES[kind],
        address,
        tuple(extent + 1 for extent in dims[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
        tuple(steps[:rank]),
        list(ALL_SWIZZLES)[swizzle],
        OOB_FILLS[fill],
    )


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A kernel argument: a tensor map of a NumPy array, made when the launch gives it an address.

    ``box`` counts elements per dimension, innermost first. By default the map covers the whole
    array as it lies in memory; ``dims`` (elements) and ``strides`` (bytes, without the innermost)
    override that, innermost first. ``data_type`` follows the array's dtype. ``arch`` as in
    ``encode``.
    """

    array: np.ndarray[Any, Any]
    box: Sequence[int]
    data_type: str | None = None
    dims: Sequence[int] | None = None
    strides: Sequence[int] | None = None
    element_strides: Sequence[int] | None = None
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "zero"
    arch: str = "sm_90a"

    def encode(self, memory: GlobalMemory) -> bytes:
        """The 128 bytes; maps the array into ``memory``. Raises ``LaunchError``."""
        array = instance("TensorMap", self.array, np.ndarray, "a NumPy array")
        if self.dims is None and not array.flags.c_contiguous:
            raise LaunchError("TensorMap: the array is not C-contiguous; give dims and strides")
        return encode(
            self.data_type or _name_of(array.dtype),
            memory.map(array, "a tensor map's array"),
            array.shape[::-1] if self.dims is None else self.dims,
            array.strides[-2::-1] if self.strides is None else self.strides,
            self.box,
            self.element_strides,
            self.interleave,
            self.swizzle,
            self.l2_promotion,
            self.oob_fill,
            self.arch,
        )


def _name_of(dtype: np.dtype[Any]) -> str:
    name = str(dtype.name)
    if name in DATA_TYPES:
        return name
    if dtype.itemsize == 1:
        return "uint8"
    raise LaunchError(
        f"data_type: no tensor map type follows from dtype {dtype}; name one of "
        f"{', '.join(DATA_TYPES)}"
    )


def _padded(values: Sequence[int], count: int) -> list[int]:
    return [*values, *[0] * (count - len(values))]
