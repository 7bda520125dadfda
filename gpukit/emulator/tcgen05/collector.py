"""Collector buffers: matrices that the tensor core may keep from one mma to the next.

Reuse changes no result, but ``use`` and ``lastuse`` need a buffer that still holds the matrix.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from gpukit.emulator.errors import KernelFault

if TYPE_CHECKING:
    from gpukit.emulator.cta import Cta


class Collectors:
    """What the buffers ("a", or "b0" to "b3" of ``.ws``) of a CTA's tensor core hold."""

    def __init__(self, cta: Cta) -> None:
        self._held: dict[str, Hashable] = {}

    def issue(self, buffer: str, use: str, matrix: Hashable) -> None:
        """An mma with ``.collector::buffer::use`` reads ``matrix``.

        Raises ``KernelFault`` if it wants what the buffer does not hold.
        """
        if use in ("use", "lastuse") and self._held.get(buffer) != matrix:
            what = "another matrix" if buffer in self._held else "nothing"
            raise KernelFault(
                f".collector::{buffer}::{use} of a matrix that the collector buffer does not hold; "
                f"it holds {what} (.collector::{buffer}::fill keeps one, discard, lastuse and no "
                "qualifier drop it)"
            )
        if use == "fill":
            self._held[buffer] = matrix
        elif use != "use":
            self._held.pop(buffer, None)
