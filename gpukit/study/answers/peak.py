"""What is the peak? Three numbers that are easily confused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpukit.bench.model import Row
from gpukit.measure import median
from gpukit.study import words
from gpukit.study.design import COLD
from gpukit.study.evidence import Evidence
from gpukit.study.table import rate, traffic

TITLE = "What is the peak?"
#: Drivers report half the data rate as the memory's clock, whatever the memory's kind.
TRANSFERS = 2


class Part(NamedTuple):
    """A GPU's memory interface as the published study lists it; ``transfers`` per clock."""

    name: str
    bits: int
    ghz: float
    transfers: int
    memory: str
    datasheet: float


#: modular/modular max/docs/design-docs/elementwise-ops.md; clocks there are the memory's own.
PARTS = (
    Part("A100 80 GB", 5120, 1.512, 2, "HBM2e", 1935),
    Part("A100 40 GB", 5120, 1.215, 2, "HBM2", 1555),
    Part("A10", 384, 1.5625, 8, "GDDR6", 600),
    Part("L4", 192, 1.5625, 8, "GDDR6", 300),
)


def gbs(bits: float, transfers: float, ghz: float) -> float:
    """Bytes of the bus times transfers per clock times clock, in GB/s."""
    return bits / 8 * transfers * ghz


def clock_mhz(memory: Mapping[str, Any]) -> float | None:
    """The memory's highest clock as NVML tells it, else as the driver does."""
    return memory.get("clock_mhz_nvml") or memory.get("clock_mhz_driver")


def theoretical(memory: Mapping[str, Any]) -> float | None:
    """The interface's peak in GB/s; None where bus or clock are unknown."""
    clock, bits = clock_mhz(memory), memory.get("bus_bits")
    return gbs(bits, TRANSFERS, clock / 1e3) if clock and bits else None


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    return [*_ours(evidence), *_parts()]


def _ours(evidence: Evidence) -> list[str]:
    memory, peak = evidence.memory, theoretical(evidence.memory)
    if not memory:
        return ["This device is emulated: it has no memory interface to compute a peak from.", ""]
    if peak is None:
        return [f"The driver tells neither bus width ({memory.get('bus_bits')} bits) nor clock "
                f"({clock_mhz(memory)} MHz): no theoretical peak.", ""]
    formula = (f"**Theoretical: {memory['bus_bits']} bits / 8 x {TRANSFERS} transfers x "
               f"{(clock_mhz(memory) or 0) / 1e3:.3f} GHz = {peak:.0f} GB/s.** Bus width from the "
               f"driver; clock from NVML {words.number(memory.get('clock_mhz_nvml'))} MHz, from "
               f"the driver {words.number(memory.get('clock_mhz_driver'))} MHz, while measuring "
               f"{words.number(_clock_seen(evidence))} MHz. Drivers report half the data rate as "
               "the clock, so that there are 2 transfers in each, whatever the kind of memory.")
    return [formula, "", *_ceilings(evidence, peak)]


def _clock_seen(evidence: Evidence) -> float | None:
    seen = [row.clocks["mem_mhz"]["median"] for row in evidence.table.rows()
            if row.clocks and row.clocks.get("mem_mhz")]
    return median(seen) if seen else None


def _ceilings(evidence: Evidence, peak: float) -> list[str]:
    """What limits, and what was reached: never one number."""
    body: list[tuple[str, str, str]] = [("theoretical", f"{peak:.0f}", words.percent(1.0))]
    if sheet := evidence.memory.get("datasheet_gbs"):
        body.append((f"datasheet ({evidence.memory['datasheet']})", f"{sheet:.0f}",
                     words.percent(sheet / peak)))
    if ceiling := _memcpy(evidence):
        body.append(("measured: the runtime's memcpy of 1 GiB, L2 flushed", f"{ceiling:.0f}",
                     words.percent(ceiling / peak)))
    best = fastest_cold(evidence)
    if best:
        body.append((f"measured: the best cold copy of this study, "
                     f"{words.size(traffic(best))} in rotating buffers", f"{rate(best):.0f}",
                     words.percent(rate(best) / peak)))
    return words.table(("ceiling", "GB/s", "of theoretical"), body)


def _memcpy(evidence: Evidence) -> float | None:
    """The ceiling of the run, which rows carry as their share of it."""
    return next((100 * row.gbs / row.pct_ceiling for row in evidence.table.rows()
                 if row.gbs and row.pct_ceiling), None)


def fastest_cold(evidence: Evidence) -> Row | None:
    """The row of the highest rate among copies from memory, the L2's help excluded."""
    rows = [row for row in evidence.table.rows() if row.l2 == COLD
            and row.kernel.endswith(".copy") and traffic(row) >= 4 * evidence.l2_bytes]
    return max(rows, key=rate, default=None)


def _parts() -> list[str]:
    body = [(part.name, part.memory, part.bits, f"{part.ghz:g}", part.transfers,
             f"{gbs(part.bits, part.transfers, part.ghz):.0f}", f"{part.datasheet:g}")
            for part in PARTS]
    return ["The same formula for the parts of the published study, with the memory's own clock "
            "(1 GHz of GDDR6 makes 8 transfers, not 2):", "",
            *words.table(("GPU", "memory", "bus bits", "GHz", "transfers", "formula GB/s",
                          "datasheet GB/s"), body, left=2)]
