"""What tensor maps may say: names of their fields, and the rules of the driver that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpukit.emulator.architecture import split_arch
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import as_integer, items, refusal, shown

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


@dataclass(frozen=True, slots=True)
class Unit:
    """The least that is copied: ``elements`` of them take ``item`` bytes of global memory.

    In shared memory they take ``width`` bytes, the last ones of which are padding.
    """

    elements: int
    item: int
    width: int

    @property
    def padded(self) -> bool:
        return self.item != self.width


# Types of 4 and 6 bits, of sm_100 and later; those of 16 bytes come in boxes of 128 elements.
PACKED = {
    "16u4_align8b": Unit(2, 1, 1),
    "16u4_align16b": Unit(16, 8, 16),
    "16u6_align16b": Unit(16, 12, 16),
}
PACKED_BOX = 128
ALL_TYPES = (*DATA_TYPES, *PACKED)
LATER = 100  # the architecture that brought them
# name -> bytes of the inner box dimension at most (0: no limit)
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
LATER_SWIZZLES = {"128B_atom_32B": 128, "128B_atom_32B_flip_8B": 128, "128B_atom_64B": 128}
ALL_SWIZZLES = {**SWIZZLES, **LATER_SWIZZLES}  # the later ones are of sm_100
_PACKED_SWIZZLES = ("none", "128B", "128B_atom_32B")
INTERLEAVES = ("none", "16B", "32B")
L2_PROMOTIONS = ("none", "64B", "128B", "256B")
OOB_FILLS = ("zero", "nan")


def check_names(
    data_type: str, interleave: str, swizzle: str, l2_promotion: str, oob_fill: str, arch: str
) -> None:
    """Raise ``LaunchError`` for a name that does not exist, or not on ``arch``, or not with it."""
    later = split_arch(arch)[0] >= LATER
    _one_of("data_type", data_type, ALL_TYPES)
    if data_type in PACKED and not later:
        raise LaunchError(
            f"data_type: {data_type} needs compute capability 10.0; accepted: "
            f"{', '.join(DATA_TYPES)}"
        )
    _one_of("interleave", interleave, INTERLEAVES)
    _one_of("swizzle", swizzle, ALL_SWIZZLES)
    if swizzle in LATER_SWIZZLES and not later:
        raise LaunchError(
            f"swizzle: the driver refuses {swizzle} on compute capability 9.0; accepted: "
            f"{', '.join(SWIZZLES)}"
        )
    if is_padded(data_type):
        _one_of("swizzle", swizzle, _PACKED_SWIZZLES)
    _one_of("l2_promotion", l2_promotion, L2_PROMOTIONS)
    _one_of("oob_fill", oob_fill, OOB_FILLS)
    if interleave != "none":
        raise LaunchError(f"interleave: {interleave} is not emulated; accepted: none")
    floats = ("f16", "f32", "f64")
    if oob_fill == "nan" and not DATA_TYPES.get(data_type, (0, ""))[1].endswith(floats):
        raise LaunchError(f"oob_fill: nan needs a floating-point data_type, not {data_type}")


def is_padded(data_type: str) -> bool:
    """Whether elements are packed in global memory, and not in shared memory."""
    return data_type in PACKED and PACKED[data_type].padded


def unit_of(data_type: str) -> Unit:
    """The least that is copied of a type."""
    if data_type in PACKED:
        return PACKED[data_type]
    size = DATA_TYPES[data_type][0]
    return Unit(1, size, size)


def _one_of(what: str, value: str, accepted: Any) -> None:
    if not isinstance(value, str) or value not in accepted:
        raise LaunchError(f"{what}: {shown(value)} is unknown; accepted: {', '.join(accepted)}")


def integers_of(what: str, values: Sequence[int]) -> tuple[int, ...]:
    numbers = [as_integer(value) for value in items(what, values, object, "integers")]
    if None in numbers:
        raise refusal(what, values, "integers only")
    return tuple(number for number in numbers if number is not None)


def check_lengths(
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


def check_tensor(
    address: int, dims: tuple[int, ...], strides: tuple[int, ...], data_type: str
) -> None:
    align = 32 if is_padded(data_type) else 16
    if address % align:
        raise LaunchError(f"global_address: 0x{address:x} is not a multiple of {align}")
    for i, extent in enumerate(dims):
        if not 1 <= extent <= 1 << 32:
            raise LaunchError(f"global_dim[{i}]: {extent} is not in 1 to 2^32")
    for i, stride in enumerate(strides):
        if stride % align or not 0 <= stride < 1 << 40:
            raise LaunchError(
                f"global_strides[{i}]: {stride} bytes; must be a multiple of {align} below 2^40"
            )
    step = PACKED_BOX if is_padded(data_type) else unit_of(data_type).elements
    if dims[0] % step:
        raise LaunchError(
            f"global_dim[0]: {dims[0]}; must be a multiple of {step} with {data_type}"
        )


def check_box(data_type: str, box: tuple[int, ...], steps: tuple[int, ...], swizzle: str) -> None:
    for i, extent in enumerate(box):
        if not 1 <= extent <= 256:
            raise LaunchError(f"box_dim[{i}]: {extent} is not in 1 to 256")
    for i, step in enumerate(steps):
        if not 1 <= step <= 8:
            raise LaunchError(f"element_strides[{i}]: {step} is not in 1 to 8")
    if is_padded(data_type) and box[0] != PACKED_BOX:
        raise LaunchError(f"box_dim[0]: {box[0]}; must be {PACKED_BOX} with {data_type}")
    unit = unit_of(data_type)
    inner = box[0] * unit.width // unit.elements
    if inner % 16 or box[0] % unit.elements:
        raise LaunchError(f"box_dim[0]: {_bytes_in_words(box[0], unit)}; must be a multiple of 16")
    limit = ALL_SWIZZLES[swizzle]
    if limit and inner > limit:
        raise LaunchError(
            f"box_dim[0]: {_bytes_in_words(box[0], unit)}; swizzle {swizzle} allows {limit}"
        )


def _bytes_in_words(count: int, unit: Unit) -> str:
    size = "half a byte" if unit.elements > 1 else f"{unit.width} bytes"
    return f"{count} elements of {size} are {count * unit.width / unit.elements:g} bytes"
