"""timer: kernels of known length, to see that the timing methods agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import kernels
from gpukit.bench.axes import Integers
from gpukit.bench.model import Axis, Case, CheckResult, Prepared, Target
from gpukit.bench.peers import Absent
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import NoDeviceError
from gpukit.measure import Work

_BLOCK = 128
# About 2 us, 20 us and 2 ms at 1.98 GHz.
_CYCLES = (3_500, 38_000, 3_900_000)


@dataclass(frozen=True)
class TimerFamily:
    """`gpukit bench timer --l2 hot --method events,graph,cupti`."""

    name: str = "timer"
    summary: str = "kernels of known length: do events, graph and cupti agree?"
    peers: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = (
        Axis("cycles", _CYCLES, Integers(1), "SM clock cycles that each CTA is held",
             metavar="N[,...]"),
    )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """One case per length."""
        return [Case(self.name, "timing.spin", "i64", {"cycles": cycles})
                for cycles in selection["cycles"]]

    def target(self, device: str) -> Target:
        """A CUDA device: there is no time to take on an emulated one."""
        opened = open_target(device)
        if not opened.timed:
            raise NoDeviceError("timer compares clocks; it needs a CUDA device")
        return opened

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """One CTA per SM."""
        return PreparedSpin(case, device)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """Nothing is moved or computed."""
        return None


class PreparedSpin:
    """See `gpukit.bench.model.Prepared`."""

    bytes_moved, flops, footprint = 0, 0, 0
    notes: tuple[Absent, ...] = ()

    def __init__(self, case: Case, device: Any) -> None:
        self.cycles = case.shape["cycles"]
        self.device = device
        grid = device.properties.sm_count
        self.spent = device.empty((grid,), "int64")
        call = device.compile(kernels.get(case.kernel), {}).bind((grid,), (_BLOCK,))
        pointer = device.pointer(self.spent)
        self.launch = {"grid": grid, "block": _BLOCK}
        self.work = Work(case.kernel, lambda slot: call(self.cycles, pointer))
        self.peers: tuple[Work, ...] = ()

    def poison(self) -> None:
        """No CTA has spent anything."""
        self.spent.fill(-1)

    def check(self, slot: int = 0) -> CheckResult:
        """Every CTA was held at least as long as asked."""
        ok = bool((self.spent >= self.cycles).all())
        return CheckResult(0.0 if ok else float("inf"), "every CTA spent at least `cycles`", ok)

    def close(self) -> None:
        """Let the buffer go."""
        del self.work, self.spent


FAMILY = TimerFamily()
