"""Files that a command will write at its end: whether it can, before it starts."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def check_outputs(outputs: Sequence[tuple[str, Path]], source: Path,
                  what: str = "the file to run") -> None:
    """Raise `ArgumentError` for a file that cannot be written, is ``source`` or occurs twice.

    ``outputs`` are pairs of option and path; ``what`` says what is read from ``source``. Nothing
    is created or changed.
    """
    seen = {source.resolve(): what}
    for option, path in outputs:
        try:
            with writing(option, path):
                _try_write(path)
                real = path.resolve()
        except OSError as problem:
            raise ArgumentError(str(problem)) from problem
        if path.is_file() or not path.exists():  # devices may be written twice
            if real in seen:
                raise ArgumentError(f"{option}{path} would overwrite {seen[real]}")
            seen[real] = f"what {option.strip(' =')} writes"


@contextmanager
def writing(option: str, path: str | Path) -> Iterator[None]:
    """Name the option and the file in an OSError of the block."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or problem
        raise OSError(f"{option}{path} cannot be written: {reason}") from problem


def _try_write(path: Path) -> None:
    """Raise OSError for what cannot be written; pipes and devices are not opened."""
    if path.is_dir():
        raise IsADirectoryError(0, "Is a directory")
    if path.is_file():
        path.open("ab").close()
    elif not path.exists():
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
