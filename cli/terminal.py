"""What the two standard streams can show."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def interactive(stream: TextIO) -> bool:
    """Whether somebody looks at a stream that can move its cursor.

    Only the stream decides: FORCE_COLOR and the like would put escape codes into pipes.
    """
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def width(stream: TextIO) -> int | None:
    """Return the columns there are, or None when lines may be as long as they need to be."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns


def console(stream: TextIO, columns: int) -> Console:
    """Return a Rich console for a stream, exactly ``columns`` wide, plain unless interactive."""
    from rich.console import Console

    live = interactive(stream)
    colours = live and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        width=columns,
        force_terminal=live,
        color_system="standard" if colours else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def warn(text: str) -> None:
    """Write one line to standard error."""
    print(text, file=sys.stderr, flush=True)
