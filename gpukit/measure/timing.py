"""Timing GPU work: launch-gap free, in a stated L2 state, contenders interleaved.

Methods
    events   CUDA events around each launch, queued in batches behind a blocking kernel, so that
             the host's launch time lies before the batch and not between its operations.
    graph    many launches captured in one CUDA graph; an event pair around a replay, divided by
             the number of launches. Contains the device's own gaps between launches.
    cupti    the device's own record of each kernel, copy and memset of the launch, summed.

L2 states
    flush    before each sample twice the L2 is read, outside the timed interval: a cold L2 full
             of clean lines. Kernel code and constants are cold as well.
    rotate   each launch takes the next buffer set; the first turn is discarded.
    hot      the same buffers as the run right before.

Why not NVBench's Python package (cuda-bench 0.3): it offers the same batch-behind-a-blocker idea,
but `run_all_benchmarks(argv)` owns the loop, the command line and the output; a benchmark state
times one callable, so two contenders cannot be interleaved sample by sample on the same buffers;
the caller cannot rotate buffer sets inside its hot loop or set what precedes a sample (its flush
writes the L2, which leaves dirty lines for the timed kernel to evict); results come back through
a JSON file, not as values. Its cold times are event times and contain the event overhead, as
ours do. It remains a good independent check of a single kernel's number.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpukit.measure import events
from gpukit.measure.cupti_trace import CuptiSampler, tracer
from gpukit.measure.events import EventSampler, subtract_event_overhead
from gpukit.measure.probes import Probe, graph_probe, nothing, prime, stream_probe
from gpukit.measure.sampling import Collector, Sampler, converged
from gpukit.measure.statistics import median, spread, standard_error
from gpukit.measure.telemetry import Monitor
from gpukit.measure.works import Timing, TimingOptions, Work, check_works

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpukit.measure.backend import Backend

PILOT_SAMPLES = 3
CALIBRATION_SAMPLES = 100


@dataclass(frozen=True)
class Calibration:
    """What an event pair measures when there is nothing to measure, in microseconds.

    ``pair_us``: around nothing. ``empty_kernel_us``: around a kernel that does nothing; shorter
    than this no single kernel can appear to be.
    """

    pair_us: float
    empty_kernel_us: float


def time_works(works: Sequence[Work], options: TimingOptions | None = None) -> list[Timing]:
    """Time the works interleaved (A B A B ...) on the current CuPy device; one result each.

    Raises ArgumentError or UnsupportedError for works the options cannot time, NoDeviceError
    without a device, MissingDependencyError without CuPy (or cupti-python for
    ``method="cupti"``) and MeasurementError when no honest number could be taken.
    """
    options = options or TimingOptions()
    check_works(works, options)
    from gpukit.measure.cuda import current_backend

    backend = current_backend()
    monitor = Monitor(backend.uuid())
    try:
        return measure(backend, monitor, works, options)
    finally:
        monitor.close()


def calibrate(samples: int = CALIBRATION_SAMPLES) -> Calibration:
    """Measure the cost of the event pair itself on the current CuPy device."""
    from gpukit.measure.cuda import current_backend

    backend = current_backend()
    with backend.session():
        backend.synchronize()
        return calibrate_on(backend, samples)


def measure(
    backend: Backend, monitor: Monitor, works: Sequence[Work], options: TimingOptions
) -> list[Timing]:
    """`time_works` on a given backend and monitor."""
    with backend.session() as notes:
        prime(works, backend)
        probes = _probes(works, options, backend)
        with _sampler(options, backend) as sampler:
            collector = Collector(backend, probes, sampler)
            collector.warm_up(monitor.sm_clock, options.warmup_s)
            pair_us = 0.0 if options.method == "cupti" else calibrate_on(backend).pair_us
            with monitor:
                samples = collector.collect(options)
    notes = (*notes, *filter(None, [monitor.note]))
    results = zip(probes, samples, strict=True)
    return [
        replace(summarize(probe, values, options, pair_us), clocks=monitor.report, notes=notes)
        for probe, values in results
    ]


def calibrate_on(backend: Backend, samples: int = CALIBRATION_SAMPLES) -> Calibration:
    """`calibrate` on a given backend, inside its session."""
    probes = [
        Probe("nothing", nothing, nothing),
        Probe("empty kernel", nothing, lambda slot: backend.empty_kernel()),
    ]
    pair, empty = _medians(backend, probes, samples)
    return Calibration(pair, empty)


def summarize(
    probe: Probe, samples: Sequence[float], options: TimingOptions, pair_us: float
) -> Timing:
    """Raw samples of one probe to the result, clocks and notes aside."""
    overhead = pair_us / probe.launches
    net = tuple(subtract_event_overhead(sample, overhead) for sample in samples)
    return Timing(
        name=probe.name,
        method=options.method,
        l2=options.l2,
        samples_us=net,
        median_us=median(net),
        spread=spread(net),
        stderr_us=standard_error(net),
        converged=converged(net, options),
        clocks=None,
        overhead_us=overhead,
        overhead_subtracted=events.SUBTRACT_EVENT_OVERHEAD and overhead > 0,
    )


def _probes(works: Sequence[Work], options: TimingOptions, backend: Backend) -> list[Probe]:
    if options.method != "graph":
        return [stream_probe(work, options.l2, backend) for work in works]
    pilots = [Probe(work.name, nothing, work.launch) for work in works]
    estimates = _medians(backend, pilots, PILOT_SAMPLES)
    return [
        graph_probe(work, options, backend, launch_us)
        for work, launch_us in zip(works, estimates, strict=True)
    ]


def _medians(backend: Backend, probes: Sequence[Probe], samples: int) -> list[float]:
    """Medians of a few raw event samples of each probe."""
    collector = Collector(backend, probes, EventSampler(backend))
    taken: list[list[float]] = [[] for _ in probes]
    while min(len(one) for one in taken) < samples:
        for index, value in collector.batch():
            taken[index].append(value)
    return [median(one) for one in taken]


@contextmanager
def _sampler(options: TimingOptions, backend: Backend) -> Iterator[Sampler]:
    if options.method != "cupti":
        yield EventSampler(backend)
        return
    trace = tracer()
    with trace.tracing():
        yield CuptiSampler(backend, trace)
