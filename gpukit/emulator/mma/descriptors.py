"""Matrix descriptors of wgmma: how a 64-bit word describes a matrix in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.emulator.errors import KernelFault

SPANS = {0: 16, 1: 128, 2: 64, 3: 32}  # swizzle code -> bytes of a row of the swizzle pattern
_NAMES = {16: "no swizzle", 128: "128B swizzle", 64: "64B swizzle", 32: "32B swizzle"}
_FIELDS = ((0, 14), (16, 14), (32, 14), (49, 3), (62, 2))
_KNOWN = sum(((1 << size) - 1) << at for at, size in _FIELDS)
_BLACKWELL = 1 << 46


class DescriptorError(KernelFault):
    """A matrix descriptor that no matrix fits; the text shows it decoded."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded matrix descriptor; offsets in bytes.

    ``start`` is the first byte's shared address, ``leading`` and ``stride`` the leading and stride
    dimension byte offsets (LBO, SBO), ``base`` the matrix base offset (0 to 7) and ``span`` the
    bytes of a row of the swizzle pattern (16: no swizzle).
    """

    raw: int
    start: int
    leading: int
    stride: int
    base: int
    span: int

    def __str__(self) -> str:
        return (
            f"0x{self.raw:016x}: start 0x{self.start:x}, LBO {self.leading}, SBO {self.stride}, "
            f"base offset {self.base}, {_NAMES[self.span]}"
        )


def decode(raw: int) -> Descriptor:
    """Take a descriptor apart. Raises ``DescriptorError`` for reserved bits."""
    start, leading, stride, base, code = ((raw >> at) & ((1 << size) - 1) for at, size in _FIELDS)
    found = Descriptor(raw, start << 4, leading << 4, stride << 4, base, SPANS[code])
    reserved = raw & ~_KNOWN
    if reserved:
        hint = " (bit 46 belongs to tcgen05 descriptors)" if reserved & _BLACKWELL else ""
        raise refuse(found, f"reserved bits 0x{reserved:x} are set{hint}")
    return found


def check(descriptor: Descriptor, k_major: bool, rows: int) -> None:
    """Whether an operand of ``rows`` rows (of M or N) by 32 bytes of K can lie so.

    Raises ``DescriptorError``.
    """
    span = descriptor.span
    if span == 16 and descriptor.base:
        raise refuse(descriptor, "a base offset needs a swizzle")
    into = descriptor.start % span
    across = 32 if k_major else min(span, rows * 2)
    if span > 16 and into + across > span:
        what = "32 bytes of K" if k_major else f"{rows} elements of M or N"
        raise refuse(
            descriptor, f"{what} from byte {into} of a {span}-byte swizzle row run over its end"
        )


def refuse(descriptor: Descriptor, why: str, address: int | None = None) -> DescriptorError:
    """An error that shows the descriptor."""
    return DescriptorError(f"matrix descriptor {descriptor}: {why}", address=address)
