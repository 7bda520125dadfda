"""Convergence of ``.sync`` instructions: run them once all lanes of the member mask are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpukit.emulator.errors import CollectiveError
from gpukit.emulator.instructions import Mask, Op
from gpukit.emulator.outcomes import DISSOLVE, REPEAT, Diverge, Outcome, Park
from gpukit.emulator.warps import Gang, Warp

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes

# Called with the lanes of one group: None for all lanes of the unit, else a bool array.
Body: TypeAlias = "Callable[[Lanes, Mask], None]"
_ALL = np.uint32(0xFFFFFFFF)
_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def bits_of(lanes: Any) -> int:
    """A bool array of 32 lanes as a mask."""
    return int(_BITS[lanes].sum())


def lanes_of(mask: int) -> Any:
    """A 32-bit mask as a bool array."""
    return (np.uint32(mask) & _BITS) != 0


def collective(category: str, members: int, body: Body) -> Op:
    """An operation of all lanes named in the ``members`` operand together.

    Lanes that arrive first wait for the others, as on the hardware. Lanes of one warp may form
    several groups with disjoint masks; ``body`` runs once per group.
    """

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        named = lanes.V[members]
        if mask is None and named.tobytes() == _ALL.tobytes() * lanes.width:
            body(lanes, None)
            return None
        if isinstance(lanes, Gang):
            return DISSOLVE
        assert isinstance(lanes, Warp)
        return _by_groups(lanes, mask, named, body)

    return Op(category, handler=run, wide=True)


def _by_groups(warp: Warp, mask: Mask, named: Any, body: Body) -> Outcome:
    active = np.ones(32, np.bool_) if mask is None else mask
    live = warp.live
    waiting = np.zeros(32, np.bool_)
    missing = 0
    ready = []
    for members in np.unique(named[active]).tolist():
        here = active & (named == members)
        wanted = lanes_of(members)
        if (here & ~wanted).any():
            lane = int((here & ~wanted).argmax())
            raise CollectiveError(f"lane {lane} is not in its own member mask 0x{members:08x}",
                                  lane=lane)  # fmt: skip
        absent = wanted & live & ~here
        if absent.any():
            waiting |= here
            missing |= bits_of(absent)
        else:
            ready.append(here)
    if waiting.any() and _join_siblings(warp):
        return REPEAT
    for group in ready:
        body(warp, None if group.all() else group)
    return _wait(warp, waiting, active, missing)


def _wait(warp: Warp, waiting: Any, active: Any, missing: int) -> Outcome:
    if not waiting.any():
        return None
    park = Park(
        warp.convergence, lambda: f"lanes 0x{missing:08x} of its member mask to arrive", retry=True
    )
    return park if (waiting == active).all() else Diverge(waiting, park)


def _join_siblings(warp: Warp) -> bool:
    """Merge splits that already wait at this instruction into the current one."""
    current = warp.current
    siblings = [
        s for s in warp.splits
        if s is not current and s.park is not None and s.park.queue is warp.convergence
        and s.pc == current.pc and s.frame is current.frame
    ]  # fmt: skip
    for sibling in siblings:
        warp.convergence.discard(sibling)
        sibling.park = None
    return bool(siblings)


def converge(warp: Warp, mask: Mask) -> Outcome:
    """Make the lanes of a diverged warp wait for its other live lanes; None when all are here."""
    if mask is None or not (absent := warp.live & ~mask).any():
        return None
    return REPEAT if _join_siblings(warp) else _wait(warp, mask, mask, bits_of(absent))


def aligned(category: str, body: Callable[[Lanes], Outcome]) -> Op:
    """An ``.aligned`` operation: ``body`` runs for whole warps only (one, or those of a gang).

    Lanes of a diverged warp wait for the others; with some lanes gone it is a ``CollectiveError``.
    """

    def run(lanes: Lanes, mask: Mask) -> Outcome:
        if mask is None:
            return body(lanes)
        if isinstance(lanes, Gang):
            return DISSOLVE
        assert isinstance(lanes, Warp)
        return _by_groups(lanes, mask, _EVERYBODY, _refuse)

    return Op(category, handler=run, wide=True)


_EVERYBODY = np.full(32, _ALL)


def _refuse(lanes: Lanes, group: Mask) -> None:
    present = bits_of(np.ones(32, np.bool_) if group is None else group)
    raise CollectiveError(
        f"only lanes 0x{present:08x} of the warp execute this .aligned instruction; the others "
        "have exited"
    )
