"""The text of source lines. PTX names files without their folders, so it is looked up by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class SourceText:
    """Finds files by name in ``folders``, the first that has it."""

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._files: dict[str, list[str]] = {}

    def line(self, file: str, number: int) -> str:
        """A line without its indentation; empty if there is no such file or line."""
        if file not in self._files:
            self._files[file] = self._read(file)
        lines = self._files[file]
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _read(self, name: str) -> list[str]:
        for path in (folder / name for folder in self._folders):
            if path.is_file():
                return path.read_text(errors="replace").splitlines()
        return []
