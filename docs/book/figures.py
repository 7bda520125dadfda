"""Pages of layouts, drawn by the layout module."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path) -> None:
    """Write all pages below `folder`, in place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
