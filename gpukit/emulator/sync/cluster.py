"""Clusters: mapa, getctarank, isspacep of the own CTA, and the cluster barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.errors import BarrierError
from gpukit.emulator.instructions import Expr, Mask, Modifiers, Op, Unsupported, alu, op
from gpukit.emulator.mem import windows
from gpukit.emulator.outcomes import Outcome, Park
from gpukit.emulator.program import Slot
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.waits import WaitQueue
from gpukit.emulator.warp.collective import converge
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

U32, S64, PRED = TYPES["u32"], TYPES["s64"], TYPES["pred"]


@alu("mapa")
def mapa(modifiers: Modifiers) -> Expr:
    """The address of the same variable in the CTA of another rank."""
    modifiers.drop("shared::cluster")  # generic addresses keep their window in the upper bits
    type_ = modifiers.type()
    keep = type_.dtype.type(~(0xFF << windows.RANK_SHIFT) & ((1 << type_.bits) - 1))

    def run(address: Any, rank: Any) -> Any:
        return (address & keep) | (rank << np.uint32(windows.RANK_SHIFT)).astype(type_.dtype)

    return Expr(run, (type_, U32), type_, category="move")


@alu("getctarank")
def getctarank(modifiers: Modifiers) -> Expr:
    modifiers.drop("shared::cluster")
    type_ = modifiers.type()
    return Expr(
        lambda a: a >> type_.dtype.type(windows.RANK_SHIFT) & type_.dtype.type(0xFF),
        (type_,), U32, category="move",
    )  # fmt: skip


@op("isspacep.shared", "isspacep.shared::cta")
def in_own_shared(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Whether a generic address points into the shared memory of the executing CTA."""
    target, source = instr.operands
    own = assembler.slot(Slot("shared", 0, S64.dtype))
    address, result = assembler.src(source, S64), assembler.dst(target, PRED)
    offsets = ~np.int64(windows.OFFSET_MASK)

    def compute(v: list[Any]) -> Any:
        return (v[address] & offsets) == v[own] + windows.SHARED

    def full(v: list[Any]) -> None:
        v[result][...] = compute(v)

    def masked(v: list[Any], mask: Mask) -> None:
        v[result][mask] = compute(v)[mask]

    return Op("move", full, masked)


class ClusterBarrier:
    """The hardware barrier of one cluster. Threads arrive, then wait for the phase they joined."""

    def __init__(self, leader: Cta) -> None:
        self.warps = [warp for cta in leader.cluster for warp in cta.warps]
        self.queue = WaitQueue()
        self.phase = 0
        self.here: set[Warp] = set()  # all their live lanes have arrived
        self.arrived = {warp: np.zeros(32, np.bool_) for warp in self.warps}
        self.joined = {warp: np.full(32, -1) for warp in self.warps}  # phase of each lane's arrival
        for cta in leader.cluster:
            cta.exit_hooks.append(self._lanes_ended)

    def arrive(self, warp: Warp, mask: Mask, relaxed: bool) -> None:
        lanes = np.ones(32, np.bool_) if mask is None else mask
        if (self.joined[warp][lanes] >= 0).any():
            raise BarrierError("barrier.cluster.arrive twice without a wait in between")
        self.arrived[warp] |= lanes
        self.joined[warp][lanes] = self.phase
        for listener in warp.wave.listeners:
            tell = listener.barrier_arrived_relaxed if relaxed else listener.barrier_arrived
            tell(warp, mask, self, self.phase)
        self._look_at(warp)
        self.try_complete()

    def _look_at(self, warp: Warp) -> None:
        if not (warp.live & ~self.arrived[warp]).any():
            self.here.add(warp)

    def _lanes_ended(self) -> None:
        """Exited threads need not arrive."""
        if self.here or any(lanes.any() for lanes in self.arrived.values()):
            for warp in self.warps:
                if warp.splits and warp not in self.here:
                    self._look_at(warp)
            self.try_complete()

    def try_complete(self) -> None:
        """Begin the next phase once every live thread of the cluster has arrived."""
        if not self.here or any(warp.splits and warp not in self.here for warp in self.warps):
            return
        self.phase += 1
        self.here.clear()
        for lanes in self.arrived.values():
            lanes[:] = False
        self.queue.wake()

    def wait(self, warp: Warp, mask: Mask) -> Outcome:
        lanes = np.ones(32, np.bool_) if mask is None else mask
        joined = self.joined[warp][lanes]
        if (joined < 0).any():
            raise BarrierError("barrier.cluster.wait without an arrive before it")
        if (joined >= self.phase).any():
            return Park(self.queue, self.describe, retry=True)
        self.joined[warp][lanes] = -1
        for listener in warp.wave.listeners:
            listener.barrier_passed(warp, mask, self, int(joined[0]))
        return None

    def describe(self) -> str:
        """For the deadlock report."""
        missing = [w for w in self.warps if (w.live & ~self.arrived[w]).any()]
        names = ", ".join(f"warp {w.index} of rank {w.cta.rank}" for w in missing[:8])
        return f"cluster barrier, phase {self.phase}: has not seen {names}"


def barrier_of(cta: Cta) -> ClusterBarrier:
    return cta.cluster[0].state(ClusterBarrier)


@op("barrier.cluster")
def barrier_cluster(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    kind = modifiers.pick("arrive", "wait")
    relaxed, aligned = modifiers.flag("relaxed"), modifiers.flag("aligned")
    modifiers.drop("release" if kind == "arrive" else "acquire")
    if instr.operands:
        raise Unsupported("barrier.cluster takes no operands")

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        if aligned and (outcome := converge(lanes, mask)) is not None:
            return outcome
        barrier = barrier_of(lanes.cta)
        if kind == "wait":
            return barrier.wait(lanes, mask)
        barrier.arrive(lanes, mask, relaxed)
        return None

    return Op("barrier", handler=run)
