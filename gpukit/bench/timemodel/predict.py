"""From what a rung does and what a GPU can: a model of the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpukit.bench.timemodel.machine import Machine
from gpukit.bench.timemodel.work import Rung, Work

_BK = 64


@dataclass(frozen=True)
class Prediction:
    """Modelled, not measured.

    Attributes:
        us: time of the launch.
        tflops: 2 M N K over it.
        bound: what a step along K waits for longest: "latency", "mma", "l2", "tma", "l1", "issue".
    """

    us: float
    tflops: float
    bound: str


def predict(rung: Rung, machine: Machine, m: int, n: int, k: int) -> Prediction:
    """The time of C[m, n] += A[m, k] B[k, n] in bf16, all operands in memory or L2."""
    tiles = math.prod(-(-size // tile) for size, tile in zip((m, n), rung.tile, strict=True))
    step, bound = _step(rung, machine)
    main = -(-k // _BK) * step  # of the CTAs that share an SM, together
    out = rung.resident * _busiest(rung.once, rung, machine)[0] + _written(rung, machine)
    fill = machine.start_ns + _latency(rung, machine)
    if rung.persistent:
        turns = math.ceil(tiles / machine.sms)
        ns = fill + turns * max(main, out) + out
    else:
        ns = math.ceil(tiles / (machine.sms * rung.resident)) * (fill + main + out)
    return Prediction(ns / 1e3, 2 * m * n * k / ns / 1e3, bound)


def _step(rung: Rung, machine: Machine) -> tuple[float, str]:
    """ns per step along K of all CTAs of an SM, and the bound.

    Throughput limits add up over the CTAs of an SM. A CTA without a ring does one thing after the
    other: its latencies are hidden by the others alone; a ring has `depth` steps under way.
    """
    busy, bound = _busiest(rung.step, rung, machine)
    busy *= rung.resident
    if not rung.step.flops:
        return busy, bound
    if rung.depth > 1:
        waits = (_latency(rung, machine) + machine.mma_ns) / rung.depth
    else:
        parts = _times(rung.step, rung, machine)
        waits = _latency(rung, machine) + machine.mma_ns + max(parts["l2"], parts["tma"]) \
            + parts["mma"] + (machine.cluster_ns if rung.pair else 0)
    return (waits, "latency") if waits > busy else (busy, bound)


def _latency(rung: Rung, machine: Machine) -> float:
    return machine.load_ns if rung.step.l2_bytes else 0.0


def _busiest(work: Work, rung: Rung, machine: Machine) -> tuple[float, str]:
    return max((time, name) for name, time in _times(work, rung, machine).items())


def _times(work: Work, rung: Rung, machine: Machine) -> dict[str, float]:
    """ns that each unit of an SM is busy with the work of one CTA."""
    clocks = {
        "mma": work.flops / (machine.mma_flops * machine.mma_share * rung.rate),
        "l2": work.l2_bytes / machine.l2_bytes,
        "tma": work.rows / machine.tma_rows,
        "l1": work.lines / machine.lines,
        "issue": work.instructions / machine.issue,
    }
    return {name: clock / machine.ghz for name, clock in clocks.items()}


def _written(rung: Rung, machine: Machine) -> float:
    """ns to write the tiles of an SM's CTAs to memory."""
    return rung.resident * rung.once.stored_bytes / machine.store_bytes / machine.ghz
