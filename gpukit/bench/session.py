"""A device opened for a sweep, in this process. `gpukit.bench.worker` wraps it in another one."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gpukit.bench.compile_ahead import compile_ahead
from gpukit.bench.execute import CaseOptions, describe, run_case
from gpukit.bench.model import Row
from gpukit.errors import GpukitError, LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from gpukit.bench.model import Case, Family, Target


@dataclass(frozen=True)
class Setup:
    """What it takes to open a session; travels to worker processes."""

    family: Family
    device: str
    options: CaseOptions


@dataclass(frozen=True)
class DeviceInfo:
    """The device of a session and the environment that its rows refer to by id."""

    name: str
    arch: str
    environment_id: str
    environment: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, target: Target) -> DeviceInfo:
        """Read the environment of an open target."""
        from gpukit.measure import environment_id

        environment = target.environment()
        return cls(target.name, target.arch, environment_id(environment), environment)

    def row(self, case: Case) -> Row:
        """Return the row of a case that has not run yet."""
        return Row.of(case, self.name, self.arch, self.environment_id)


@dataclass
class Outcome:
    """A finished case; ``healthy`` says whether its process can be trusted with another."""

    row: Row
    healthy: bool = True


class Session(Protocol):
    """Runs cases one at a time on one device. A case that fails gives a row, not an exception."""

    @property
    def info(self) -> DeviceInfo: ...
    @property
    def ceilings(self) -> dict[str, dict[str, Any] | None]:
        """Ceilings measured in this run, by dtype; where that failed, ``failed`` says why."""

    def compile(self, cases: Sequence[Case]) -> None:
        """Compile what these cases will need, as far as the family foresees it."""

    def run(self, case: Case) -> Row: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class LocalSession:
    """A session in this process: easy to debug, but a sticky CUDA error ends every later case."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._target = setup.family.target(setup.device)
        self.info = DeviceInfo.of(self._target)
        self.ceilings: dict[str, dict[str, Any] | None] = {}

    def compile(self, cases: Sequence[Case]) -> None:
        """See `Session`."""
        compile_ahead(self._setup.family, cases, self._target.device)

    def run(self, case: Case) -> Row:
        """Run one case; see `Session`."""
        return self.attempt(case).row

    def attempt(self, case: Case) -> Outcome:
        """Run one case and say whether this process is still fit for the next."""
        setup = self._setup
        try:
            ceiling = self._ceiling(case.dtype)
            environment = self.info.environment_id
            row = run_case(setup.family, case, self._target, setup.options, ceiling, environment)
            return Outcome(row)
        except Exception as problem:
            if setup.options.debug:
                traceback.print_exc()
            row = self.info.row(case)
            row.status, row.message = "error", describe(problem)
            return Outcome(row, healthy=host_side(problem))

    def _ceiling(self, dtype: str) -> dict[str, Any] | None:
        """The ceiling of a dtype, tried once a run; a case is worth its row without one."""
        if dtype not in self.ceilings:
            try:
                ceiling = self._setup.family.ceiling(self._target.device, dtype)
            except Exception as problem:
                reason = describe(problem)
                ceiling = {"failed": reason, "what": f"not measured: {reason}"}
            self.ceilings[dtype] = ceiling
        return self.ceilings[dtype]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def host_side(problem: BaseException) -> bool:
    """Whether an error was raised before anything reached the device, whose context is then
    intact. Anything else may be a sticky CUDA error, which only a fresh process gets rid of."""
    return isinstance(problem, GpukitError) and not isinstance(problem, LaunchError)
