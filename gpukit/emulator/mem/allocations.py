"""Global memory: separate allocations at virtual addresses, each with its own bounds."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from gpukit.emulator.errors import LaunchError, MisalignedError, OutOfBoundsError
from gpukit.emulator.inputs import refusal
from gpukit.emulator.instructions import Mask
from gpukit.emulator.mem import windows
from gpukit.emulator.mem.access import Access
from gpukit.emulator.mem.patterns import Pattern, PatternCache, global_cost
from gpukit.emulator.mem.store import Store
from gpukit.emulator.ptx.ir import Module, Var

RECENT = 4  # allocations to try before searching
ALIGNMENT = 512  # of allocations; the gap between them catches small overruns


class Allocation(Store):
    """``size`` bytes at virtual address ``base``."""

    __slots__ = ("base", "end", "name", "size", "writable")

    def __init__(self, base: int, data: Any, init: Any, name: str, writable: bool) -> None:
        super().__init__(data, init)
        self.base = base
        self.size: int = int(data.size)
        self.end: int = base + self.size
        self.name = name
        self.writable = writable

    def address_of(self, index: int) -> int:
        return self.base + index

    def phase(self, size: int) -> int:
        return -self.base % size


class GlobalMemory:
    """All allocations a launch can see: arrays, module variables and kernel parameters."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._allocations: list[Allocation] = []
        self._next = windows.GLOBAL
        self.patterns = PatternCache()
        self._recent: list[Allocation] = []  # the last few that were accessed
        self._mapped: list[tuple[int, Allocation]] = []  # host address, allocation
        self._alive: list[Any] = []
        self._workspace: Allocation | None = None
        self.modules: dict[Module, dict[Var, Allocation]] = {}  # variables of loaded modules

    def add(
        self,
        data: Any,
        name: str,
        *,
        init: Any = None,
        writable: bool = True,
        at: int | None = None,
        skew: int = 0,
    ) -> Allocation:
        """Make a uint8 array visible to kernels, at a fresh address (or ``at``)."""
        base = self._next + skew if at is None else at
        if at is None:
            self._next = -(-(base + data.size + 1) // ALIGNMENT) * ALIGNMENT
        made = Allocation(base, data, init, name, writable)
        where = bisect_right(self._bases, base)
        self._bases.insert(where, base)
        self._allocations.insert(where, made)
        return made

    def put_parameters(self, data: Any) -> None:
        """Show the kernel parameters of the current launch at their fixed window."""
        if windows.PARAMS in self._bases:
            at = self._bases.index(windows.PARAMS)
            del self._bases[at], self._allocations[at]
        self._recent.clear()
        self.add(data, "the kernel parameters", writable=False, at=windows.PARAMS)

    def grid_workspace(self) -> int:
        """The address of a word count and the grid barrier of a cooperative launch, both zero."""
        if self._workspace is None:
            self._workspace = self.add(np.zeros(8, np.uint8), "the grid workspace")
        self._workspace.data.fill(0)
        return self._workspace.base

    def map(self, array: Any, name: str, *, written: bool = True) -> int:
        """The device address of a contiguous array; kernels work on the array itself.

        A view of an array that is mapped already lies inside it. With ``written`` False its
        bytes count as uninitialised. Raises ``LaunchError`` for what is no array or not contiguous.
        """
        array = host_array(array, name)
        start, size = array.ctypes.data, array.nbytes
        for host, held in self._mapped:
            if host <= start and start + size <= host + held.size and size:
                return int(held.base + start - host)
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        data = _as_bytes(array)
        init = None if written else np.zeros(size, np.uint8)
        skew = (start - root.ctypes.data) % ALIGNMENT
        made = self.add(data, name, init=init, writable=array.flags.writeable, skew=skew)
        self._mapped.append((start, made))
        self._alive.append(array)
        return made.base

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds ``address``."""
        at = bisect_right(self._bases, address) - 1
        if at < 0 or address >= self._allocations[at].end:
            return None
        return self._allocations[at]

    def locate(self, addresses: Any, mask: Mask, size: int) -> Access:
        """Check ``size`` bytes a lane at int64 ``addresses``; all lanes in one allocation."""
        active = addresses if mask is None else addresses[mask]
        first = active.item(0)
        relative = active - first
        key = (relative.tobytes(), first & 127, size, None if mask is None else mask.tobytes())
        pattern = self.patterns.get(key) or self._learn(key, relative, first & 127, mask)
        held: Allocation | None
        for held in self._recent:
            if held.base <= first < held.end:
                break
        else:
            held = self._look_up(first)
        if held is None or first + pattern.low < held.base or first + pattern.high > held.end:
            raise self._outside(addresses, mask, size)
        if not pattern.aligned or first & (size - 1):
            raise self._misaligned(addresses, mask, size)
        return Access(held, pattern, first - held.base, mask, "global")

    def _look_up(self, address: int) -> Allocation | None:
        held = self.find(address)
        if held is not None:
            self._recent.insert(0, held)
            del self._recent[RECENT:]
        return held

    def _learn(self, key: Any, relative: Any, phase: int, mask: Mask) -> Pattern:
        size = key[2]
        lanes = np.arange(mask.size)[mask] if mask is not None else np.arange(relative.size)
        cost = global_cost(relative + phase, size, lanes // 32)
        return self.patterns.put(key, Pattern(relative, relative, size, cost))

    def groups(self, addresses: Any, mask: Mask) -> list[Any]:
        """Masks of lanes that fall into the same allocation (or into none)."""
        active = np.ones(addresses.size, np.bool_) if mask is None else mask
        owner = np.searchsorted(np.array(self._bases), addresses, side="right")
        return [active & (owner == which) for which in np.unique(owner[active])]

    def _outside(self, addresses: Any, mask: Mask, size: int) -> OutOfBoundsError:
        for lane in _lanes(addresses, mask):
            address = int(addresses[lane])
            held = self.find(address)
            if held is None or address + size > held.end:
                return self.outside(address, size, lane)
        return OutOfBoundsError("lanes access different allocations")

    def outside(self, address: int, size: int, lane: int | None = None) -> OutOfBoundsError:
        """The complaint about ``size`` bytes that are not inside one allocation."""
        text = f"accesses {size} bytes at 0x{address:x}: {self._neighbour(address, size)}"
        return OutOfBoundsError(text, lane=lane, address=address)

    def _neighbour(self, address: int, size: int) -> str:
        at = bisect_right(self._bases, address) - 1
        near = self._allocations[at] if at >= 0 else None
        after = self._allocations[at + 1] if at + 1 < len(self._allocations) else None
        if address < (1 << 16):
            return "no allocation is there (a null pointer?)"
        if after is not None and (near is None or after.base - address < address - near.end):
            return f"{after.base - address} bytes before the start of {after.name}"
        if near is None:
            return "no allocation is there"
        past = address + size - near.end
        return f"{past} bytes past the end of {near.name} ({near.size} bytes)"

    def _misaligned(self, addresses: Any, mask: Mask, size: int) -> MisalignedError:
        return misaligned(addresses, mask, size, "global")


def host_array(array: Any, name: str) -> Any:
    """An array (of a subclass: as a plain one) whose memory kernels can work on as it is."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise refusal(name, array, "a NumPy array, not masked")
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise LaunchError(f"{name}: the array is not contiguous; pass np.ascontiguousarray(...)")
    if array.dtype.hasobject or array.dtype.kind in "UMmT" or not array.dtype.isnative:
        raise LaunchError(
            f"{name}: dtype {array.dtype} cannot live in device memory; accepted: numbers, bytes "
            "and structures of them in the machine's byte order"
        )
    return np.asarray(array)


def _as_bytes(array: Any) -> Any:
    """A uint8 view of a contiguous array's memory."""
    flat = array.reshape(-1, order="A") if array.ndim else array.reshape(1)
    if flat.size == 0:
        return np.empty(0, np.uint8)
    return flat.view(np.uint8)


def misaligned(addresses: Any, mask: Mask, size: int, space: str) -> MisalignedError:
    """The complaint about the first lane whose address is no multiple of ``size``."""
    lane = next(i for i in _lanes(addresses, mask) if int(addresses[i]) % size)
    address = int(addresses[lane])
    text = f"{space} address 0x{address:x} is not a multiple of the access size, {size} bytes"
    return MisalignedError(text, lane=lane, address=address)


def _lanes(addresses: Any, mask: Mask) -> list[int]:
    chosen = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
    return [int(i) for i in chosen]
