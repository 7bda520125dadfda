"""Call frames: where a called function returns to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpukit.emulator.program import Code


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One call. Lanes share a frame only if they made the call together.

    ``saved`` holds the caller's registers where the call may be recursive: width -> rows.
    """

    parent: Frame | None
    return_pc: int
    caller: Code
    depth: int
    copy_back: tuple[tuple[int, int, int], ...] = ()
    saved: dict[int, Any] | None = None
