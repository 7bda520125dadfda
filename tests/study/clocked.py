"""Rows as an invented GPU would give them, and a device that pretends to have a clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from gpukit import dtypes
from gpukit.bench.emulated_target import EmulatedTarget
from gpukit.bench.families.elementwise_case import element
from gpukit.bench.model import Case, Row
from gpukit.devices import emulated
from gpukit.devices.protocol import Properties
from gpukit.measure import Timing, TimingOptions, Work
from gpukit.ops.launch import Decision, Launch, decide
from gpukit.study import design

MIB = 1 << 20
GPU = Properties(name="Test GPU", uuid="", capability=(9, 0), sm_count=100, threads_per_sm=2048,
                 shared_per_cta=227 << 10, l2_bytes=50 * MIB, memory_bytes=80 << 30)
#: What the invented GPU does: bytes per microsecond from memory and L2, a launch's microseconds,
#: and a load's.
DRAM, L2, START_US, LATENCY_US = 3.0e6, 9.0e6, 1.5, 0.6
SM_MOST = 6.0e4  # bytes per microsecond through one SM
#: By how much a launch is slower than another, given its decision: (case, decision) to a factor.
Law = Callable[[Case, Decision], float]


def no_law(case: Case, decision: Decision) -> float:
    """Every launch is as fast as any other."""
    return 1.0


def decided(case: Case) -> Decision:
    """The launch of a case on the invented GPU."""
    op, dtype = case.kernel.partition(".")[2], dtypes.parse(case.dtype)
    launch = Launch(**case.params)  # type: ignore[arg-type]
    return decide(op, element(op, dtype), case.shape["n"], 32, launch, GPU)


def rows(cases: Sequence[Case], law: Law = no_law, spread: float = 0.002,
         samples: int = 40) -> list[Row]:
    """A row for each case, with samples around what the invented GPU would take."""
    rng = random.Random(7)
    return [_row(case, law, spread, samples, rng) for case in cases]


def _row(case: Case, law: Law, spread: float, samples: int, rng: random.Random) -> Row:
    decision = decided(case)
    true_us = _time(case, decision) * law(case, decision)
    row = Row.of(case, GPU.name, GPU.arch, "")
    row.samples_us = [true_us * rng.gauss(1, spread) for _ in range(samples)]
    row.time_us, row.status = sorted(row.samples_us)[samples // 2], "ok"
    row.launch = {"grid": decision.grid, "block": decision.block,
                  **{n: decision.tunables[n] for n in ("vec", "unroll", "index", "cache")}}
    row.gbs = _traffic(case) / row.time_us / 1e3
    row.pct_ceiling = row.gbs / 2950 * 100
    row.clocks = {"mem_mhz": {"min": 2600, "median": 2600.0, "max": 2600}}
    return row


def _traffic(case: Case) -> int:
    return design.traffic_of(case.kernel.partition(".")[2], case.dtype, case.shape["n"])


def _time(case: Case, decision: Decision) -> float:
    """Microseconds: hits in L2 at its rate, the rest at memory's, neither above what the launch
    has in flight."""
    traffic = _traffic(case)
    hit = max(0.0, min(1.0, (2 * GPU.l2_bytes - traffic) / GPU.l2_bytes))
    hit *= case.l2 == design.HOT
    sms = min(decision.grid, GPU.sm_count)
    flight = sms * _flight(case, decision)
    most = min(2 * flight / LATENCY_US, sms * SM_MOST)
    clean = min(traffic / 2, GPU.l2_bytes / 2) if case.l2 == design.FLUSHED and sms > 1 else 0
    return START_US + (traffic - clean) * (hit / min(L2, most) + (1 - hit) / min(DRAM, most))


def _flight(case: Case, decision: Decision) -> int:
    ctas = min(-(-decision.grid // GPU.sm_count), GPU.threads_per_sm // decision.block)
    size = int(decision.tunables["vec"]) * dtypes.parse(case.dtype).itemsize
    return ctas * decision.block * size * int(decision.tunables["unroll"])


def facts(**memory: Any) -> dict[str, Any]:
    """Facts of the invented GPU."""
    device = {n: getattr(GPU, n) for n in ("name", "arch", "sm_count", "threads_per_sm",
                                           "l2_bytes", "memory_bytes")}
    known = {"bus_bits": 5120, "clock_mhz_nvml": 2600.0, "clock_mhz_driver": 2600.0,
             "datasheet_gbs": 3200.0, "datasheet": "a datasheet", **memory}
    return {"device": {"timed": True, **device}, "memory": known, "turns": [],
            "turns_note": "not asked for"}


class ClockedTarget(EmulatedTarget):
    """The emulated device; every launch takes about ten microseconds, and none does anything
    while it is timed but to run once on every buffer set."""

    timed = True

    def __init__(self) -> None:
        super().__init__(emulated.get("h100"))
        self.l2_bytes = 100 << 10  # one buffer set of the emulator's copies fits, two do not
        self.timed_works: list[list[str]] = []

    def time(self, works: Sequence[Work], options: TimingOptions) -> Sequence[Timing]:
        self.timed_works.append([work.name for work in works])
        rng = random.Random(0)
        for work in works:
            for slot in range(work.slots):
                work.launch(slot)
        return [_timing(work.name, [10 + rng.random() for _ in range(20)], options)
                for work in works]


def _timing(name: str, samples: Sequence[float], options: TimingOptions) -> Timing:
    middle = sorted(samples)[len(samples) // 2]
    return Timing(name, options.method, options.l2, tuple(samples), middle, 0.01, 0.001, True, None)
