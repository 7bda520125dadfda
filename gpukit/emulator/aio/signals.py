"""Who receives a copy, and the mbarriers that it signals when it completes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpukit.emulator.aio import engine
from gpukit.emulator.errors import BarrierError, KernelFault
from gpukit.emulator.instructions import Modifiers
from gpukit.emulator.mem.points import shared_point
from gpukit.emulator.sync.mbarrier import MBarrier, MBarriers, announce, signal_tx

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp

BYTES = 8


def take_completion(modifiers: Modifiers) -> bool:
    """Take the completion mechanism; returns whether it is an mbarrier (else a bulk group)."""
    word = modifiers.pick("mbarrier::complete_tx::bytes", "bulk_group")
    return word != "bulk_group"


def receivers(warp: Warp, home: Cta, mask: int | None) -> list[Cta]:
    """The CTAs that a copy goes to: those of a multicast mask, or the one of the destination."""
    if mask is None:
        return [home]
    cluster = warp.cta.cluster
    if mask == 0 or mask >> len(cluster):
        raise KernelFault(
            f"the multicast mask 0x{mask:04x} names no CTA, or one that the cluster of "
            f"{len(cluster)} does not have"
        )
    return [cta for cta in cluster if mask >> cta.rank & 1]


def _pair_space(warp: Warp, space: str) -> str:
    """Where a pair's mbarrier may be; raises ``KernelFault`` if the CTA has no peer."""
    if warp.wave.cluster_size % 2:
        raise KernelFault(
            f".cta_group::2 needs pairs of CTAs; the cluster has {warp.wave.cluster_size}"
        )
    return "cluster" if space == "cta" else space


@dataclass(frozen=True, slots=True)
class Signals:
    """The mbarriers of one copy, one for each receiver, and the bytes that each is told."""

    barriers: tuple[MBarrier, ...]
    size: int

    @classmethod
    def find(
        cls,
        warp: Warp,
        address: int,
        space: str,
        home: Cta,
        ctas: list[Cta],
        size: int,
        pair: bool = False,
    ) -> Signals:
        """The mbarrier at ``address``, which lies in the destination's CTA, once per receiver.

        With ``pair`` (cta_group::2) it may lie in the destination's peer instead; then each
        receiver's signal goes to the CTA of its pair that has the same parity of rank.
        """
        if pair:
            space = _pair_space(warp, space)
        cta, offset = shared_point(warp, address, space, BYTES, BYTES)
        if cta is not home and not (pair and cta.rank ^ 1 == home.rank):
            raise BarrierError(
                f"the mbarrier is in the CTA of rank {cta.rank}, the destination in rank "
                f"{home.rank}; they must be in the same CTA{' or pair of CTAs' * pair}"
            )
        ranks = [c.rank & ~1 | cta.rank & 1 if pair else c.rank for c in ctas]
        found = [warp.cta.cluster[rank].state(MBarriers).find(offset) for rank in ranks]
        for barrier in found:
            barrier.require_running(warp)
            announce(barrier, size)
        return cls(tuple(found), size)

    def after(self, copy: Callable[[], None], op: AsyncOp, receiver: int = 0) -> None:
        """Run ``copy`` later, and then tell the receiver of that number."""

        def complete() -> None:
            copy()
            engine.performed(op)
            signal_tx(self.barriers[receiver], self.size, op)

        engine.post(op, complete)
