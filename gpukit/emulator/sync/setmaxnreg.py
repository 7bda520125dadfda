"""setmaxnreg: warpgroups hand registers back to the CTA's pool and take them out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.errors import BarrierError, CollectiveError
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.outcomes import Outcome, Park
from gpukit.emulator.ptx.ir import Imm, Instr
from gpukit.emulator.waits import WaitQueue
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

REGISTERS = 1 << 16  # of one SM
LEAST, MOST, STEP = 24, 256, 8
GROUP = 4  # warps of a warpgroup


class RegisterPool:
    """Registers per thread that each warp owns, and what is free in the CTA's pool.

    The count at the start follows from the kernel's directives, and is not above what the warps
    take later; without directives the instruction has no effect, as on the hardware.
    """

    def __init__(self, cta: Cta) -> None:
        self.cta = cta
        self.start = _registers_at_launch(cta)
        self.owned = [self.start] * len(cta.warps)
        self.free = 0  # per thread of one warp
        self.queue = WaitQueue()
        self.history: list[list[tuple[str, int]]] = [[] for _ in cta.warps]
        cta.exit_hooks.append(self._check_exit)

    def adjust(self, warp: Warp, action: str, count: int) -> Outcome:
        """One warp executes setmaxnreg."""
        index = warp.index
        owned = self.owned[index]
        if (owned < count) if action == "dec" else (owned > count):
            raise BarrierError(f"setmaxnreg.{action} to {count}: the warp owns {owned} registers")
        if count - owned > self.free:
            return Park(self.queue, lambda: self._describe(index, count), retry=True)
        self.history[index].append((action, count))
        self._check_group(index)
        self.free -= count - owned
        self.owned[index] = count
        if action == "dec":
            self.queue.wake()
        return None

    def _describe(self, index: int, count: int) -> str:
        return (
            f"waits for {count - self.owned[index]} more registers per thread; the CTA's pool has "
            f"{self.free} for one warp"
        )

    def _check_group(self, index: int) -> None:
        """The warps of a warpgroup execute the same sequence."""
        mine = self.history[index]
        first = index // GROUP * GROUP
        for other in range(first, min(first + GROUP, len(self.history))):
            theirs = self.history[other][: len(mine)]
            if theirs != mine[: len(theirs)]:
                raise BarrierError(
                    f"setmaxnreg.{mine[-1][0]} to {mine[-1][1]}: warp {other} of the same "
                    f"warpgroup executed setmaxnreg.{theirs[-1][0]} to {theirs[-1][1]}"
                )

    def _check_exit(self) -> None:
        if any(warp.splits for warp in self.cta.warps):
            return
        for first in range(0, len(self.history), GROUP):
            counts = {len(history) for history in self.history[first : first + GROUP]}
            if len(counts) > 1:
                raise BarrierError(
                    f"setmaxnreg was not executed by all warps of the warpgroup of warp {first} of "
                    f"CTA {self.cta.position}"
                )


def _registers_at_launch(cta: Cta) -> int:
    """Registers per thread, or 0 if the kernel sets no limit.

    The limit is for the start, the largest ``inc`` for later: ptxas takes the smaller of the two.
    """
    instrs = cta.wave.program.instrs
    taken = [_count(instr) for instr in instrs if instr.opcode.startswith("setmaxnreg.inc")]
    return min(_limit(cta), max(taken, default=MOST))


def _limit(cta: Cta) -> int:
    directives = cta.wave.program.kernel.directives
    limit = directives.get("maxnreg")
    if limit:
        return limit[0] // STEP * STEP
    threads = directives.get("reqntid") or directives.get("maxntid")
    if not threads or "minnctapersm" not in directives:
        return 0
    total = 1
    for extent in threads:
        total *= extent
    warps = -(-total // 32)
    share = REGISTERS // (32 * warps * directives["minnctapersm"][0])
    return min(share // STEP * STEP, MOST)


def _count(instr: Instr) -> int:
    operand = instr.operands[0]
    return int(operand.value) if isinstance(operand, Imm) else 0


@op("setmaxnreg")
def setmaxnreg(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    action = modifiers.pick("inc", "dec")
    modifiers.drop("sync", "aligned", "u32")
    count = _count(instr)
    if not LEAST <= count <= MOST or count % STEP:
        raise Unsupported(f"the register count must be {LEAST} to {MOST} in steps of {STEP}")

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        if mask is not None and (lanes.live & ~mask).any():
            raise CollectiveError("setmaxnreg is executed by some lanes of a warp only")
        pool = lanes.cta.state(RegisterPool)
        if pool.start == 0:
            lanes.wave.launch.count("setmaxnreg_ignored")
            return None
        return pool.adjust(lanes, action, count)

    return Op("registers", handler=run)
