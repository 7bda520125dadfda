"""How a sweep goes, on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress
    from typing_extensions import Self

    from gpukit.bench.model import Case, Row
    from gpukit.bench.session import DeviceInfo


#: Columns that the bar, the counts and the remaining time take, with some to spare.
_BAR_WIDTH = 50


class SweepProgress:
    """Collects the rows of a sweep and, when somebody looks at standard error, shows a bar.

    ``rows`` maps keys to rows: those kept from before, then the new ones as they finish.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.total = 0
        self._bar: Progress | None = None

    def planned(
        self, todo: int, kept: Sequence[Row], seconds: float | None, info: DeviceInfo
    ) -> None:
        self.rows = {row.key: row for row in kept}
        self.total = todo + len(kept)
        before = f", {len(kept)} kept from before" if kept else ""
        terminal.warn(f"{info.name}: {plan(todo, seconds)}{before}")
        if todo and terminal.interactive(sys.stderr):
            self._bar = _bar(todo)

    def running(self, case: Case) -> None:
        if self._bar is not None:
            room = (terminal.width(sys.stderr) or 80) - _BAR_WIDTH
            self._bar.update(self._bar.task_ids[0], description=whole_words(case.key, room))

    def finished(self, row: Row) -> None:
        self.rows[row.key] = row
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(todo: int) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    progress = Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        Remaining(),
        TextColumn("{task.description}"),
        console=terminal.console(sys.stderr, terminal.width(sys.stderr) or 80),
        transient=True,
    )
    progress.add_task("", total=todo)
    progress.start()
    return progress


def whole_words(text: str, room: int) -> str:
    """Return as many leading words of a text as fit; a word, and so a number, is never cut."""
    words = text.split(" ")
    while words and len(" ".join(words)) > room:
        words.pop()
    return " ".join(words)


def plan(cases: int, seconds: float | None) -> str:
    """Return how much there is to do: ``20 cases, about 45 s``; no time where it is unknown."""
    count = f"{cases} case{'' if cases == 1 else 's'}"
    return f"{count}, about {duration(seconds)}" if cases and seconds is not None else count


def duration(seconds: float) -> str:
    """Return a rough duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
