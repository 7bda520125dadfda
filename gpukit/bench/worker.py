"""A session in a worker process, so that a crash or a sticky CUDA error costs one case.

The worker ignores Ctrl-C: the parent alone decides, and kills it. Whatever the worker prints
goes to standard error, because standard output belongs to the results.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from gpukit.bench import interrupts, streams
from gpukit.bench.execute import describe, one_line
from gpukit.bench.session import DeviceInfo, LocalSession, Outcome, Setup
from gpukit.errors import (
    ArgumentError,
    GpukitError,
    MissingDependencyError,
    NoDeviceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from gpukit.bench.model import Case, Row

#: Seconds that a worker gets to leave by itself before it is killed.
GRACE_S = 10.0


class WorkerDiedError(GpukitError):
    """The worker process ended without an answer."""


class CaseTimeoutError(GpukitError):
    """The worker did not answer in time."""


class IsolatedSession:
    """A session whose cases run in a worker process, replaced whenever one has hurt it.

    ``timeout_s`` bounds one case; the row of a case that takes longer is ``incomplete``.
    Raises what opening the device raised, `NoDeviceError` for example.
    """

    def __init__(self, setup: Setup, timeout_s: float | None = None) -> None:
        self._setup = setup
        self._timeout_s = timeout_s
        self.ceilings: dict[str, dict[str, Any] | None] = {}
        self._worker: Worker | None = Worker(setup)
        self.info = self._worker.info

    def compile(self, cases: Sequence[Case]) -> None:
        """See `Session`; whatever goes wrong will go wrong again, in a case."""
        with contextlib.suppress(GpukitError):
            if self._worker is not None:
                self._worker.compile(cases)

    def run(self, case: Case) -> Row:
        """Run one case; see `Session`."""
        try:
            worker = self._worker = self._worker or Worker(self._setup)
            outcome, self.ceilings = worker.run(case, self.ceilings, self._timeout_s)
        except CaseTimeoutError as problem:
            return self._lost(case, "incomplete", problem)
        except GpukitError as problem:  # died, or could not be replaced
            return self._lost(case, "error", problem)
        if not outcome.healthy:
            self._drop_worker()
        return outcome.row

    def _lost(self, case: Case, status: str, problem: GpukitError) -> Row:
        self._drop_worker()
        row = self.info.row(case)
        row.status, row.message = status, one_line(problem)
        return row

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._worker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._worker is not None:
            self._worker.close()
        self._drop_worker()


class Worker:
    """One worker process with an open device."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, setup))
        try:
            with interrupts.blocked():
                self._start(setup.family.name)
            theirs.close()
            greeting = self._receive(None)
        except BaseException:
            self.kill()
            raise
        if isinstance(greeting, GpukitError):
            self.kill()
            raise greeting
        self.info: DeviceInfo = greeting

    def _start(self, family: str) -> None:
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise ArgumentError(
                f"family {family!r} cannot travel to a worker process ({problem}); "
                "keep it plain, or use --no-isolate"
            ) from problem

    def compile(self, cases: Sequence[Case]) -> None:
        """Compile what these cases need; returns when that is done."""
        with contextlib.suppress(BrokenPipeError):
            self._connection.send([*cases])
        self._receive(None)

    def run(
        self, case: Case, ceilings: dict[str, Any], timeout_s: float | None
    ) -> tuple[Outcome, dict[str, Any]]:
        """Run one case, knowing the ceilings so far; return its outcome and the ceilings now."""
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            self._connection.send((case, ceilings))
        return cast("tuple[Outcome, dict[str, Any]]", self._receive(timeout_s))

    def _receive(self, timeout_s: float | None) -> Any:
        # On death the pipe closes, which wait() reports too; an answer already sent comes first.
        if not wait([self._connection], timeout_s):
            raise CaseTimeoutError(f"no answer after {timeout_s:g} s (--timeout)")
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(GRACE_S)
            raise WorkerDiedError(
                f"the process running this case {_ending(self._process.exitcode)}"
            ) from None

    def close(self) -> None:
        """Let the worker leave by itself, for a while."""
        with contextlib.suppress(BrokenPipeError):
            self._connection.send(None)
        self._process.join(GRACE_S)

    def kill(self) -> None:
        """End the worker at once; the driver frees what it held."""
        if self._process.pid is not None:  # it did start
            self._process.kill()
            self._process.join()
        self._connection.close()


def _serve(connection: Connection, setup: Setup) -> None:
    """Body of the worker process: greet with the device's info, then answer case after case, or a
    list of cases to compile for."""
    interrupts.ignore()
    os.dup2(2, 1)
    streams.protect()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent is gone
        try:
            session = LocalSession(setup)
        except Exception as problem:
            connection.send(_portable(problem))
            return
        connection.send(session.info)
        while (job := connection.recv()) is not None:
            if isinstance(job, list):
                session.compile(job)
                connection.send(len(job))
                continue
            case, session.ceilings = job
            connection.send((session.attempt(case), session.ceilings))


def _portable(problem: Exception) -> GpukitError:
    """Return an error that pickles and that the parent can tell apart."""
    for kind in (NoDeviceError, MissingDependencyError, UnsupportedError, ArgumentError):
        if isinstance(problem, kind):
            return kind(str(problem))
    return GpukitError(describe(problem))


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
