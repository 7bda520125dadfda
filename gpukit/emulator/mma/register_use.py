"""One wave's record of which registers wgmmas in flight own, and which need a fence."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.errors import KernelFault


class WgmmaRegisterError(KernelFault):
    """A register of a wgmma in flight was touched, or a ``wgmma.fence`` is missing."""


class RegisterUse:
    """Per register column and warp of the wave: which wgmma uses it and whether a fence is due.

    wgmmas are numbered per warp from 1; ``waited`` is the last one that each warp waited for.
    ``warps`` arguments are slices or index arrays of warp numbers, ``columns`` a number, a
    slice or an index array; a fragment in shared memory is None.
    """

    def __init__(self, names: list[str], warps: int) -> None:
        self._names = names
        shape = len(names), warps
        self.accumulator = np.zeros(shape, np.int64)  # number of the last wgmma that accumulates
        self.fragment = np.zeros(shape, np.int64)  # ... that reads it as part of A
        self.kind = np.zeros(shape, np.int64)  # shape of the last wgmma since a fence, 0 = none
        self.dirty = np.zeros(shape, np.bool_)  # touched since the last fence
        self.fenced = np.zeros(warps, np.bool_)
        self.issued = np.zeros(warps, np.int64)
        self.waited = np.zeros(warps, np.int64)
        self.in_flight = 0  # issued and not waited for, over all warps

    # Ordinary instructions

    def check_touch(self, columns: Any, warps: Any) -> None:
        """Raise if a wgmma in flight owns one of the registers."""
        owner = np.maximum(self.accumulator[columns, warps], self.fragment[columns, warps])
        pending = owner > self.waited[warps]
        if pending.any():
            raise WgmmaRegisterError(
                f"register {self._name(columns, pending)} is touched while a wgmma in flight uses "
                "it; wgmma.wait_group must cover that wgmma first"
            )

    def accumulating(self, column: int, warps: Any) -> Any:
        """Whether a wgmma in flight accumulates into the register, per warp."""
        return self.accumulator[column, warps] > self.waited[warps]

    # wgmma

    def fence(self, warps: slice) -> None:
        """``wgmma.fence``: what happened to the registers so far is ordered before wgmmas."""
        self.fenced[warps] = True
        self.dirty[:, warps] = False
        self.kind[:, warps] = 0

    def issue(self, accumulators: Any, fragment: Any, kind: int, warps: slice) -> None:
        """The next wgmma of these warps takes the registers. Raises ``WgmmaRegisterError``."""
        if not self.fenced[warps].all():
            raise WgmmaRegisterError("the first wgmma of a warp needs a wgmma.fence before it")
        self._check_fenced(accumulators, warps)
        self._check_kind(accumulators, kind, warps)
        if self.in_flight:
            self._check_free(accumulators, self.fragment, "an A fragment", warps)
        if fragment is not None:
            self._check_fenced(fragment, warps)
            self._check_free(fragment, self.accumulator, "an accumulator", warps)
            self.fragment[fragment, warps] = self.issued[warps] + 1
        self.issued[warps] += 1
        self.in_flight += warps.stop - warps.start
        self.accumulator[accumulators, warps] = self.issued[warps]
        self.kind[accumulators, warps] = kind

    def wait(self, warp: int, number: int) -> None:
        """A warp waited for its wgmmas up to ``number``."""
        if number > self.waited[warp]:
            self.in_flight -= int(number - self.waited[warp])
            self.waited[warp] = number

    def _check_fenced(self, columns: Any, warps: slice) -> None:
        dirty = self.dirty[columns, warps]
        if dirty.any():
            raise WgmmaRegisterError(
                f"register {self._name(columns, dirty)} was touched since the last wgmma.fence; "
                "wgmma needs a fence between"
            )

    def _check_kind(self, columns: Any, kind: int, warps: slice) -> None:
        before = self.kind[columns, warps]
        other = (before != 0) & (before != kind)
        if other.any():
            raise WgmmaRegisterError(
                f"register {self._name(columns, other)} was the accumulator of a wgmma of another "
                "shape since the last wgmma.fence; wgmma needs a fence between"
            )

    def _check_free(self, columns: Any, users: Any, role: str, warps: slice) -> None:
        taken = users[columns, warps] > self.waited[warps]
        if taken.any():
            raise WgmmaRegisterError(
                f"register {self._name(columns, taken)} is {role} of a wgmma in flight; "
                "wgmma.wait_group must cover that wgmma first"
            )

    def _name(self, columns: Any, bad: Any) -> str:
        """The first register of ``columns`` for which ``bad`` [column, warp] holds."""
        found = np.ravel(np.arange(len(self._names))[columns])
        rows = bad.reshape(found.size, -1).any(axis=1)
        return self._names[int(found[int(rows.argmax())])]
