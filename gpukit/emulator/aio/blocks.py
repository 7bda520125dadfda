"""Contiguous bytes of shared or global memory that bulk copies read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpukit.emulator.check.async_ops import Range
from gpukit.emulator.errors import UninitializedReadError
from gpukit.emulator.mem.points import global_point, require_writable, shared_point
from gpukit.emulator.mem.store import Store

if TYPE_CHECKING:
    from gpukit.emulator.aio.reductions import Reduction
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.mem.allocations import Allocation
    from gpukit.emulator.warps import Warp

ALIGN = 16


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` bytes from ``start`` of a store."""

    store: Store
    start: int
    size: int

    @property
    def _span(self) -> slice:
        return slice(self.start, self.start + self.size)

    def copy_to(self, target: Block) -> None:
        """Copy the bytes; bytes that were never written stay so."""
        target.store.data[target._span] = self.store.data[self._span]
        if target.store.init is not None:
            init = self.store.init
            target.store.init[target._span] = 1 if init is None else init[self._span]

    def read(self) -> Any:
        """A copy of the bytes, all of which must have been written."""
        self._check_written()
        return self.store.data[self._span].copy()

    def write(self, data: Any) -> None:
        self.store.data[self._span] = data
        if self.store.init is not None:
            self.store.init[self._span] = 1

    def update(self, reduction: Reduction, data: Any) -> None:
        """Combine the bytes with ``data``, element by element."""
        self._check_written()
        dtype = reduction.type.dtype
        old = self.store.data[self._span].view(dtype)
        self.write(reduction.combine(old, data.view(dtype)).view("u1"))

    def _check_written(self) -> None:
        init = self.store.init
        if init is not None and not init[self._span].all():
            raise unwritten(self.store, self.start + int(init[self._span].argmin()))


@dataclass(frozen=True, slots=True)
class SharedBlock(Block):
    """Bytes of a CTA's shared memory."""

    cta: Cta

    @property
    def range(self) -> Range:
        """The bytes, as checks see them."""
        return Range("shared", self.cta.slot, self.start, self.size)

    def on(self, cta: Cta) -> SharedBlock:
        """The same offsets in another CTA's shared memory."""
        check_barriers(cta, self.start, self.size)
        return SharedBlock(cta.shared, self.start, self.size, cta)


@dataclass(frozen=True, slots=True)
class GlobalBlock(Block):
    """Bytes of one allocation."""

    held: Allocation

    @property
    def range(self) -> Range:
        """The bytes, as checks see them."""
        return Range("global", self.held, self.start, self.size)


def unwritten(store: Store, at: int) -> UninitializedReadError:
    """The complaint about reading byte ``at`` of a store."""
    address = store.address_of(at)
    return UninitializedReadError(
        f"an asynchronous copy reads memory at 0x{address:x} that nothing has written",
        address=address,
    )


def check_barriers(cta: Cta, start: int, size: int) -> None:
    """Raise if an mbarrier lives in these bytes of a CTA's shared memory."""
    shared = cta.wave.shared
    if shared.barriers:
        shared.check_range(shared.start_of(cta.slot) + start, size)


def shared_block(warp: Warp, address: int, space: str, size: int, align: int) -> SharedBlock:
    """``size`` bytes of shared memory; ``space`` is "cta" (the own) or "cluster"."""
    cta, start = shared_point(warp, address, space, size, align)
    check_barriers(cta, start, size)
    return SharedBlock(cta.shared, start, size, cta)


def global_block(warp: Warp, address: int, size: int, *, writes: bool = False) -> GlobalBlock:
    """``size`` bytes of one allocation."""
    held, start = global_point(warp.wave, address, size, ALIGN)
    if writes:
        require_writable(held)
    return GlobalBlock(held, start, size, held)
