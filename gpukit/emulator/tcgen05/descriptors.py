"""Shared-memory descriptors of tcgen05: how a 64-bit word describes a matrix in shared memory.

They differ from those of wgmma in bit 46, which is 1, and in the swizzle field of three bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.emulator.mma import descriptors as wgmma
from gpukit.emulator.mma.descriptors import DescriptorError, refuse

__all__ = ["Descriptor", "DescriptorError", "decode", "refuse"]

# swizzle code -> bytes of a row of the pattern, bytes that stay together
SWIZZLES = {0: (16, 16), 1: (128, 32), 2: (128, 16), 4: (64, 16), 6: (32, 16)}
NAMES = {0: "no swizzle", 1: "128B swizzle with 32B atoms", 2: "128B swizzle", 4: "64B swizzle",
         6: "32B swizzle"}  # fmt: skip
_FIELDS = ((0, 14), (16, 14), (32, 14), (46, 3), (49, 3), (52, 1), (53, 8), (61, 3))
_KNOWN = sum((1 << size) - 1 << at for at, size in _FIELDS)
_VERSION = 0b001


@dataclass(frozen=True, slots=True)
class Descriptor(wgmma.Descriptor):
    """A decoded descriptor; offsets in bytes.

    ``atom`` is the number of bytes that the swizzle moves together, ``code`` the swizzle field.
    """

    atom: int = 16
    code: int = 0

    def __str__(self) -> str:
        return (
            f"0x{self.raw:016x}: start 0x{self.start:x}, LBO {self.leading}, SBO {self.stride}, "
            f"base offset {self.base}, {NAMES.get(self.code, f'swizzle code {self.code}')}"
        )


def decode(raw: int) -> Descriptor:
    """Take a descriptor apart. Raises ``DescriptorError`` for what no field may hold."""
    start, leading, stride, version, base, mode, fixed, code = (
        raw >> at & (1 << size) - 1 for at, size in _FIELDS
    )
    span, atom = SWIZZLES.get(code, (16, 16))
    found = Descriptor(raw, start << 4, leading << 4, stride << 4, base, span, atom, code)
    if code not in SWIZZLES:
        raise refuse(found, f"swizzle code {code} (bits 61-63); accepted: 0, 1, 2, 4, 6")
    if raw & ~_KNOWN:
        raise refuse(found, f"reserved bits 0x{raw & ~_KNOWN:x} are set")
    if version != _VERSION:
        raise refuse(found, f"bits 46-48 are 0b{version:03b}; tcgen05 wants 0b001 there")
    if fixed:
        raise refuse(found, f"bits 53-60 are 0x{fixed:x} and must be 0")
    if mode:
        raise refuse(found, "an absolute leading dimension address (bit 52) is for sm_103a")
    if base and span == 16:
        raise refuse(found, "a base offset (bits 49-51) needs a swizzle")
    return found


def check(descriptor: Descriptor, k_major: bool, row_bytes: int, four_bytes: bool) -> None:
    """Whether an operand can lie so. Raises ``DescriptorError``.

    ``row_bytes`` is how far it reaches in its contiguous dimension: 32 bytes of K, or all of its M
    or N elements. ``four_bytes`` says that they are tf32.
    """
    if descriptor.atom == 32 and (k_major or not four_bytes):
        raise refuse(descriptor, "a swizzle with 32-byte atoms is for M- or N-major tf32")
    if not k_major and four_bytes and descriptor.atom != 32:
        raise refuse(descriptor, "M- or N-major tf32 must have the 128B swizzle with 32-byte atoms")
    span, into = descriptor.span, descriptor.start % descriptor.span
    across = min(span, row_bytes)
    if span > 16 and into + across > span:
        what = "bytes of K" if k_major else "bytes of M or N"
        raise refuse(
            descriptor, f"{across} {what} from byte {into} of a {span}-byte swizzle row run over "
            "its end"
        )  # fmt: skip
