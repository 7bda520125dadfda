"""Every number that a document embeds must be one that the results hold."""

from __future__ import annotations

from pathlib import Path

from sphinx.errors import SphinxError

from gpukit.bench.embed import embedded
from gpukit.errors import ArgumentError

NOT_THERE = ("Not measured yet.", "// not yet.")


class MissingNumberError(SphinxError):
    """A page names results that do not exist, or shows others than they hold."""

    category = "Missing number"


def require_all(root: Path) -> None:
    """Raise MissingNumberError unless all documents and headers show what `results/` holds."""
    for file in (root / "README.md", *sorted((root / "docs").glob("*.md")),
                 *sorted((root / "cuda_src").rglob("*.cu"))):
        _require(file)


def _require(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    try:
        fresh = embedded(text, file)
    except ArgumentError as problem:
        raise MissingNumberError(str(problem)) from problem
    if fresh != text:
        raise MissingNumberError(f"{file}: its numbers are not those of the results; run "
                                 f"python -m gpukit.bench.embed {file}")
    if missing := next((words for words in NOT_THERE if words in text), None):
        raise MissingNumberError(f"{file}: a number is missing ({missing!r})")
