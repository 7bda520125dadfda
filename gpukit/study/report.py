"""The report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpukit.bench.formats import to_markdown
from gpukit.bench.model import Row


def report(rows: Sequence[Row], facts: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """Return the report as Markdown."""
    return "# Elementwise study\n\n" + to_markdown(rows)
