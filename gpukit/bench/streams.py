"""Standard streams that may break or be closed without taking a sweep with them."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class LossyFile(io.FileIO):
    """A descriptor to write to; what an error of kind ``forgiven`` keeps back is lost."""

    def __init__(self, descriptor: int, forgiven: type[OSError]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._forgiven = forgiven

    def write(self, data: Buffer, /) -> int:
        size = memoryview(data).nbytes
        try:
            written = super().write(data)
        except OSError as problem:
            if not isinstance(problem, self._forgiven):
                self._forgiven = OSError  # said once is enough: leaving flushes again
                raise OSError(problem.errno, problem.strerror, "standard output") from problem
            return size
        return size if written is None else written  # None: full, and nobody waits


def protect() -> None:
    """Make the standard streams safe to write to, whatever became of their other ends.

    A reader of standard output that leaves (``| head``) costs the rest of the text and nothing
    else: the command goes on to its own exit code. Standard error never fails. Closed streams
    lead nowhere. Streams that were replaced already (by a test, say) are left alone.
    """
    _open_closed_descriptors()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _lossy(sys.stdout, 1, BrokenPipeError)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lossy(sys.stderr, 2, OSError)


def _open_closed_descriptors() -> None:
    """Put the null device where 0, 1 or 2 is closed: the next file opened would land there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _lossy(stream: TextIO | None, descriptor: int, forgiven: type[OSError]) -> TextIO:
    """Return a stream like ``stream`` that says what its encoding cannot with backslashes."""
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(LossyFile(descriptor, forgiven)),
        encoding=None if stream is None else stream.encoding,
        errors="backslashreplace",
        line_buffering=descriptor == 2 or os.isatty(descriptor),
    )
