"""What a launch did, counted; independent of the schedule for race-free kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

    from gpukit.emulator.launch import Launch
    from gpukit.emulator.wave import Wave


@dataclass(frozen=True, slots=True)
class GlobalTraffic:
    """Accesses to global memory: per warp ``requests``, 32-byte ``sectors``, 128-byte ``lines``.

    ``bytes`` are those the lanes asked for.
    """

    requests: int = 0
    sectors: int = 0
    lines: int = 0
    bytes: int = 0

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class SharedTraffic:
    """Accesses to shared memory. ``ideal`` is the fewest wavefronts these widths allow."""

    requests: int = 0
    wavefronts: int = 0
    ideal: int = 0
    bytes: int = 0

    @property
    def conflicts(self) -> int:
        """Wavefronts lost to bank conflicts."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one launch. ``instructions`` counts warp instructions by class.

    ``lines`` counts them per source line ("file:line"); ``active_lanes`` is the share of lanes
    that were active. ``extra`` holds what instruction families add (MMA FLOPs, TMA bytes, ...).
    ``polls`` counts the rounds that warps went in loops which wait for others: it depends on the
    schedule, so these rounds are in no other counter, and it is not compared.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    warp_instructions: int = 0
    active_lanes: float = 1.0
    lines: dict[str, int] = field(default_factory=dict)
    global_loads: GlobalTraffic = field(default_factory=GlobalTraffic)
    global_stores: GlobalTraffic = field(default_factory=GlobalTraffic)
    global_atomics: GlobalTraffic = field(default_factory=GlobalTraffic)
    shared_loads: SharedTraffic = field(default_factory=SharedTraffic)
    shared_stores: SharedTraffic = field(default_factory=SharedTraffic)
    shared_atomics: SharedTraffic = field(default_factory=SharedTraffic)
    local_bytes: int = 0
    extra: dict[str, int] = field(default_factory=dict)
    polls: int = field(default=0, compare=False)

    def frame(self) -> DataFrame:
        """A pandas DataFrame of all counters; columns ``group``, ``counter``, ``value``."""
        from gpukit.emulator.frame import counter_frame

        return counter_frame(self)

    def line_frame(self) -> DataFrame:
        """A pandas DataFrame of instructions per source line; see ``frame.line_frame``."""
        from gpukit.emulator.frame import line_frame

        return line_frame(self)


def collect(launch: Launch, wave: Wave) -> Counters:
    """Sum up a finished launch."""
    executed = launch.tally.executions().tolist()
    total = sum(executed)
    idle = int(launch.tally.idle_lanes().sum())
    by_class: dict[str, int] = {}
    by_line: dict[str, int] = {}
    for count, made, instr in zip(executed, launch.program.ops, launch.program.instrs, strict=True):
        if count:
            by_class[made.category] = by_class.get(made.category, 0) + count
            line = str(instr.source)
            by_line[line] = by_line.get(line, 0) + count
    loads, stores, atomics = (GlobalTraffic(*row) for row in launch.memory.patterns.sums().tolist())
    inner = [SharedTraffic(*row) for row in wave.shared.patterns.sums().tolist()]
    return Counters(
        instructions=dict(sorted(by_class.items())),
        warp_instructions=total,
        active_lanes=1 - idle / (32 * total) if total else 1.0,
        lines=by_line,
        global_loads=loads,
        global_stores=stores,
        global_atomics=atomics,
        shared_loads=inner[0],
        shared_stores=inner[1],
        shared_atomics=inner[2],
        local_bytes=int(wave.local.patterns.sums()[:, 3].sum()),
        extra=dict(launch.extra),
        polls=launch.polls,
    )
