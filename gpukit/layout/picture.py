"""A layout as a picture: a grid of cells, each with a text, a colour and the facts behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Fact: TypeAlias = "int | str"


@dataclass(frozen=True)
class Cell:
    """One place. ``group`` picks the colour; ``ways`` above 1 is a bank conflict of so many."""

    text: str
    group: int
    facts: Mapping[str, Fact]
    ways: int = 1


@dataclass(frozen=True)
class Picture:
    """A grid of cells, None where nothing lies.

    ``down`` and ``across`` say what rows and columns are, ``rows`` and ``columns`` name them;
    ``colours`` says what a cell's group is, ``notes`` are lines below.
    """

    title: str
    down: str
    across: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    colours: str
    notes: tuple[str, ...] = ()

    def window(self, rows: slice, columns: slice) -> Picture:
        """A part of it."""
        cells = tuple(line[columns] for line in self.cells[rows])
        return replace(self, rows=self.rows[rows], columns=self.columns[columns], cells=cells)

    def records(self) -> Iterator[dict[str, Fact]]:
        """The facts of every cell, row by row."""
        for line in self.cells:
            for cell in line:
                if cell is not None:
                    yield {**cell.facts, **({"conflict": cell.ways} if self.conflicts else {})}

    @property
    def conflicts(self) -> int:
        """Ways of the worst bank conflict; 0 without one."""
        worst = max((cell.ways for line in self.cells for cell in line if cell), default=1)
        return worst if worst > 1 else 0


def names(count: int) -> tuple[str, ...]:
    """0, 1, 2, ..."""
    return tuple(map(str, range(count)))


def cells_of(
    shape: tuple[int, int], make: Callable[[int, int], Cell | None]
) -> tuple[tuple[Cell | None, ...], ...]:
    """The cells of a grid, made one by one."""
    return tuple(tuple(make(i, j) for j in range(shape[1])) for i in range(shape[0]))


def filled(
    shape: tuple[int, int], placed: Mapping[tuple[int, int], Cell]
) -> tuple[tuple[Cell | None, ...], ...]:
    """The cells of a grid of which some are given."""
    return cells_of(shape, lambda i, j: placed.get((i, j)))


def whole(*arrays: Any) -> Iterator[tuple[int, ...]]:
    """Elements of arrays of one shape, together, as Python numbers."""
    for values in zip(*(array.ravel().tolist() for array in arrays), strict=True):
        yield tuple(map(int, values))
