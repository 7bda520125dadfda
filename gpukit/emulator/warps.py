"""Warps, and gangs of warps that run in lockstep while they agree.

NumPy costs about the same for 32 lanes as for 512, so warps of a wave that stand at the same
instruction are run as one wide unit. This is one of the legal schedules (round robin, one
instruction each); what differs between warps (divergence, waits, tensor-core operations) makes the
gang fall apart into its warps again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.instructions import Mask
from gpukit.emulator.lanes import Lanes, Split
from gpukit.emulator.waits import WaitQueue

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.wave import Wave

WARP = 32
APART = 64  # instructions that lanes may be apart without their warp losing its gang


class Warp(Lanes):
    """32 lanes of one CTA. ``index`` counts warps within the CTA."""

    def __init__(self, wave: Wave, cta: Cta, index: int) -> None:
        lo = cta.first_lane + WARP * index
        super().__init__(wave, lo, lo + WARP, wave.program.handlers)
        self.cta = cta
        self.index = index
        self.convergence = WaitQueue()
        self.active = False

    def start(self, threads: int) -> None:
        """Begin the kernel with the first ``threads`` lanes."""
        mask = None if threads >= WARP else np.arange(WARP) < threads
        self.splits = [Split(0, mask)]
        self.convergence = WaitQueue()
        self.active = True

    @property
    def live(self) -> Any:
        """Bool array of the lanes that have not exited."""
        alive = np.zeros(WARP, np.bool_)
        for split in self.splits:
            alive |= True if split.mask is None else split.mask
        return alive

    @property
    def single(self) -> Split | None:
        """The only split, if the warp is converged and runnable."""
        if len(self.splits) != 1 or self.splits[0].park is not None:
            return None
        return self.splits[0]

    def step_past(self) -> int:
        """Issue one instruction, and go on until lanes that it sent apart have met again.

        Lanes that are apart for longer are left so. Returns how many were issued.
        """
        issued = 0
        while self.active and self.runnable and issued < APART:
            issued += self.turn(1)
            if len(self.splits) < 2:
                break
        return issued

    def lanes_ended(self, mask: Mask) -> None:
        for listener in self.wave.listeners:
            listener.lanes_ended(self, mask)
        self.convergence.wake()
        self.cta.lanes_ended()
        if not self.splits:
            self.active = False


class Gang(Lanes):
    """Consecutive warps of a wave."""

    def __init__(self, wave: Wave, warps: list[Warp]) -> None:
        super().__init__(wave, warps[0].lo, warps[-1].hi, wave.program.gang_handlers)
        self.warps = warps
        self._exit_pc = 0

    def gather(self) -> None:
        """Take over the warps' lanes; all must be converged at the same place."""
        lead = self.warps[0].splits[0]
        masks = [warp.splits[0].mask for warp in self.warps]
        mask = None
        if any(m is not None for m in masks):
            mask = np.concatenate([np.ones(WARP, np.bool_) if m is None else m for m in masks])
        self.splits = [Split(lead.pc, mask, lead.frame)]

    def scatter(self) -> None:
        """Give the lanes back to the warps."""
        for number, warp in enumerate(self.warps):
            lanes = slice(number * WARP, (number + 1) * WARP)
            before = warp.live
            warp.splits = [part for s in self.splits if (part := _part(s, lanes, warp))]
            ended = before & ~warp.live
            if ended.any():
                self._tell_ended(warp, ended)

    def lanes_ended(self, mask: Mask) -> None:
        self._exit_pc = self.current.pc  # the warps hear of it when they get their lanes back

    def _tell_ended(self, warp: Warp, lanes: Any) -> None:
        try:
            warp.lanes_ended(lanes)
        except KernelFault as fault:
            warp.current = Split(self._exit_pc, lanes)
            fault.locate(warp.where())
            raise


def _part(split: Split, lanes: slice, warp: Warp) -> Split | None:
    mask = split.mask
    if mask is not None:
        mask = mask[lanes]
        raw = mask.tobytes()
        if b"\x01" not in raw:
            return None
        mask = None if raw == warp.all_ones else mask.copy()
    part = Split(split.pc, mask, split.frame)
    part.penalty = split.penalty
    return part
