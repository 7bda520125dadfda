"""From an address operand to checked accesses, for every state space and generic addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpukit.emulator.errors import OutOfBoundsError
from gpukit.emulator.instructions import Mask, Modifiers, Unsupported
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.access import Access

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.ptx.ir import Operand

Locator: TypeAlias = "Callable[[Lanes, Any, Mask, int], Access]"
SHARED_BYTES = 4  # of an address
_WORDS = {
    "global": "global",
    "const": "const",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "shared",
}


def take_space(modifiers: Modifiers) -> str:
    """Take the state space of an opcode; "generic" if it names none."""
    return _WORDS.get(modifiers.pick(*_WORDS, default="generic"), "generic")


def _global(lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
    return lanes.wave.launch.memory.locate(addresses, mask, size)


def _shared(lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
    return lanes.wave.shared.locate(lanes, addresses, mask, size)


def _local(lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
    return lanes.wave.local.locate(lanes, addresses, mask, size)


def _generic(lanes: Lanes, addresses: Any, mask: Mask, size: int) -> Access:
    first = addresses.item(0) if mask is None else addresses.item(int(mask.argmax()))
    space = windows.space_of(first)
    if space == "global":
        return _global(lanes, addresses, mask, size)
    return LOCATORS[space](lanes, addresses - windows.BASES[space], mask, size)


LOCATORS: dict[str, Locator] = {
    "global": _global,
    "const": _global,
    "param": _global,
    "shared": _shared,
    "local": _local,
    "generic": _generic,
}


class Place:
    """An ``[address]`` operand of one instruction: finds its accesses when it runs."""

    def __init__(self, assembler: Assembler, operand: Operand, space: str, size: int) -> None:
        self.space = space
        self.size = size
        self._base, self._offset = assembler.address(operand)
        self._locate = LOCATORS[space]

    def accesses(self, lanes: Lanes, mask: Mask) -> list[Access]:
        """Usually one; several where lanes point into different windows or allocations."""
        addresses = self.addresses(lanes)
        try:
            return [self._locate(lanes, addresses, mask, self.size)]
        except OutOfBoundsError:
            parts = self._parts(lanes, addresses, mask)
            if len(parts) < 2:
                raise
        return [self._locate(lanes, addresses, part, self.size) for part in parts]

    def addresses(self, lanes: Lanes) -> Any:
        """The address of every lane, as the register's integers.

        Shared addresses have 32 bits; of a wider register the others are cut off, so that a generic
        address does as well.
        """
        base = lanes.V[self._base]
        if self.space == "shared" and base.itemsize > SHARED_BYTES:
            base = base & windows.SHARED_MASK
        return base if self._offset is None else base + lanes.V[self._offset]

    def _parts(self, lanes: Lanes, addresses: Any, mask: Mask) -> list[Any]:
        if self.space in ("shared", "local"):
            return []
        parts = []
        active = np.ones(addresses.size, np.bool_) if mask is None else mask
        windows_of = addresses >> windows.WINDOW_BITS
        for window in np.unique(windows_of[active]):
            chosen = active & (windows_of == window)
            if windows.space_of(int(window) << windows.WINDOW_BITS) == "global":
                parts += lanes.wave.launch.memory.groups(addresses, chosen)
            else:
                parts.append(chosen)
        return parts


def require(condition: bool, why: str) -> None:
    """Refuse a form of an instruction while decoding."""
    if not condition:
        raise Unsupported(why)
