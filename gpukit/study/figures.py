"""The figures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpukit.bench.model import Row


def draw(rows: Sequence[Row], facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Draw what the rows show into ``folder``; returns figure name to file name."""
    return {}
