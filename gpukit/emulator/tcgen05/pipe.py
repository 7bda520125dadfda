"""The pipe to the tensor core: mma, cp and shift are issued, and done later, in order.

Every CTA has one pipe; with ``.cta_group::2`` the pair shares the even CTA's. What one thread may
rely on is less than the pipe provides, and the checks hold it to that (``check/tensor_memory.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.engine import Flights
from gpukit.emulator.check.async_ops import AsyncOp, Cells, Range
from gpukit.emulator.instructions import Mask
from gpukit.emulator.sync.mbarrier import MBarrier, signal_arrival
from gpukit.emulator.tcgen05.pair import running_members
from gpukit.emulator.tcgen05.tmem import Tmem, tmem_of

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.warps import Warp


class Pipe:
    """What the threads of a CTA, or of a pair, have issued to the tensor core."""

    def __init__(self, cta: Cta) -> None:
        self.cta = cta

    def submit(
        self,
        warp: Warp,
        mask: Mask,
        kind: str,
        reads: tuple[Range | Cells, ...],
        writes: tuple[Cells, ...],
        action: Callable[[], None],
        form: Hashable = None,
    ) -> AsyncOp:
        """One thread (the lane of ``mask``) issues an operation; ``action`` does it, later.

        ``kind`` is "tcgen05.mma", "tcgen05.cp" or "tcgen05.shift". ``reads`` and ``writes`` name
        all that it may touch, in both CTAs of a pair: shared memory as ``Range`` (reads only) and
        Tensor Memory as ``Cells``. An accumulator is among ``writes`` only. ``form`` decides what
        is pipelined: of an mma (accumulator, shape), of a cp its shape ("4x256b").
        ``action`` reads the operands and writes the results, when the policy says so.

        Raises ``OutOfBoundsError`` unless all cells are allocated.
        """
        shared = tuple(part for part in reads if isinstance(part, Range))
        sources = tuple(part for part in reads if isinstance(part, Cells))
        memories = self._memories(warp, (*sources, *writes))
        op = engine.issue(
            warp, mask, kind, shared, (), cells_read=sources, cells_written=writes, form=form
        )
        for memory in memories:
            memory.users.add(op)

        def complete() -> None:
            action()
            for memory in memories:
                memory.users.discard(op)
            engine.performed(op)

        self._post(op, complete)
        return op

    @staticmethod
    def _memories(warp: Warp, parts: tuple[Cells, ...]) -> set[Tmem]:
        """The memories that some cells belong to; all cells must be allocated."""
        found = set()
        for part in parts:
            memory = tmem_of(warp.wave.ctas[part.slot])
            memory.require(part)
            found.add(memory)
        return found

    def commit(self, warp: Warp, mask: Mask, barriers: Sequence[MBarrier]) -> None:
        """``tcgen05.commit``: arrive on the barriers once all that was issued is done.

        The barriers of other CTAs hear of it at times of their own.
        """
        for barrier in barriers:
            op = engine.issue(warp, mask, "tcgen05.commit", (), (), form=barrier)
            barrier.cta.state(Flights).ops.add(op)
            if barrier.cta is warp.cta:
                self._post(op, partial(_signal, op, barrier))
            else:
                where = warp.where(engine.lane_of(mask))
                self._post(op, partial(self._signal_later, op, barrier, where))

    def _post(self, op: AsyncOp, action: Callable[[], None]) -> None:
        where = op.warp.where(engine.lane_of(op.mask))
        op.warp.wave.scheduler.events.post(action, self, where)

    def _signal_later(self, op: AsyncOp, barrier: MBarrier, where: str) -> None:
        events = op.warp.wave.scheduler.events
        events.post(partial(_signal, op, barrier), (self, barrier.cta), where)


def _signal(op: AsyncOp, barrier: MBarrier) -> None:
    barrier.cta.state(Flights).ops.discard(op)
    engine.performed(op)
    signal_arrival(barrier, 1, [op])


def pipe_of(warp: Warp, group: int) -> Pipe:
    """The pipe that a warp's threads issue to. Raises ``TensorMemoryError`` without a live peer."""
    return running_members(warp, group)[0].state(Pipe)
