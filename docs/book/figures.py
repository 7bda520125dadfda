"""Figures of layouts, drawn by the layout module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.layout import gallery

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path) -> None:
    """Write all figures below `folder`, in place of those that are there."""
    gallery.write(folder)
