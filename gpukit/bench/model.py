"""What a benchmark family is, and what one measured row holds.

A *family* (``elementwise``, ``matmul``, ...) turns the axes that a user chose into *cases*,
without a GPU, and *prepares* one case at a time on a device. The runner does the rest: it
poisons, launches, checks, times and writes the *row*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gpukit.bench.rows import BURST, case_key
from gpukit.bench.rows import Row as Row  # what cases become; most readers want both
from gpukit.bench.rows import row_key as row_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpukit.bench.peers import Absent
    from gpukit.measure import Timing, TimingOptions, Work

SCHEMA_VERSION = 1

#: Every status a row can have. ``incomplete`` is a case cut short by ``--timeout``.
STATUSES = (
    "ok",
    "wrong",
    "unsupported",
    "error",
    "throttled",
    "cache-resident",
    "incomplete",
)
#: Statuses that ``--resume`` does not try again.
FINAL_STATUSES = frozenset({"ok", "wrong", "unsupported", "throttled", "cache-resident"})
#: Statuses whose rows carry a speed.
TIMED_STATUSES = frozenset({"ok", "throttled", "cache-resident"})


@dataclass(frozen=True)
class Axis:
    """One thing a family can sweep; the command line makes ``--<name>`` of it.

    ``parse`` turns one option value (``"1024:8192:x2"``) into the values it stands for and
    raises `ArgumentError` otherwise. An option given several times adds up. ``default`` holds
    parsed values, ``emulated`` those for an emulated device where they differ (it is a million
    times slower). ``instead_of`` names an axis whose defaults do not apply where this one is
    given. Parsers for common kinds of value are in `gpukit.bench.axes`.
    """

    name: str
    default: tuple[Any, ...]
    parse: Callable[[str], tuple[Any, ...]]
    help: str
    metavar: str = "VALUE[,...]"
    hidden: bool = False
    emulated: tuple[Any, ...] = ()
    instead_of: str = ""


@dataclass(frozen=True)
class Case:
    """One point of a sweep. All of it, and nothing else, makes its identity (`key`).

    Families leave ``l2`` (``flush``, ``rotate`` or ``hot``), ``method`` and ``load`` (``burst``
    or ``sustained``) alone: the sweep crosses the family's cases with the ones asked for.
    """

    family: str
    kernel: str
    dtype: str
    shape: Mapping[str, int]
    params: Mapping[str, int | str | bool] = field(default_factory=dict)
    l2: str = "flush"
    method: str = "events"
    load: str = BURST

    @property
    def key(self) -> str:
        """Stable text naming this case on any device; what ``--resume`` and compare match on."""
        return case_key(self)


@dataclass(frozen=True)
class CheckResult:
    """How far a result is from the oracle.

    ``error`` is ``max |err| / (atol + rtol |ref|)``: at most 1 when the tolerance holds, and
    infinite or NaN when the result is not even finite. ``tolerance`` says which tolerance that
    was, for example ``"atol=1e-6 rtol=1e-5"`` or ``"exact"``.
    """

    error: float
    tolerance: str
    ok: bool


class Prepared(Protocol):
    """One case on a device: buffers allocated and filled, kernel compiled, nothing timed yet.

    ``work.slots`` counts the buffer sets that ``l2="rotate"`` rotates over (1 otherwise), and
    ``footprint`` is the bytes of one set: inputs and outputs. ``bytes_moved`` and ``flops`` are
    those of one launch, by the problem's own arithmetic (what must be read and written once),
    not by what the hardware happened to move. ``launch`` holds the actual configuration: grid,
    block, waves, shared memory; read again after timing, it may hold what kernels counted.
    ``peers`` run on the same buffers; ``notes`` says which of the peers that were asked for
    cannot run this case, and why.
    """

    @property
    def work(self) -> Work: ...
    @property
    def peers(self) -> tuple[Work, ...]: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def flops(self) -> int: ...
    @property
    def footprint(self) -> int: ...
    @property
    def launch(self) -> Mapping[str, Any]: ...
    @property
    def notes(self) -> tuple[Absent, ...]: ...

    def poison(self) -> None:
        """Fill every output, in every slot, with values that no right answer holds."""

    def check(self, slot: int = 0) -> CheckResult:
        """Compare the output in a slot, the first or the last one, with the oracle.

        The oracle's inputs were read when the case was prepared, before any launch, and differ
        from slot to slot. Waits for the device.
        """

    def close(self) -> None:
        """Let go of the buffers."""


class Target(Protocol):
    """A device that cases run on, and the clock to time them with.

    `gpukit.bench.target.open_target` gives the usual one.
    """

    @property
    def device(self) -> Any:
        """What `Family.prepare` gets: an object of `gpukit.devices`."""

    @property
    def name(self) -> str: ...
    @property
    def arch(self) -> str: ...
    @property
    def l2_bytes(self) -> int: ...
    @property
    def timed(self) -> bool:
        """Whether `time` gives times; without, rows carry checks and `counters` only."""

    def counters(self) -> dict[str, Any] | None:
        """What the last launch did, where the device can tell."""

    def environment(self) -> dict[str, Any]:
        """Everything a reader needs to judge the numbers: versions, clocks, UUID."""

    def peaks(self, dtype: str) -> Mapping[str, float]:
        """Datasheet peaks: any of ``gbs`` (1e9 B/s) and ``tflops`` (dense, of this dtype)."""

    def time(self, works: Sequence[Work], options: TimingOptions) -> Sequence[Timing]:
        """Time the works interleaved; one `Timing` each, in order."""


class Family(Protocol):
    """A group of benchmarks with the same axes. Instances are pickled: keep them plain."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def axes(self) -> tuple[Axis, ...]: ...
    @property
    def peers(self) -> tuple[str, ...]:
        """Names of the peers that `prepare` knows, whether or not they are installed."""

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """Return the cases that ``selection`` (axis name to values, all axes present) asks for.

        Runs without a GPU. Points that are nonsense together (a vector wider than an access
        can be) are left out or kept and refused by `prepare`, whichever explains itself better.
        """

    def target(self, device: str) -> Target:
        """Open the device that ``--device`` names; most families return ``open_target(device)``.

        Raises `NoDeviceError` when there is none.
        """

    def emulated(self, device: str) -> bool:
        """Whether that device is emulated: not timed, and smaller defaults (`Axis.emulated`).

        Most families return ``is_emulated(device)``.
        """

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Build one case on ``device`` with those of ``peers`` that are available.

        Raises `UnsupportedError` with the reason when this device or kernel cannot run it.
        """

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """Measure what this device reaches at best here, once a run: ``{"gbs": ..,
        "tflops": .., "what": ".."}`` with any subset of the rates, or None."""
