"""Warpgroups: four warps that issue wgmma together, and the wgmmas they have in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gpukit.emulator.aio.engine import OpNumbers
from gpukit.emulator.check.async_ops import AsyncOp
from gpukit.emulator.errors import CollectiveError
from gpukit.emulator.mma.operands import SharedMatrix
from gpukit.emulator.outcomes import Park
from gpukit.emulator.waits import WaitQueue
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes

WARPS = 4
Release: TypeAlias = "Callable[[Warpgroup, Any], None]"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What all four warps must agree on: matrices in shared memory and scale-d."""

    a: SharedMatrix | None
    b: SharedMatrix
    add: bool


class Multiplier(Protocol):
    """The instruction itself, as far as a warpgroup needs it; ``key`` names its accumulators."""

    key: bytes

    def perform(self, group: Warpgroup, arguments: Arguments) -> None:
        """Read the operands and change the accumulators."""


@dataclass(slots=True)
class Wgmma:
    """One wgmma of a warpgroup; ``done`` once performed. ``copies`` follow it: warp, to, from."""

    number: int
    pc: int
    instruction: Multiplier
    arguments: Arguments
    issuers: list[Warp] = field(default_factory=list)
    done: bool = False
    heard: list[AsyncOp] = field(default_factory=list)
    copies: list[tuple[Warp, int, int]] = field(default_factory=list)


class Warpgroup:
    """Four consecutive warps of a CTA, the first a multiple of four.

    Each warp issues its wgmmas on its own; one goes to the tensor core when all four have issued
    it. wgmmas of a warpgroup are performed in order.
    """

    def __init__(self, cta: Cta, number: int) -> None:
        self.cta = cta
        self.number = number
        self.warps = cta.warps[WARPS * number : WARPS * number + WARPS]
        self.queue = WaitQueue()
        self.ops: list[Wgmma] = []  # from number ``_first`` on
        self._first = 1
        self._issued = [0] * WARPS
        self._waited = [0] * WARPS
        self._groups: list[list[int]] = [[] for _ in range(WARPS)]  # last number of each
        self._held: tuple[bytes, Any, Release] | None = None
        cta.exit_hooks.append(self._somebody_left)

    @property
    def lanes(self) -> slice:
        """The warpgroup's lanes in the wave."""
        return slice(self.warps[0].lo, self.warps[-1].hi)

    # Issue

    def issue(
        self, warp: Warp, lanes: Lanes, instruction: Multiplier, arguments: Arguments
    ) -> None:
        """A warp executes a wgmma. Raises ``CollectiveError`` if its sisters did something else."""
        if len(self.warps) < WARPS:
            raise CollectiveError(
                f"wgmma needs four warps; the CTA has only {len(self.warps)} from warp "
                f"{WARPS * self.number} on"
            )
        pc, quarter = lanes.current.pc, warp.index % WARPS
        self._issued[quarter] += 1
        number = self._issued[quarter]
        if number == self._first + len(self.ops):
            self.ops.append(Wgmma(number, pc, instruction, arguments))
        op = self.ops[number - self._first]
        self._check_same(op, pc, arguments, warp)
        op.issuers.append(warp)
        if warp.wave.listeners:
            self._announce(op, warp, quarter)
        if len(op.issuers) == WARPS:
            where = lanes.where(warp.lo - lanes.lo)
            warp.wave.scheduler.events.post(lambda: self._perform(op), (self, "wgmma"), where)
        else:
            self._check_present(op)

    def _check_same(self, op: Wgmma, pc: int, arguments: Arguments, warp: Warp) -> None:
        first = op.issuers[0] if op.issuers else warp
        if op.pc != pc:
            place = warp.wave.program.place(op.pc)
            raise CollectiveError(
                f"the warps of a warpgroup must execute the same wgmma; warp {first.index} "
                f"executed that of {place}"
            )
        if op.arguments is not arguments and op.arguments != arguments:
            raise CollectiveError(
                f"the warps of a warpgroup must pass wgmma the same descriptors and scale-d; warp "
                f"{first.index} passed {_shown(op.arguments)}, "
                f"warp {warp.index} {_shown(arguments)}"
            )

    def _check_present(self, op: Wgmma) -> None:
        gone = [w.index for w in self.warps if w not in op.issuers and not w.splits]
        if gone:
            raise CollectiveError(
                f"all four warps of a warpgroup must execute wgmma; warp {gone[0]} has exited "
                f"without executing that of {self.cta.wave.program.place(op.pc)}"
            )

    def _somebody_left(self) -> None:
        for op in self.ops:
            if len(op.issuers) < WARPS:
                self._check_present(op)

    def _announce(self, op: Wgmma, warp: Warp, quarter: int) -> None:
        """Tell the checks which bytes this warp's part of the wgmma reads."""
        a, slot = op.arguments.a, self.cta.slot
        reads = [op.arguments.b.range(slot)]
        if a is not None:
            reads.append(a.range(slot, quarter))
        numbers = self.cta.cluster[0].state(OpNumbers)
        heard = AsyncOp(numbers.next, "wgmma", warp, pc=op.pc, reads=tuple(reads))
        numbers.next += 1
        op.heard.append(heard)
        for listener in warp.wave.listeners:
            listener.async_issued(heard)

    # Completion

    def _perform(self, op: Wgmma) -> None:
        op.instruction.perform(self, op.arguments)
        op.done = True
        for copy in op.copies:
            self._copy(*copy)
        for heard in op.heard:
            heard.read_done = heard.done = True
            for listener in self.cta.wave.listeners:
                listener.async_performed(heard)
        self.cta.wave.scheduler.changed = True
        self.queue.wake()

    # Accumulators stay with the tensor core as a matrix until somebody may look at the registers.

    def held(self, key: bytes) -> Any:
        """The accumulators of that name as last left; None if they are in the registers."""
        if self._held is not None and self._held[0] == key:
            return self._held[1]
        self._release()
        return None

    def hold(self, key: bytes, values: Any, release: Release) -> None:
        """Keep accumulators; ``release`` writes them to the registers."""
        self._held = key, values, release

    def _release(self) -> None:
        if self._held is not None:
            _, values, release = self._held
            self._held = None
            release(self, values)

    def _may_look(self, quarter: int, number: int) -> bool:
        """Whether a warp that waited for ``number`` may read the accumulators that are held."""
        if self._held is None:
            return False
        later = self.ops[number + 1 - self._first : self._issued[quarter] + 1 - self._first]
        return all(op.instruction.key != self._held[0] for op in later)

    # Copies

    def copy_after(self, number: int, warp: Warp, target: int, source: int) -> None:
        """Copy a register of a warp when its wgmma ``number`` has been performed."""
        op = self.ops[number - self._first] if number >= self._first else None
        if op is None or op.done:
            self._copy(warp, target, source)
        else:
            op.copies.append((warp, target, source))

    def _copy(self, warp: Warp, target: int, source: int) -> None:
        self._release()
        registers = warp.registers(32)
        registers[target] = registers[source]

    # Groups

    def commit(self, warp: Warp) -> None:
        """``wgmma.commit_group``: one more group of the warp ends here."""
        quarter = warp.index % WARPS
        self._groups[quarter].append(self._issued[quarter])

    def due(self, warp: Warp, newest: int) -> int:
        """The number up to which wgmmas must be done when only ``newest`` groups may be pending."""
        groups = self._groups[warp.index % WARPS]
        return groups[-newest - 1] if len(groups) > newest else 0

    def ready(self, number: int) -> bool:
        """Whether all wgmmas up to ``number`` have been performed."""
        last = number - self._first
        return last < 0 or self.ops[last].done

    def passed(self, warp: Warp, newest: int, number: int) -> None:
        """The warp has waited for its wgmmas up to ``number``."""
        quarter = warp.index % WARPS
        before, self._waited[quarter] = self._waited[quarter], max(self._waited[quarter], number)
        groups = self._groups[quarter]
        del groups[: max(0, len(groups) - newest)]
        if self._may_look(quarter, self._waited[quarter]):
            self._release()
        if warp.wave.listeners:
            ops = self.ops[max(0, before + 1 - self._first) : max(0, number + 1 - self._first)]
            # A wgmma-group is the warpgroup's: when it is complete for one warp, the other warps'
            # parts are too, so one of them may signal that the operands are free.
            heard = [h for op in ops for h in op.heard]
            for listener in warp.wave.listeners:
                listener.group_waited(warp, None, heard, False)
        self._forget(min(self._waited))

    def _forget(self, number: int) -> None:
        """Drop wgmmas that every warp has waited for."""
        count = number + 1 - self._first
        if count > 0:
            del self.ops[:count]
            self._first += count

    def park(self, number: int) -> Park:
        """Wait until wgmma ``number`` has been performed."""
        return Park(self.queue, lambda: self._missing(number), retry=True)

    def _missing(self, number: int) -> str:
        for op in self.ops[: number + 1 - self._first]:
            absent = [str(w.index) for w in self.warps if w not in op.issuers]
            if absent:
                place = self.cta.wave.program.place(op.pc)
                return f"warp {', '.join(absent)} of its warpgroup to execute the wgmma of {place}"
        return "its wgmmas to complete"


class Warpgroups:
    """The warpgroups of a CTA."""

    def __init__(self, cta: Cta) -> None:
        self.items = [Warpgroup(cta, n) for n in range(-(-len(cta.warps) // WARPS))]


def warpgroup_of(warp: Warp) -> Warpgroup:
    """The warpgroup that a warp belongs to."""
    return warp.cta.state(Warpgroups).items[warp.index // WARPS]


def warps_of(lanes: Lanes) -> Sequence[Warp]:
    """The warps of a unit."""
    if isinstance(lanes, Gang):
        return lanes.warps
    assert isinstance(lanes, Warp)
    return (lanes,)


def _shown(arguments: Arguments) -> str:
    parts = [str(m.descriptor) for m in (arguments.a, arguments.b) if m is not None]
    return f"({'; '.join(parts)}; scale-d {int(arguments.add)})"
