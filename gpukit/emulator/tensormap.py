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
from gpukit.emulator.inputs import as_integer, instance, integer, items, refusal, shown
from gpukit.emulator.mem.allocations import GlobalMemory

BYTES, ALIGN = 128, 64
_MAGIC = b"gkTM"
_FORMAT = struct.Struct("<4s6B6xQ5I4Q5H5B")

# In the order of the driver's enumerations: name -> element bytes, PTX type of its elements.
DATA_TYPES: dict[str, tuple[int, str]] = {
    "uint8": (1, "u8"),
    "uint16": (2, "u16"),
    "uint32": (4, "u32"),
    "int32": (4, "s32"),
    "uint64": (8, "u64"),
    "int64": (8, "s64"),
    "float16": (2, "f16"),
    "float32": (4, "f32"),
    "float64": (8, "f64"),
    "bfloat16": (2, "bf16"),
    "float32_ftz": (4, "f32"),
    "tfloat32": (4, "f32"),
    "tfloat32_ftz": (4, "f32"),
}
_PACKED = ("16u4_align8b", "16u4_align16b", "16u6_align16b")
# name -> bytes of the inner box dimension at most (0: no limit)
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
_LATER_SWIZZLES = ("128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B")  # not on sm_90
INTERLEAVES = ("none", "16B", "32B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")


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
) -> bytes:
    """A tensor map for the emulator, by the rules of ``cuTensorMapEncodeTiled``.

    All sequences start with the innermost dimension. ``global_address`` is a device address
    (``GlobalMemory.map``); ``global_strides`` are bytes of all dimensions but the innermost;
    ``box_dim`` and ``element_strides`` count elements. ``data_type`` is a name of ``DATA_TYPES``,
    ``swizzle`` one of ``SWIZZLES``. Returns 128 bytes, to be passed by value into a
    ``const __grid_constant__`` parameter or placed in memory at a multiple of 64 bytes.

    Raises ``LaunchError`` for whatever the driver answers with ``CUDA_ERROR_INVALID_VALUE``, and
    for interleaved layouts and packed 4- and 6-bit types, which the emulator does not have.
    """
    global_address = integer("global_address", global_address, 0, (1 << 64) - 1)
    dims, strides = _integers("global_dim", global_dim), _integers("global_strides", global_strides)
    box, steps = _integers("box_dim", box_dim), (1,) * len(dims)
    if element_strides is not None:
        steps = _integers("element_strides", element_strides)
    _check_names(data_type, interleave, swizzle, l2_promotion, oob_fill)
    _check_lengths(dims, strides, box, steps)
    _check_tensor(global_address, dims, strides)
    _check_box(DATA_TYPES[data_type][0], box, steps, swizzle)
    return _FORMAT.pack(
        _MAGIC,
        list(DATA_TYPES).index(data_type),
        len(dims),
        INTERLEAVES.index(interleave),
        list(SWIZZLES).index(swizzle),
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
        list(DATA_TYPES)[kind],
        address,
        tuple(extent + 1 for extent in dims[:rank]),
        tuple(strides[: rank - 1]),
        tuple(box[:rank]),
        tuple(steps[:rank]),
        list(SWIZZLES)[swizzle],
        OOB_FILLS[fill],
    )


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A kernel argument: a tensor map of a NumPy array, made when the launch gives it an address.

    ``box`` counts elements per dimension, innermost first. By default the map covers the whole
    array as it lies in memory; ``dims`` (elements) and ``strides`` (bytes, without the innermost)
    override that, innermost first. ``data_type`` follows the array's dtype.
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


# The driver's rules


def _check_names(
    data_type: str, interleave: str, swizzle: str, l2_promotion: str, oob_fill: str
) -> None:
    if data_type in _PACKED:
        raise LaunchError(f"data_type: {data_type} is not emulated; use uint8 and count bytes")
    _one_of("data_type", data_type, DATA_TYPES)
    _one_of("interleave", interleave, INTERLEAVES)
    if swizzle in _LATER_SWIZZLES:
        raise LaunchError(
            f"swizzle: the driver refuses {swizzle} on compute capability 9.0; accepted: "
            f"{', '.join(SWIZZLES)}"
        )
    _one_of("swizzle", swizzle, SWIZZLES)
    _one_of("l2_promotion", l2_promotion, L2_PROMOTIONS)
    _one_of("oob_fill", oob_fill, OOB_FILLS)
    if interleave != "none":
        raise LaunchError(f"interleave: {interleave} is not emulated; accepted: none")
    if oob_fill == "nan" and not DATA_TYPES[data_type][1].endswith(("f16", "f32", "f64")):
        raise LaunchError(f"oob_fill: nan needs a floating-point data_type, not {data_type}")


def _one_of(what: str, value: str, accepted: Any) -> None:
    if not isinstance(value, str) or value not in accepted:
        raise LaunchError(f"{what}: {shown(value)} is unknown; accepted: {', '.join(accepted)}")


def _integers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    numbers = [as_integer(value) for value in items(what, values, object, "integers")]
    if None in numbers:
        raise refusal(what, values, "integers only")
    return tuple(number for number in numbers if number is not None)


def _check_lengths(
    dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    rank = len(dims)
    if not 1 <= rank <= 5:
        raise LaunchError(f"global_dim: {rank} dimensions were given; accepted: 1 to 5")
    for what, given, wanted in (
        ("global_strides", strides, rank - 1),
        ("box_dim", box, rank),
        ("element_strides", steps, rank),
    ):
        if len(given) != wanted:
            raise LaunchError(f"{what}: {len(given)} entries for rank {rank}, which needs {wanted}")


def _check_tensor(address: int, dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    if address % 16:
        raise LaunchError(f"global_address: 0x{address:x} is not a multiple of 16")
    for i, extent in enumerate(dims):
        if not 1 <= extent <= 1 << 32:
            raise LaunchError(f"global_dim[{i}]: {extent} is not in 1 to 2^32")
    for i, stride in enumerate(strides):
        if stride % 16 or not 0 <= stride < 1 << 40:
            raise LaunchError(
                f"global_strides[{i}]: {stride} bytes; must be a multiple of 16 below 2^40"
            )


def _check_box(size: int, box: tuple[int, ...], steps: tuple[int, ...], swizzle: str) -> None:
    for i, extent in enumerate(box):
        if not 1 <= extent <= 256:
            raise LaunchError(f"box_dim[{i}]: {extent} is not in 1 to 256")
    for i, step in enumerate(steps):
        if not 1 <= step <= 8:
            raise LaunchError(f"element_strides[{i}]: {step} is not in 1 to 8")
    inner = box[0] * size
    if inner % 16:
        raise LaunchError(
            f"box_dim[0]: {box[0]} elements of {size} bytes are {inner} bytes; must be a multiple "
            "of 16"
        )
    limit = SWIZZLES[swizzle]
    if limit and inner > limit:
        raise LaunchError(
            f"box_dim[0]: {box[0]} elements of {size} bytes are {inner} bytes; swizzle {swizzle} "
            f"allows {limit}"
        )
