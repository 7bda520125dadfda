"""clusterlaunchcontrol: a running cluster takes over one of its grid that has not started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.aio import engine
from gpukit.emulator.aio.blocks import SharedBlock, shared_block
from gpukit.emulator.aio.bulk import per_lane
from gpukit.emulator.aio.signals import Signals
from gpukit.emulator.errors import KernelFault, OutOfBoundsError
from gpukit.emulator.instructions import Mask, Modifiers, Op, Unsupported, op
from gpukit.emulator.mem.points import Point, lane_numbers, take_shared_space
from gpukit.emulator.program import LAUNCH_CONTROL
from gpukit.emulator.ptx.ir import Instr, Operand, Sink, Vec
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.sync.mbarrier import MBarrier
from gpukit.emulator.warps import Warp

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.cta import Cta
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

U32, B128, PRED = TYPES["u32"], TYPES["b128"], TYPES["pred"]
BYTES = 16
_MARK, _GRANTED = 0x676B434C43 << 8, 1  # the upper half of an answer; the lower half is a position
_AXES = {"x": (0, 32), "y": (32, 16), "z": (48, 16)}  # lowest bit and width in the lower half


def _answer(position: tuple[int, int, int] | None) -> Any:
    """The 16 bytes, of a format of our own, for a cluster whose first CTA is at ``position``."""
    x, y, z = position or (0, 0, 0)
    halves = (x | y << 32 | z << 48, _MARK | (_GRANTED if position else 0))
    return np.array(halves, np.uint64).view(np.uint8)


class Refusals:
    """Requests that found no cluster left, as one CTA hears of them."""

    def __init__(self, cta: Cta) -> None:
        self._told: list[tuple[MBarrier, int]] = []  # and the phase that tells so

    def told(self, barrier: MBarrier) -> None:
        """The barrier's current phase will say that a request has failed."""
        self._told.append((barrier, barrier.phase))

    @property
    def observed(self) -> bool:
        """Whether the CTA has waited for the end of a request that failed."""
        return any(barrier.observed(phase) for barrier, phase in self._told)


# try_cancel


@op("clusterlaunchcontrol.try_cancel.async")
def try_cancel(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    space = take_shared_space(modifiers)
    if space == "cluster":
        raise Unsupported("answers go to the own CTA (.shared::cta)")
    modifiers.pick("mbarrier::complete_tx::bytes")
    multicast = modifiers.flag("multicast::cluster::all")
    modifiers.drop("b128")
    answer, barrier = (Point(assembler, operand) for operand in instr.operands)

    def act(warp: Warp, lane: int) -> None:
        home = _own_block(warp, answer.at(warp, lane), space)
        ctas = warp.cta.cluster if multicast else [warp.cta]
        signals = Signals.find(warp, barrier.at(warp, lane), space, warp.cta, ctas, BYTES)
        _request(warp, lane, [home.on(cta) for cta in ctas], signals)

    return per_lane(LAUNCH_CONTROL, act)


def _own_block(warp: Warp, address: int, space: str) -> SharedBlock:
    block = shared_block(warp, address, space, BYTES, BYTES)
    if block.cta is not warp.cta:
        raise OutOfBoundsError(
            f"0x{address:x} is in the shared memory of rank {block.cta.rank}; the answer goes to "
            "the own CTA's (or with .multicast::cluster::all to the same place in each)",
            address=address,
        )
    return block


def _request(warp: Warp, lane: int, targets: list[SharedBlock], signals: Signals) -> None:
    """Cancel the next cluster, if one is left, and tell every target later."""
    if warp.cta.state(Refusals).observed:
        raise KernelFault(
            f"CTA {warp.cta.position} has seen an earlier request fail; a further try_cancel is "
            "undefined"
        )
    launch = warp.wave.launch
    position = launch.cancel_cluster()
    launch.count("cancel_requests")
    launch.count("cancelled_clusters", position is not None)
    for number, target in enumerate(targets):
        made = engine.issue(warp, engine.one_lane(lane), "launch_cancel", (), (target.range,))
        tell = partial(_deliver, target, position, signals.barriers[number])
        signals.after(tell, made, number)


def _deliver(target: SharedBlock, position: tuple[int, int, int] | None, barrier: MBarrier) -> None:
    target.write(_answer(position))
    if position is None:
        target.cta.state(Refusals).told(barrier)


# query_cancel


@op("clusterlaunchcontrol.query_cancel.is_canceled")
def is_canceled(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop("pred", "b128")
    target = assembler.dst(instr.operands[0], PRED)

    def put(warp: Warp, lane: int, answer: tuple[int, int]) -> None:
        warp.V[target][lane] = bool(answer[1] & _GRANTED)

    return _query(assembler.src(instr.operands[1], B128), put)


@op(
    "clusterlaunchcontrol.query_cancel.get_first_ctaid",
    *(f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}" for axis in _AXES),
)
def get_first_ctaid(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    modifiers.drop("v4", "b32", "b128")
    targets = [(assembler.dst(item, U32), axis) for item, axis in _wanted(instr)]

    def put(warp: Warp, lane: int, answer: tuple[int, int]) -> None:
        if not answer[1] & _GRANTED:
            raise KernelFault(
                "get_first_ctaid of a request that failed is undefined; ask is_canceled first",
                lane=lane,
            )
        for target, axis in targets:
            low, width = _AXES[axis]
            warp.V[target][lane] = answer[0] >> low & (1 << width) - 1

    return _query(assembler.src(instr.operands[1], B128), put)


def _wanted(instr: Instr) -> list[tuple[Operand, str]]:
    """The destinations and the axis that each receives."""
    first, axis = instr.operands[0], instr.opcode.partition("get_first_ctaid::")[2][:1]
    if axis:
        return [(first, axis)]
    if not isinstance(first, Vec) or len(first.items) != 4:
        raise Unsupported("needs four destinations, or an axis such as ::x")
    pairs = zip(first.items, _AXES, strict=False)  # what the fourth receives is unspecified
    return [(item, axis) for item, axis in pairs if not isinstance(item, Sink)]


def _query(answer: int, put: Callable[[Warp, int, tuple[int, int]], None]) -> Op:
    def run(lanes: Lanes, mask: Mask) -> Outcome:
        assert isinstance(lanes, Warp)
        rows = lanes.V[answer]
        for lane in lane_numbers(mask):
            low, high = rows[lane].tolist()
            if high & ~_GRANTED != _MARK:
                raise KernelFault("the register holds no answer of try_cancel", lane=lane)
            put(lanes, lane, (low, high))
        return None

    return Op(LAUNCH_CONTROL, handler=run)
