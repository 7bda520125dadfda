"""Single addresses: what the operand of a one-thread instruction points at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpukit.emulator.errors import KernelFault, MisalignedError, OutOfBoundsError
from gpukit.emulator.instructions import Mask, Modifiers
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.allocations import Allocation
from gpukit.emulator.program import SHARED_START

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.ptx.ir import Operand
    from gpukit.emulator.warps import Warp
    from gpukit.emulator.wave import Wave


class Point:
    """An ``[address]`` operand, read one lane at a time."""

    def __init__(self, assembler: Assembler, operand: Operand) -> None:
        self._base, self._offset = assembler.address(operand)

    def at(self, lanes: Lanes, lane: int) -> int:
        """The address that one lane has in the operand."""
        row = lanes.V[self._base]
        address: int = row.item(lane)
        if self._offset is not None:
            address += lanes.V[self._offset].item(lane)
            address &= 0xFFFFFFFF if row.itemsize == 4 else (1 << 63) - 1
        return address


def lane_numbers(mask: Mask) -> list[int]:
    """The active lanes of a warp."""
    if mask is None:
        return list(range(32))
    found: list[int] = np.flatnonzero(mask).tolist()
    return found


def take_shared_space(modifiers: Modifiers) -> str:
    """Take the state space of an operand in shared memory: "cta", "cluster" or "generic"."""
    words = {"shared::cluster": "cluster", "shared::cta": "cta", "shared": "cta"}
    return words.get(modifiers.pick(*words, default="generic"), "generic")


def shared_point(warp: Warp, address: int, space: str, size: int, align: int) -> tuple[Cta, int]:
    """The CTA and the offset in its shared memory of ``size`` bytes at ``address``.

    ``space`` is "cta" (the warp's own), "cluster" or "generic". Raises ``OutOfBoundsError`` or
    ``MisalignedError``.
    """
    if space == "generic":
        if windows.space_of(address) != "shared":
            raise OutOfBoundsError(
                f"address 0x{address:x} does not point into shared memory", address=address
            )
        address -= windows.SHARED
    address &= windows.SHARED_MASK
    cta, offset = warp.cta.owner(address)
    if space == "cta" and cta is not warp.cta:
        raise OutOfBoundsError(
            f"address 0x{address:x} is in the shared memory of rank {cta.rank}, the instruction "
            "needs its own CTA's (.shared::cta)",
            address=address,
        )
    end = warp.wave.shared.end
    if offset < SHARED_START or offset + size > end:
        raise OutOfBoundsError(
            f"{size} bytes of shared memory at offset 0x{offset:x}: the CTA has "
            f"{end - SHARED_START} bytes from 0x{SHARED_START:x}",
            address=address,
        )
    if offset % align:
        raise MisalignedError(
            f"shared address 0x{address:x} is not a multiple of {align} bytes", address=address
        )
    return cta, offset


def global_point(wave: Wave, address: int, size: int, align: int) -> tuple[Allocation, int]:
    """The allocation and the offset in it of ``size`` bytes of global memory at ``address``."""
    memory = wave.launch.memory
    held = memory.find(address)
    if held is None or address + size > held.end:
        raise memory.outside(address, size)
    if address % align:
        raise MisalignedError(
            f"global address 0x{address:x} is not a multiple of {align} bytes", address=address
        )
    return held, address - held.base


def require_writable(held: Allocation) -> None:
    """Constants and kernel parameters cannot be written."""
    if not held.writable:
        raise KernelFault(f"writes to {held.name}, which is read-only", address=held.base)
