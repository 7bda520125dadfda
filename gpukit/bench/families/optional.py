"""Axis values that may be left to gpukit: ``auto`` beside numbers or words."""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.bench.axes import Integers
from gpukit.errors import ArgumentError

AUTO = "auto"
#: What CUDA accepts as a grid's x dimension at most.
MAX_GRID = 2**31 - 1


@dataclass(frozen=True)
class Auto:
    """``auto`` (gpukit chooses), or the ``allowed`` values, or any integer from ``minimum``
    to `MAX_GRID`."""

    allowed: tuple[int | str, ...] = ()
    minimum: int = 0

    def __call__(self, text: str) -> tuple[int | str, ...]:
        values = [value for item in text.split(",") for value in self._item(item.strip())]
        return tuple(dict.fromkeys(values))

    def _item(self, item: str) -> tuple[int | str, ...]:
        if item == AUTO:
            return (AUTO,)
        if not self.allowed:
            return Integers(self.minimum, maximum=MAX_GRID)(item)
        if item == "all":
            return self.allowed
        by_text = {str(value): value for value in self.allowed}
        if item not in by_text:
            raise ArgumentError(f"{item!r} is not one of auto, {', '.join(by_text)}, all")
        return (by_text[item],)


@dataclass(frozen=True)
class Grids:
    """Grid rules: ``auto``, ``gs1``, ``gs2`` or numbers of CTAs."""

    def __call__(self, text: str) -> tuple[int | str, ...]:
        values = [value for item in text.split(",") for value in self._item(item.strip())]
        return tuple(dict.fromkeys(values))

    def _item(self, item: str) -> tuple[int | str, ...]:
        if item in (AUTO, "gs1", "gs2"):
            return (item,)
        return Integers(1, maximum=MAX_GRID)(item)
