"""A family for GPU tests whose middle case writes to an address that does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit.bench.families.timer import PreparedSpin, TimerFamily
from gpukit.bench.model import Case, Prepared
from gpukit.measure import Work


@dataclass(frozen=True)
class FaultyFamily(TimerFamily):
    name: str = "faulty"

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        prepared = PreparedSpin(case, device)
        if case.shape["cycles"] == 666:
            prepared.work = Work("faulty", _write_nowhere)
        return prepared


def _write_nowhere(slot: int) -> None:
    import cupy

    source = 'extern "C" __global__ void nowhere() { *(volatile int*)0x10 = 1; }'
    cupy.RawKernel(source, "nowhere")((1,), (1,), ())


FAMILY = FaultyFamily()
