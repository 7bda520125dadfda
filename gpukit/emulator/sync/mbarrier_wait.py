"""mbarrier.try_wait and mbarrier.test_wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.instructions import Mask, Modifiers, Op, op
from gpukit.emulator.outcomes import Diverge, Outcome, Park
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.spin_loops import SpinLoops
from gpukit.emulator.spins import note_poll
from gpukit.emulator.sync.mbarrier import MBarrier, Patience, let_go
from gpukit.emulator.sync.mbarrier_ops import (
    Groups,
    own_barriers_at,
    take_own_space,
    take_semantics,
)
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes, Split

U32, U64, PRED = TYPES["u32"], TYPES["u64"], TYPES["pred"]
MANY_POLLS = 256  # fruitless test_waits in a row before a warp counts as waiting


@op("mbarrier.try_wait", "mbarrier.test_wait")
def wait(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """try_wait blocks; test_wait answers at once, but after many fruitless polls blocks too."""
    blocks, parity = instr.mods[0] == "try_wait", modifiers.flag("parity")
    space = take_own_space(modifiers)
    relaxed = take_semantics(modifiers, "acquire")
    target, address, which = instr.operands[:3]
    groups = Groups(assembler, address, assembler.src(which, U32 if parity else U64))
    predicate = assembler.dst(target, PRED)
    if not blocks:
        assembler.analysis(SpinLoops).add(assembler.pc, None)

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        waiting: list[tuple[Mask, MBarrier, int]] = []
        for part, where, value in groups.of(lanes, mask):
            barriers, offset = own_barriers_at(lanes, where, space)
            barrier = barriers.find(offset)
            phase = barrier.phase_of_parity(value) if parity else barrier.phase_of_token(value)
            if barrier.passed(lanes, phase):
                _go_on(lanes, part, barrier, phase, predicate, relaxed)
            elif blocks or _impatient(lanes, barrier):
                waiting.append((part, barrier, phase))
            else:
                lanes.V[predicate][slice(None) if part is None else part] = False
        return _park(lanes, mask, waiting, predicate, blocks) if waiting else None

    return Op("mbarrier", handler=run)


def _go_on(
    warp: Warp, mask: Mask, barrier: MBarrier, phase: int, predicate: int, relaxed: bool
) -> None:
    warp.V[predicate][slice(None) if mask is None else mask] = True
    warp.wave.launch.count("mbarrier_waits")
    for listener in warp.wave.listeners:
        tell = listener.barrier_passed_relaxed if relaxed else listener.barrier_passed
        tell(warp, mask, barrier, phase)


def _impatient(warp: Warp, barrier: MBarrier) -> bool:
    """Whether a warp has polled an unchanged barrier so often that it had better sleep."""
    note_poll(warp, barrier)
    polls = barrier.cta.cluster[0].state(Patience).polls
    key = (warp, barrier)
    stamp, count = polls.get(key, (barrier.phase, 0))
    polls[key] = (barrier.phase, count + 1 if stamp == barrier.phase else 1)
    return polls[key][1] > MANY_POLLS


def _park(
    warp: Warp,
    mask: Mask,
    waiting: list[tuple[Mask, MBarrier, int]],
    predicate: int,
    expires: bool,
) -> Outcome:
    """Park on the first barrier; lanes at another one are told to try again."""
    lanes, barrier, phase = waiting[0]
    for others, _, _ in waiting[1:]:
        warp.V[predicate][others] = False
    barrier.sleeps(warp)

    def reason() -> str:
        return f"waits for phase {phase} of {barrier.describe()}"

    def expire(split: Split) -> bool:
        return let_go(warp, barrier, predicate, split)

    park = Park(barrier.queue, reason, retry=True, expire=expire if expires else None)
    return park if lanes is mask else Diverge(lanes, park)
