"""What is timed, how, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpukit.errors import ArgumentError
from gpukit.measure.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpukit.measure.telemetry import ClockReport

Method = Literal["events", "graph", "cupti"]
L2State = Literal["flush", "rotate", "hot"]


@dataclass(frozen=True)
class Work:
    """One contender.

    ``launch(slot)`` enqueues the work for buffer set ``slot`` on the current CuPy stream; it
    neither waits for the device nor allocates. ``slots`` buffer sets exist, which works may
    share; for ``l2="rotate"`` all works have equally many, and all sets but one cover at least
    twice the L2. ``capturable`` says whether the launch may be captured in a CUDA graph.
    """

    name: str
    launch: Callable[[int], None]
    slots: int = 1
    capturable: bool = True

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ArgumentError(f"slots={self.slots!r} of work {self.name!r}: must be at least 1")


@dataclass(frozen=True)
class TimingOptions:
    """How to time.

    Sampling stops when every work has ``min_samples`` and the standard error of its median is
    below ``rel_error`` of that median, or at ``max_samples``, or after ``budget_s`` seconds per
    work. ``warmup_s`` bounds the wait for the clocks to settle (0: no wait). ``sustain_s``
    above 0 makes it a measurement under sustained load: for so long the works run in turns before
    the first sample, whatever the clocks do, and sampling follows without a pause. ``shuffle``
    takes the works of every turn in another order, for many contenders that must not always
    follow the same neighbour.
    """

    method: Method = "events"
    l2: L2State = "flush"
    min_samples: int = 20
    max_samples: int = 1000
    budget_s: float = 1.0
    rel_error: float = 0.001
    warmup_s: float = 0.3
    sustain_s: float = 0.0
    shuffle: bool = False

    def __post_init__(self) -> None:
        _one_of("method", self.method, get_args(Method))
        _one_of("l2", self.l2, get_args(L2State))
        _require(self.min_samples >= 1, "min_samples", self.min_samples, "at least 1")
        _require(
            self.max_samples >= self.min_samples,
            "max_samples", self.max_samples, f"at least min_samples={self.min_samples}",
        )  # fmt: skip
        _require(0 < self.budget_s < float("inf"), "budget_s", self.budget_s, "positive seconds")
        _require(self.rel_error > 0, "rel_error", self.rel_error, "a positive share")
        for name in ("warmup_s", "sustain_s"):
            seconds = getattr(self, name)
            _require(0 <= seconds < float("inf"), name, seconds, "0 s or more")
        if self.method == "graph" and self.l2 == "flush":
            raise ArgumentError(
                "l2='flush' with method='graph': a flush cannot run between the launches of one "
                "graph; use l2='rotate' or 'hot', or method='events'"
            )


@dataclass(frozen=True)
class Timing:
    """The samples of one work, in microseconds per launch, and what they say.

    ``spread`` is the interquartile range over the median, ``stderr_us`` the standard error of
    the median, ``converged`` whether it met ``rel_error``. ``overhead_us`` is the launch latency
    that an event pair around one launch contains besides the work, as calibrated at most a
    minute before (0 for graph and CUPTI, and where it is unknown, which a note then says);
    ``overhead_subtracted`` says whether the samples are net of it. A sample no longer than that
    latency counts as 0, and a note says how many did. ``notes`` also lists what could not be had
    (telemetry, reset of persisting L2 lines).
    """

    name: str
    method: Method
    l2: L2State
    samples_us: tuple[float, ...]
    median_us: float
    spread: float
    stderr_us: float
    converged: bool
    clocks: ClockReport | None
    overhead_us: float = 0.0
    overhead_subtracted: bool = False
    notes: tuple[str, ...] = field(default=())


def check_works(works: Sequence[Work], options: TimingOptions) -> None:
    """Refuse, before anything is launched, works that the options cannot time."""
    if not works:
        raise ArgumentError("works is empty: give at least one Work")
    for work in works:
        if options.l2 == "rotate" and work.slots < 2:
            raise ArgumentError(
                f"l2='rotate' needs at least 2 buffer sets, work {work.name!r} has slots=1"
            )
        if options.l2 == "rotate" and work.slots != works[0].slots:
            raise ArgumentError(
                f"l2='rotate' takes the sets of all works in one turn: work {work.name!r} has "
                f"slots={work.slots}, work {works[0].name!r} has slots={works[0].slots}"
            )
        if options.method == "graph" and not work.capturable:
            raise CaptureError(work.name)


def _one_of(name: str, given: Any, accepted: Sequence[str]) -> None:
    if given not in accepted:
        raise ArgumentError(f"{name}={given!r}: must be one of {', '.join(accepted)}")


def _require(holds: bool, name: str, given: Any, accepted: str) -> None:
    if not holds:
        raise ArgumentError(f"{name}={given!r}: must be {accepted}")
