"""``.cta_group``: one CTA, or the pair of CTAs whose ranks differ in the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import TensorMemoryError
from gpukit.emulator.instructions import Modifiers, Unsupported

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp


class CtaGroup:
    """Decode time: all tcgen05 instructions of a kernel must use the same ``.cta_group``."""

    def __init__(self, assembler: Assembler) -> None:
        self.size = 0

    def finish(self) -> None:
        """Nothing is left to do."""


def take_group(modifiers: Modifiers, assembler: Assembler) -> int:
    """Take ``.cta_group``: 1 or 2. Raises ``Unsupported`` if the kernel also uses the other."""
    size = int(modifiers.pick("cta_group::1", "cta_group::2")[-1])
    group = assembler.analysis(CtaGroup)
    group.size = group.size or size
    if group.size != size:
        raise Unsupported(
            f"uses .cta_group::{size}, other tcgen05 instructions of the kernel ::{group.size}; "
            "all must use the same"
        )
    return size


def members(cta: Cta, group: int) -> list[Cta]:
    """The CTAs that an instruction works on: the even one of a pair first.

    Raises ``TensorMemoryError`` if ``group`` is 2 and the CTA has no peer.
    """
    if group == 1:
        return [cta]
    even = cta.rank & ~1
    if even + 1 >= len(cta.cluster):
        raise TensorMemoryError(
            f".cta_group::2 in a CTA of rank {cta.rank} of a cluster of {len(cta.cluster)}: it has "
            "no peer"
        )
    return cta.cluster[even : even + 2]


def peer_of(cta: Cta) -> Cta:
    """The other CTA of the pair."""
    even, odd = members(cta, 2)
    return even if cta is odd else odd


def running_members(warp: Warp, group: int) -> list[Cta]:
    """As ``members``. Raises ``TensorMemoryError`` if the peer has exited."""
    found = members(warp.cta, group)
    for cta in found:
        if cta.ended:
            raise TensorMemoryError(f"the peer CTA {cta.position} has exited")
    return found
