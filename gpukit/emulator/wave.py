"""A wave: the CTAs that are resident together, with their registers and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpukit.emulator.cta import Cta
from gpukit.emulator.errors import DeadlockError, LivelockError
from gpukit.emulator.lanes import Split
from gpukit.emulator.mem.local import LocalMemory
from gpukit.emulator.mem.shared import SharedMemory
from gpukit.emulator.program import Program, Slot
from gpukit.emulator.scheduler import Scheduler
from gpukit.emulator.special import special_row
from gpukit.emulator.spins import LONGEST_LISTING
from gpukit.emulator.tally import Tally
from gpukit.emulator.warps import WARP, Warp

if TYPE_CHECKING:
    from gpukit.emulator.launch import Launch

T = TypeVar("T")
_REGISTER_DTYPES = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class Wave:
    """``clusters`` whole clusters. Slots are reused for the next CTAs of the grid."""

    def __init__(self, launch: Launch, clusters: int) -> None:
        self.launch: Launch = launch
        self.program: Program = launch.program
        self.cluster_size: int = launch.cluster_size
        self.lanes_per_cta: int = -(-launch.threads // WARP) * WARP
        self.lanes: int = clusters * self.cluster_size * self.lanes_per_cta
        self.listeners = launch.listeners
        self.tally: Tally = launch.tally
        self.files = {bits: self._file(bits, n) for bits, n in self.program.register_rows.items()}
        self._rows: list[Any] = []  # of every slot, for all lanes
        self.shared = SharedMemory(self, launch.shared_end)
        self.local = LocalMemory(self.lanes, launch.local_bytes)
        self._state: dict[Any, Any] = {}
        self.ctas: list[Cta] = []
        self.warps: list[Warp] = []
        self.scheduler = Scheduler(self)
        self.first_cluster = 0  # of the grid, among those that are resident now
        self._build(clusters)

    def _file(self, bits: int, rows: int) -> Any:
        if bits == 128:
            return np.zeros((rows, self.lanes, 2), np.uint64)
        return np.zeros((rows, self.lanes), _REGISTER_DTYPES[bits])

    def _build(self, clusters: int) -> None:
        for slot in range(clusters * self.cluster_size):
            cta = Cta(self, slot, slot % self.cluster_size, slot * self.lanes_per_cta)
            self.ctas.append(cta)
        for cta in self.ctas:
            first = cta.slot - cta.rank
            cta.cluster = self.ctas[first : first + self.cluster_size]
            cta.warps = [Warp(self, cta, i) for i in range(self.lanes_per_cta // WARP)]
            self.warps += cta.warps

    # Rows

    def rows(self, lo: int, hi: int) -> list[Any]:
        """The views that lanes ``lo`` to ``hi`` have of every slot."""
        if not self._rows:
            self._rows = [self._row(slot) for slot in self.program.slots]
        return [row[lo:hi] for row in self._rows]

    def _row(self, slot: Slot) -> Any:
        return self._register(slot) if slot.kind == "reg" else self._whole_row(slot)

    def _register(self, slot: Slot) -> Any:
        bits, index = slot.key
        row = self.files[bits][index]
        if row.dtype == slot.dtype or bits == 128:
            return row
        row = row.view(slot.dtype)
        step = row.size // self.lanes
        if slot.pack > 1:
            return row.reshape(self.lanes, step)[:, : slot.pack]
        return row[::step] if step > 1 else row

    def _whole_row(self, slot: Slot) -> Any:
        shape = (self.lanes, slot.pack) if slot.pack > 1 else (self.lanes,)
        row = np.empty(shape, slot.dtype)
        self._fill(row, slot)
        return row

    def _fill(self, row: Any, slot: Slot) -> None:
        if slot.kind == "const":
            raw = np.frombuffer(slot.key, slot.dtype)
            row[...] = raw if slot.pack > 1 else raw[0]
        elif slot.kind == "param":
            row[...] = self.launch.param(slot.key, slot.dtype, slot.pack)
        elif slot.kind == "symbol":
            var, offset = slot.key
            row[...] = self.launch.symbol_address(var) + offset
        elif slot.kind == "shared":
            row[...] = self.shared.own_base() + slot.key
        else:
            row[...] = special_row(self, slot.key)

    # Running

    def run(self, first_cluster: int, count: int) -> None:
        """Run clusters ``first_cluster`` onwards of the grid to their end."""
        self.first_cluster = first_cluster
        for cta in self.ctas[: count * self.cluster_size]:
            cta.start(self.launch.cta_position(first_cluster, cta), self.launch.threads)
        for slot, row in zip(self.program.slots, self._rows, strict=False):  # none before the first
            if slot.kind == "special":
                self._fill(row, slot)
        self._poison()
        self._state = {}
        self.shared.reset()
        self.local.reset()
        for listener in self.listeners:
            listener.wave_started(self)
        self.scheduler.run()
        for listener in self.listeners:
            listener.wave_ended(self)

    def _poison(self) -> None:
        """New threads: registers are undefined, so let no earlier value pass for theirs."""
        for bits, file in self.files.items():
            file.fill(bits != 1 and int.from_bytes(b"\xcb" * (min(bits, 64) // 8), "little"))

    def state(self, factory: Callable[[Wave], T]) -> T:
        """A family's object for the CTAs now running, made on first use (see ``Cta.state``)."""
        found = self._state.get(factory)
        if found is None:
            found = self._state[factory] = factory(self)
        return found

    def cta_of_lane(self, lane: int) -> Cta:
        """The CTA that a lane of the wave belongs to."""
        return self.ctas[lane // self.lanes_per_cta]

    # Reports

    def deadlock(self) -> DeadlockError:
        """A report of every blocked split: where it stands and what it waits for."""
        return DeadlockError(f"deadlock, nothing can run:\n  {self._listing()}")

    def endless_spin(self, why: str) -> LivelockError:
        """The same where some splits still run: what they poll, and where."""
        return LivelockError(f"endless spin, {why}:\n  {self._listing()}")

    def _listing(self) -> str:
        lines = [self._blocked(warp, split) for warp in self.warps for split in warp.splits]
        lines = list(dict.fromkeys(lines))
        more = [f"and {len(lines) - LONGEST_LISTING} more"] if len(lines) > LONGEST_LISTING else []
        return "\n  ".join(lines[:LONGEST_LISTING] + more)

    def _blocked(self, warp: Warp, split: Split) -> str:
        pc, what = split.pc, "runs in a loop that reads nothing others change"
        if split.park is not None:
            pc, what = split.pc if split.park.retry else split.pc - 1, split.park.reason()
        elif split.polled is not None:
            pc, what = split.polled[0], f"polls {split.polled[1].describe()}"
        count = 32 if split.mask is None else int(split.mask.sum())
        return (
            f"CTA {warp.cta.position} warp {warp.index} ({count} lanes) at "
            f"{self.program.place(pc)}: {what}"
        )
