"""A family that needs no GPU: "kernels" on NumPy arrays, times by formula, failures on demand.

`FAMILY` can be given to the command line with ``GPUKIT_FAMILIES=fake=fake_family:FAMILY``.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpukit.bench.axes import Choices, DTypes, Integers
from gpukit.bench.model import Axis, Case, CheckResult
from gpukit.bench.peers import Absent, PeerWork
from gpukit.errors import ArgumentError, LaunchError, NoDeviceError, UnsupportedError
from gpukit.measure import ClockReport, Range, Timing, TimingOptions, Work

NAME = 'Fake GPU, 16" wide'  # a name with a comma and quotes: results must survive it
L2_BYTES = 1 << 20
PEAK = {"gbs": 4000.0, "tflops": 60.0}
CEILING = {"gbs": 3200.0, "what": "fake copy"}
#: 2 bytes moved per 1000th of a microsecond: 2000 GB/s, half the peak.
GBS = 2000.0


def scale(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = 2 * x


def wrong(x: np.ndarray, out: np.ndarray) -> None:
    out[:] = 2 * x
    out[-1] += 1


def idle(x: np.ndarray, out: np.ndarray) -> None:
    """Writes nothing: only poisoning finds it out, since buffers start with the answer."""


class Stale:
    """Right once, then nothing: only the second poisoning finds it out."""

    def __init__(self) -> None:
        self.launched = False

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        if not self.launched:
            scale(x, out)
        self.launched = True


class Remembers:
    """Gives the answer of its first launch for ever: wrong wherever the inputs differ."""

    def __init__(self) -> None:
        self.answer: np.ndarray | None = None

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        if self.answer is None:
            self.answer = 2 * x
        out[:] = self.answer


class Spoils:
    """Zeroes its inputs from the second launch on: right if the oracle reads them again."""

    def __init__(self) -> None:
        self.launched = False

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        if self.launched:
            x.fill(0)
        scale(x, out)
        self.launched = True


def raises(x: np.ndarray, out: np.ndarray) -> None:
    raise ValueError("first line\n  second line")


def refused(x: np.ndarray, out: np.ndarray) -> None:
    raise ArgumentError("block=7 is no good")


class Sticky:
    """Fails, and so does every launch after it in this process."""

    broken = False

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        Sticky.broken = True


def dies(x: np.ndarray, out: np.ndarray) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_once(x: np.ndarray, out: np.ndarray) -> None:
    marker = Path(os.environ["FAKE_MARKER"])
    if not marker.exists():
        marker.touch()
        dies(x, out)
    scale(x, out)


def hangs(x: np.ndarray, out: np.ndarray) -> None:
    time.sleep(60)


def noisy(x: np.ndarray, out: np.ndarray) -> None:
    print("a print from a kernel")
    scale(x, out)


KERNELS: dict[str, Callable[[], Callable[[np.ndarray, np.ndarray], None]]] = {
    "scale": lambda: scale,
    "fast": lambda: scale,
    "hot-chip": lambda: scale,
    "restless": lambda: scale,
    "wrong": lambda: wrong,
    "idle": lambda: idle,
    "stale": Stale,
    "remembers": Remembers,
    "spoils": Spoils,
    "raises": lambda: raises,
    "refused": lambda: refused,
    "sticky": Sticky,
    "dies": lambda: dies,
    "dies-once": lambda: dies_once,
    "hangs": lambda: hangs,
    "noisy": lambda: noisy,
    "unsupported": lambda: scale,
}


@dataclass
class FakeDevice:
    """Knows how long each work takes, because nothing really runs."""

    times_us: dict[str, float] = field(default_factory=dict)
    special: str = ""


class FakeTarget:
    name = NAME
    arch = "sm_99"
    l2_bytes = L2_BYTES
    timed = True

    def __init__(self) -> None:
        self.device = FakeDevice()

    def counters(self) -> dict[str, Any] | None:
        return None

    def environment(self) -> dict[str, Any]:
        return {"gpu": NAME, "uuid": "GPU-0", "driver": os.environ.get("FAKE_DRIVER", "1.0")}

    def peaks(self, dtype: str) -> Mapping[str, float]:
        return PEAK

    def time(self, works: Sequence[Work], options: TimingOptions) -> list[Timing]:
        for slot in range(works[0].slots):
            works[0].launch(slot)
        return [self._timing(work, options) for work in works]

    def _timing(self, work: Work, options: TimingOptions) -> Timing:
        median = self.device.times_us[work.name]
        slower = float(os.environ.get("FAKE_SLOWER", "1"))
        samples = tuple(median * slower * (1 + 0.0001 * (i - 10)) for i in range(21))
        hot = self.device.special == "hot-chip"
        reasons = ("sw_thermal_slowdown",) if hot else ()
        clocks = ClockReport(Range(1700, 1755, 1800), None, None, None, reasons, 3)
        return Timing(
            work.name, options.method, options.l2, samples, samples[10], 0.001, 0.01,
            self.device.special != "restless", clocks,
        )  # fmt: skip


class FakePrepared:
    def __init__(self, case: Case, device: FakeDevice, peers: tuple[str, ...]) -> None:
        n = case.shape["n"]
        slots = int(case.params["slots"])
        rng = np.random.default_rng(0)
        self._x = [rng.random(n, np.float32) for _ in range(slots)]
        self._out = [2 * x for x in self._x]
        self._want = [out.copy() for out in self._out]
        self._kernel = KERNELS[case.kernel]()
        self.bytes_moved = 8 * n
        self.flops = n
        self.footprint = 8 * n
        self.launch = {"grid": [max(n // 256, 1)], "block": [256]}
        self.work = Work("ours", self._launch, slots)
        able = [name for name in peers if name != "absent"]
        self.peers = tuple(
            PeerWork(name, lambda slot: None, slots, facts={"candidates": 3}) for name in able
        )
        self.notes = tuple(Absent(name, "it is not there") for name in peers if name == "absent")
        self._describe_times(case, device, peers)

    def _describe_times(self, case: Case, device: FakeDevice, peers: tuple[str, ...]) -> None:
        speed = 2 * PEAK["gbs"] if case.kernel == "fast" else GBS
        time_us = self.bytes_moved / speed / 1e3
        device.special = case.kernel
        device.times_us = {"ours": time_us} | {
            name: time_us * factor for name, factor in {"twin": 1.0, "slowpoke": 2.0}.items()
        }

    def _launch(self, slot: int) -> None:
        if Sticky.broken:
            raise LaunchError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")
        self._kernel(self._x[slot], self._out[slot])

    def poison(self) -> None:
        for out in self._out:
            out.fill(np.nan)

    def check(self, slot: int = 0) -> CheckResult:
        if Sticky.broken:
            raise LaunchError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")
        errors = np.abs(self._out[slot] - self._want[slot]) / 1e-5
        error = float(np.max(errors, initial=0.0))
        return CheckResult(error, "atol=1e-5", bool(error <= 1))

    def close(self) -> None:
        if log := os.environ.get("FAKE_CLOSE_LOG"):
            with Path(log).open("a") as file:
                file.write("closed\n")


@dataclass(frozen=True)
class FakeFamily:
    name: str = "fake"
    summary: str = "Kernels that need no GPU."
    peers: tuple[str, ...] = ("twin", "slowpoke")

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (
            Axis("kernel", ("scale",), Choices(tuple(KERNELS)), "What to run."),
            Axis("n", (1 << 20,), Integers(minimum=0), "Elements.", "N[,...]"),
            Axis("dtype", ("f32",), DTypes(("f32", "bf16")), "Element type."),
            Axis("slots", (4,), Integers(minimum=1), "Buffer sets."),
            Axis("sleep_ms", (0,), Integers(), "Milliseconds a case takes."),
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        return [
            Case(self.name, kernel, dtype, {"n": n}, {"slots": slots, "sleep_ms": sleep})
            for kernel in selection["kernel"]
            for dtype in selection["dtype"]
            for n in selection["n"]
            for slots in selection["slots"]
            for sleep in selection["sleep_ms"]
            if n != 666  # leaves no case
        ]

    def emulated(self, device: str) -> bool:
        return False

    def target(self, device: str) -> FakeTarget:
        if device == "none":
            raise NoDeviceError("no fake device here")
        if device == "crash":
            os._exit(7)
        return FakeTarget()

    def prepare(self, case: Case, device: FakeDevice, peers: tuple[str, ...]) -> FakePrepared:
        if case.kernel == "unsupported":
            raise UnsupportedError("needs sm_100a, this GPU is sm_99")
        time.sleep(int(case.params["sleep_ms"]) / 1e3)
        return FakePrepared(case, device, peers)

    def ceiling(self, device: FakeDevice, dtype: str) -> dict[str, Any] | None:
        if log := os.environ.get("FAKE_CEILING_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{dtype}\n")
        if "FAKE_CEILING_FAILS" in os.environ:
            raise RuntimeError("out of memory")
        return CEILING if dtype == "f32" else None


FAMILY = FakeFamily()
#: Under a name that figures of others were published for.
MEMCPY = FakeFamily(name="memcpy")
