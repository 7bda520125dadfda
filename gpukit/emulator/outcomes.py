"""What a handler tells the engine: go on, jump, park, split up or stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gpukit.emulator.frames import Frame
    from gpukit.emulator.lanes import Split
    from gpukit.emulator.waits import WaitQueue


@dataclass(frozen=True, slots=True)
class Jump:
    """All active lanes continue at ``pc``; with ``frame`` also in another call frame."""

    pc: int
    frame: Frame | None = None
    changes_frame: bool = False


@dataclass(frozen=True, slots=True)
class Diverge:
    """The lanes of ``mask`` take ``outcome``, the other active lanes continue behind."""

    mask: Any
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Scatter:
    """Active lanes go to several targets: pairs of (lanes, outcome) that cover all of them."""

    groups: tuple[tuple[Any, Outcome], ...]


@dataclass(frozen=True, slots=True)
class Park:
    """The lanes wait in ``queue``; woken, they repeat the instruction (``retry``) or go on.

    ``reason`` is called for the deadlock report only. A wait with a time limit has ``expire``:
    called when nothing else can run, it lets the split go on (True) or insists (False).
    """

    queue: WaitQueue
    reason: Callable[[], str]
    retry: bool = False
    expire: Callable[[Split], bool] | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """The lanes end."""


@dataclass(frozen=True, slots=True)
class Yield:
    """Go on behind, but let others run first (a spin, a sleep)."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Run the instruction again once the unit's runnable splits have been merged."""


@dataclass(frozen=True, slots=True)
class Dissolve:
    """A gang cannot do this together: repeat the instruction warp by warp."""


EXIT = Exit()
YIELD = Yield()
REPEAT = Repeat()
DISSOLVE = Dissolve()

Outcome: TypeAlias = "Jump | Diverge | Scatter | Park | Exit | Yield | Repeat | Dissolve | None"
