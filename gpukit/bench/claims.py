"""One run at a time writes a file: two would lose each other's rows."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO

from gpukit.errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows: nobody is kept out
    fcntl = None  # type: ignore[assignment]

_held: dict[Path, IO[str]] = {}


def claim(path: Path) -> None:
    """Keep other processes from writing `path` until this one ends.

    The lock is on a file of its own among the temporary ones, for `path` is replaced with every
    row; a process that is killed leaves that file behind, but not the lock.

    Raises:
        ArgumentError: another process has it.
    """
    if fcntl is None or path in _held:
        return
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    lock = Path(tempfile.gettempdir(), f"gpukit-{os.getuid()}-{name}.lock")
    file = lock.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ArgumentError(f"--out {path} is being written by another run") from None
    except OSError:  # a file system without locks
        pass
    _held[path] = file
    atexit.register(_release, lock, file, os.getpid())


def _release(lock: Path, file: IO[str], owner: int) -> None:
    if os.getpid() == owner:  # a fork has it too
        with contextlib.suppress(OSError):
            lock.unlink()
    file.close()
