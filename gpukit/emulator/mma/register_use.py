"""One wave's record of which registers wgmmas in flight own, and which need a fence."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.errors import KernelFault


class WgmmaRegisterError(KernelFault):
    """A register of a wgmma in flight was touched, or a ``wgmma.fence`` is missing."""


class RegisterUse:
    """Per warp of the wave and register column: which wgmma uses it and whether a fence is due.

    wgmmas are numbered per warp from 1; ``waited`` is the last one that each warp waited for, and
    ``in_flight`` how many it has issued since. ``warps`` arguments are slices of warp numbers,
    ``columns`` slices or index arrays; a fragment in shared memory is None.
    """

    def __init__(self, names: list[str], warps: int) -> None:
        self._names = names
        shape = warps, len(names)
        self.accumulator = np.zeros(shape, np.int64)  # number of the last wgmma that accumulates
        self.fragment = np.zeros(shape, np.int64)  # ... that reads it as part of A
        self.kind = np.zeros(shape, np.int64)  # shape of the last wgmma since a fence, 0 = none
        self.dirty = np.zeros(shape, np.bool_)  # touched since the last fence
        self.fenced = np.zeros(warps, np.bool_)
        self.issued = np.zeros(warps, np.int64)
        self.waited = np.zeros(warps, np.int64)
        self.in_flight = [0] * warps

    # Ordinary instructions

    def touch(self, columns: Any, warps: slice) -> None:
        """An ordinary instruction reads or writes the registers."""
        if any(self.in_flight[warps]):
            self.check_touch(columns, warps)
        self.dirty[warps, columns] = True

    def check_touch(self, columns: Any, warps: slice) -> None:
        """Raise if a wgmma in flight owns one of the registers."""
        owner = np.maximum(self.accumulator[warps, columns], self.fragment[warps, columns])
        pending = owner > self.waited[warps, None]
        if np.count_nonzero(pending):
            raise WgmmaRegisterError(
                f"register {self._name(columns, pending)} is touched while a wgmma in flight uses "
                "it; wgmma.wait_group must cover that wgmma first"
            )

    def accumulating(self, column: int, warp: int) -> bool:
        """Whether a wgmma of the warp in flight accumulates into the register."""
        return bool(self.accumulator.item(warp, column) > self.waited.item(warp))

    # wgmma

    def fence(self, warps: slice) -> None:
        """``wgmma.fence``: what happened to the registers so far is ordered before wgmmas."""
        self.fenced[warps] = True
        self.dirty[warps] = False
        self.kind[warps] = 0

    def issue(self, accumulators: Any, fragment: Any, kind: int, warps: slice) -> None:
        """The next wgmma of these warps takes the registers. Raises ``WgmmaRegisterError``."""
        if b"\x00" in self.fenced[warps].tobytes():
            raise WgmmaRegisterError("the first wgmma of a warp needs a wgmma.fence before it")
        self._check_fenced(accumulators, warps)
        self._check_kind(accumulators, kind, warps)
        if any(self.in_flight[warps]):
            self._check_free(accumulators, self.fragment, "an A fragment", warps)
        self.issued[warps] += 1
        numbers = self.issued[warps, None]
        if fragment is not None:
            self._check_fenced(fragment, warps)
            self._check_free(fragment, self.accumulator, "an accumulator", warps)
            self.fragment[warps, fragment] = numbers
        self.in_flight[warps] = [count + 1 for count in self.in_flight[warps]]
        self.accumulator[warps, accumulators] = numbers
        self.kind[warps, accumulators] = kind

    def wait(self, warp: int, number: int) -> None:
        """A warp waited for its wgmmas up to ``number``."""
        if number > self.waited[warp]:
            self.in_flight[warp] -= int(number - self.waited[warp])
            self.waited[warp] = number

    def _check_fenced(self, columns: Any, warps: slice) -> None:
        dirty = self.dirty[warps, columns]
        if np.count_nonzero(dirty):
            raise WgmmaRegisterError(
                f"register {self._name(columns, dirty)} was touched since the last wgmma.fence; "
                "wgmma needs a fence between"
            )

    def _check_kind(self, columns: Any, kind: int, warps: slice) -> None:
        before = self.kind[warps, columns]
        if not np.count_nonzero(before):
            return
        other = (before != 0) & (before != kind)
        if np.count_nonzero(other):
            raise WgmmaRegisterError(
                f"register {self._name(columns, other)} was the accumulator of a wgmma of another "
                "shape since the last wgmma.fence; wgmma needs a fence between"
            )

    def _check_free(self, columns: Any, users: Any, role: str, warps: slice) -> None:
        taken = users[warps, columns] > self.waited[warps, None]
        if np.count_nonzero(taken):
            raise WgmmaRegisterError(
                f"register {self._name(columns, taken)} is {role} of a wgmma in flight; "
                "wgmma.wait_group must cover that wgmma first"
            )

    def _name(self, columns: Any, bad: Any) -> str:
        """The first register of ``columns`` for which ``bad`` [warp, column] holds."""
        found = np.arange(len(self._names))[columns]
        return self._names[int(found[int(bad.any(axis=0).argmax())])]
