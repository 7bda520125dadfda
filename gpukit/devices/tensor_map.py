"""What TMA needs to know about a matrix in global memory, and the hardware's rules for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gpukit.errors import ArgumentError

BYTES, ALIGN = 128, 64


@dataclass(frozen=True)
class TensorMap:
    """A request for a tensor map: `Device.tensor_map` turns it into a kernel argument.

    Attributes:
        element: a name of `ELEMENTS`; fp8 travels as "u8".
        dims: extent in elements, innermost first, 1 to 5 of them.
        strides: bytes from one index to the next, of `dims[1:]`.
        box: what one copy moves, in elements, innermost first.
        swizzle: span in bytes within which 16-byte chunks are permuted in shared memory: 0 (rows
            as they are), 32, 64 or 128.
        l2_promotion: bytes that a miss fetches into L2 at least: 0, 64, 128 or 256.
    """

    element: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128
    l2_promotion: int = 256


@dataclass(frozen=True)
class Element:
    """An element type of tensor maps.

    Attributes:
        driver: value in the driver's CUtensorMapDataType.
        long_name: NumPy's name, which the emulator uses ("tfloat32" is not one of NumPy's).
    """

    itemsize: int
    driver: int
    long_name: str


ELEMENTS = {
    "u8": Element(1, 0, "uint8"),
    "u16": Element(2, 1, "uint16"),
    "u32": Element(4, 2, "uint32"),
    "i32": Element(4, 3, "int32"),
    "u64": Element(8, 4, "uint64"),
    "i64": Element(8, 5, "int64"),
    "f16": Element(2, 6, "float16"),
    "f32": Element(4, 7, "float32"),
    "f64": Element(8, 8, "float64"),
    "bf16": Element(2, 9, "bfloat16"),
    "tf32": Element(4, 11, "tfloat32"),
}
# Both in the order of the driver's enumerations.
SWIZZLES = (0, 32, 64, 128)
L2_PROMOTIONS = (0, 64, 128, 256)


@lru_cache(maxsize=1024)
def check(request: TensorMap) -> None:
    """Refuse what no tensor map can describe; a request that passed costs only a look-up again.

    Raises:
        ArgumentError: names the field, what it is and what is accepted.
    """
    _check_choices(request)
    _check_ranks(request)
    for i, extent in enumerate(request.dims):
        if not 1 <= extent <= 1 << 32:
            raise _refused(f"dims[{i}]", extent, "1 to 2^32")
    for i, stride in enumerate(request.strides):
        if stride % 16 or not 0 <= stride < 1 << 40:
            raise _refused(f"strides[{i}]", f"{stride} bytes", "multiples of 16 below 2^40")
    _check_box(request)


def check_base(address: int) -> None:
    """Refuse a base that is not 16-byte aligned.

    Raises:
        ArgumentError: says how far off it is.
    """
    if address % 16:
        raise ArgumentError(f"tensor_map: array plus offset_bytes starts {address % 16} bytes past "
                            "a multiple of 16; accepted: multiples of 16")


def _check_choices(request: TensorMap) -> None:
    choices: tuple[tuple[str, object, tuple[object, ...]], ...] = (
        ("element", request.element, tuple(ELEMENTS)),
        ("swizzle", request.swizzle, SWIZZLES),
        ("l2_promotion", request.l2_promotion, L2_PROMOTIONS))
    for name, value, accepted in choices:
        if value not in accepted:
            raise _refused(name, repr(value), ", ".join(map(str, accepted)))


def _check_ranks(request: TensorMap) -> None:
    rank = len(request.dims)
    if not 1 <= rank <= 5:
        raise _refused("dims", request.dims, "1 to 5 dimensions")
    if len(request.strides) != rank - 1:
        raise _refused("strides", request.strides, f"{rank - 1} entries, one per outer dimension")
    if len(request.box) != rank:
        raise _refused("box", request.box, f"{rank} entries, one per dimension")


def _check_box(request: TensorMap) -> None:
    for i, extent in enumerate(request.box):
        if not 1 <= extent <= 256:
            raise _refused(f"box[{i}]", extent, "1 to 256")
    inner = request.box[0] * ELEMENTS[request.element].itemsize
    given = f"{request.box[0]} elements of {request.element}, {inner} bytes"
    if inner % 16:
        raise _refused("box[0]", given, "multiples of 16 bytes")
    if request.swizzle and inner > request.swizzle:
        raise _refused("box[0]", given,
                       f"at most {request.swizzle} bytes with swizzle={request.swizzle}")


def _refused(name: str, given: object, accepted: str) -> ArgumentError:
    return ArgumentError(f"tensor_map: {name} is {given}; accepted: {accepted}")
