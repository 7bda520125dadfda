"""Names for messages: which warp of which CTA, and which line, a stamp stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.check.clocks import PC_BITS, WARP_SHIFT

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

LONGEST = 160


def of_stamp(wave: Wave, stamp: int) -> str:
    """Such as: warp 1 of CTA (0, 0, 0) at file.cu:12 (st.shared...)."""
    warp, pc = stamp >> WARP_SHIFT, stamp & ((1 << PC_BITS) - 1)
    return f"{of_warp(wave, warp)} at {shortened(wave.program.place(pc))}"


def shortened(place: str) -> str:
    """A place whose instruction text may list many registers."""
    return place if len(place) <= LONGEST else f"{place[: LONGEST - 4]}...)"


def of_warp(wave: Wave, number: int) -> str:
    """A warp by its number in the grid."""
    cta, index = divmod(number, wave.lanes_per_cta // 32)
    cluster, rank = divmod(cta, wave.cluster_size)
    position = wave.launch.cta_position(cluster, wave.ctas[rank])
    return f"warp {index} of CTA {position}"
