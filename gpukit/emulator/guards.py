"""Predicates on handlers, and stand-ins that break up a gang."""

from __future__ import annotations

from gpukit.emulator.instructions import Handler, Mask, Op
from gpukit.emulator.lanes import Lanes
from gpukit.emulator.outcomes import DISSOLVE, Dissolve, Diverge, Outcome, Repeat, Yield


def guarded(handler: Handler, p: int, negated: bool) -> Handler:
    """``@p`` in front of a handler: run it for the lanes whose predicate holds."""

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        holds = ~lanes.V[p] if negated else lanes.V[p].copy()
        active = holds if mask is None else holds & mask
        raw = active.tobytes()
        if b"\x01" not in raw:
            return None
        if raw == (lanes.all_ones if mask is None else mask.tobytes()):
            return handler(lanes, mask)
        outcome = handler(lanes, active)
        if outcome is None or isinstance(outcome, Dissolve | Yield | Repeat):
            return outcome
        return Diverge(active, outcome)

    return run


def gang_handler(op: Op) -> Handler | None:
    """What a gang does at this operation: it together, or fall apart into warps."""
    if op.handler is None or op.wide:
        return op.handler
    return lambda lanes, mask: DISSOLVE
