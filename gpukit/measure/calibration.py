"""What an event pair contains besides the kernel between its events, measured on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from gpukit.errors import UnsupportedError
from gpukit.measure.events import EventSampler
from gpukit.measure.probes import MOST_LAUNCHES, Probe, captured, nothing
from gpukit.measure.sampling import Collector
from gpukit.measure.statistics import median
from gpukit.measure.works import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.measure.backend import Backend

CALIBRATION_SAMPLES = 100
# A replay already averages over `MOST_LAUNCHES` kernels.
REPLAY_SAMPLES = 20
# Short enough to follow the clocks through a long benchmark; long against the milliseconds that a
# calibration takes.
MOST_AGE_S = 60.0


@dataclass(frozen=True)
class Calibration:
    """What an event pair measures when there is nothing to measure, in microseconds.

    ``pair_us``: around nothing. ``empty_kernel_us``: around one kernel that does nothing.
    ``empty_own_us``: what one such kernel takes among many in a replayed CUDA graph, where the
    latency of the launch is paid once for all; None when it could not be captured, and ``note``
    says why.
    """

    pair_us: float
    empty_kernel_us: float
    empty_own_us: float | None = None
    note: str = ""

    @property
    def launch_us(self) -> float | None:
        """The launch latency that a pair around one kernel contains besides the kernel."""
        if self.empty_own_us is None:
            return None
        return max(self.empty_kernel_us - self.empty_own_us, 0.0)


def calibrate(samples: int = CALIBRATION_SAMPLES) -> Calibration:
    """Measure the cost of the event pair itself on the current CuPy device.

    Raises NoDeviceError without a device and MissingDependencyError without CuPy.
    """
    from gpukit.measure.cuda import current_backend

    backend = current_backend()
    with backend.session():
        backend.synchronize()
        return calibrate_on(backend, samples)


_recent: WeakKeyDictionary[Backend, tuple[float, Calibration]] = WeakKeyDictionary()


def recent_calibration(backend: Backend) -> Calibration:
    """The backend's calibration, inside its session; taken anew after `MOST_AGE_S`."""
    if backend in _recent:
        taken_s, calibration = _recent[backend]
        if backend.seconds() - taken_s <= MOST_AGE_S:
            return calibration
    calibration = calibrate_on(backend)
    _recent[backend] = (backend.seconds(), calibration)
    return calibration


def calibrate_on(backend: Backend, samples: int = CALIBRATION_SAMPLES) -> Calibration:
    """`calibrate` on a given backend, inside its session."""
    empty = empty_work(backend)
    pair_us, kernel_us = raw_medians(
        backend, [Probe("nothing", nothing, nothing), Probe(empty.name, nothing, empty.launch)],
        samples,
    )  # fmt: skip
    try:
        return Calibration(pair_us, kernel_us, _own_us(backend, empty))
    except UnsupportedError as error:
        note = f"event samples contain the launch latency, which is unknown: {error}"
        return Calibration(pair_us, kernel_us, None, note)


def empty_work(backend: Backend) -> Work:
    """One launch of the kernel that does nothing."""
    return Work("empty kernel", lambda slot: backend.empty_kernel())


def raw_medians(backend: Backend, probes: Sequence[Probe], samples: int) -> list[float]:
    """Medians of a few event samples of each probe, launch latency and all."""
    collector = Collector(backend, probes, EventSampler(backend))
    taken: list[list[float]] = [[] for _ in probes]
    while min(len(one) for one in taken) < samples:
        for index, value in collector.batch():
            taken[index].append(value)
    return [median(one) for one in taken]


def _own_us(backend: Backend, work: Work) -> float:
    """Per launch of a replay of many; the first replay is a warm-up that the median ignores."""
    replay = captured(work, MOST_LAUNCHES, 1, backend)
    probe = Probe(work.name, nothing, lambda slot: replay(), MOST_LAUNCHES)
    return raw_medians(backend, [probe], REPLAY_SAMPLES)[0]
