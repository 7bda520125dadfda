"""A picture as a file: SVG, HTML, PNG, JSON or CSV, by the file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpukit.layout.draw.png import png
from gpukit.layout.draw.records import csv, json
from gpukit.layout.draw.svg import html, svg
from gpukit.layout.picture import Picture

WRITERS: dict[str, Callable[[Picture], bytes]] = {
    ".svg": svg, ".html": html, ".png": png, ".json": json, ".csv": csv}


def encoded(picture: Picture, path: Path) -> bytes:
    """The bytes of a file with this name. Raises ``ValueError`` for another kind of file."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ValueError(f"{path.name}: the name must end in {', '.join(WRITERS)}")
    return writer(picture)
