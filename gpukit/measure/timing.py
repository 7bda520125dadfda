"""Timing GPU work: launch-gap free, in a stated L2 state, contenders interleaved.

Methods
    events   CUDA events around each launch, queued in batches behind a blocking kernel, so that
             the host's launch time lies before the batch and not between its operations. Net of
             the device's launch latency (about 2.8 us on an H200), which is calibrated with an
             empty kernel; good to about 0.2 us or 0.3 %. Of a launch of several kernels, the
             gaps between them are part of the sample.
    graph    many launches captured in one CUDA graph; an event pair around a replay, divided by
             the number of launches. Nothing is subtracted: a replay takes about a millisecond
             or has 512 launches, so its one launch latency adds 0.3 % or 0.006 us. Contains the
             device's own gaps between launches.
    cupti    the device's own record of each kernel, copy and memset of the launch, summed;
             nothing is subtracted.
`gpukit.measure.compare_methods` shows on a device how far the three agree.

L2 states
    flush    before each sample twice the L2 is read, outside the timed interval: a cold L2 full
             of clean lines. Kernel code and constants are cold as well.
    rotate   each launch, of whichever work, takes the next buffer set, so that all other sets
             are touched between two uses of one by anyone; the first turn is discarded.
    hot      the same buffers as the run right before.

Why not NVBench's Python package (cuda-bench 0.3): it offers the same batch-behind-a-blocker idea,
but `run_all_benchmarks(argv)` owns the loop, the command line and the output; a benchmark state
times one callable, so two contenders cannot be interleaved sample by sample on the same buffers;
the caller cannot rotate buffer sets inside its hot loop or set what precedes a sample (its flush
writes the L2, which leaves dirty lines for the timed kernel to evict); results come back through
a JSON file, not as values. Its cold times are event times with the launch latency left in. It
remains a good independent check of a single kernel's number.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gpukit.measure import events
from gpukit.measure.calibration import empty_work, raw_medians, recent_calibration
from gpukit.measure.cupti_trace import CuptiSampler, tracer
from gpukit.measure.events import EventSampler
from gpukit.measure.probes import Probe, graph_probe, nothing, prime, stream_probe
from gpukit.measure.sampling import Collector, Sampler, converged
from gpukit.measure.statistics import median, spread, standard_error
from gpukit.measure.telemetry import Monitor
from gpukit.measure.works import Timing, TimingOptions, Work, check_works

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpukit.measure.backend import Backend

PILOT_SAMPLES = 3


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


def measure(
    backend: Backend, monitor: Monitor, works: Sequence[Work], options: TimingOptions
) -> list[Timing]:
    """`time_works` on a given backend and monitor."""
    with backend.session() as notes:
        prime(works, backend)
        probes = _probes(works, options, backend)
        with _sampler(options, backend) as sampler:
            collector = Collector(backend, probes, sampler, shuffle=options.shuffle)
            _warm_up(collector, monitor, options)
            overhead_us, unknown = _overhead(options, backend)  # at the clocks of the samples
            with monitor:
                samples = collector.collect(options, _subtracted(overhead_us))
    common = (*notes, *filter(None, [monitor.note, unknown]))
    timings = [
        summarize(probe.name, values, options, overhead_us)
        for probe, values in zip(probes, samples, strict=True)
    ]
    return [replace(one, clocks=monitor.report, notes=common + one.notes) for one in timings]


def _warm_up(collector: Collector, monitor: Monitor, options: TimingOptions) -> None:
    if options.sustain_s > 0:
        collector.load_for(options.sustain_s)
    else:
        collector.warm_up(monitor.sm_clock, options.warmup_s)


def summarize(
    name: str, samples: Sequence[float], options: TimingOptions, overhead_us: float
) -> Timing:
    """Samples of one work, net of what is subtracted, to the result without its clocks."""
    subtracted = _subtracted(overhead_us) > 0
    return Timing(
        name=name,
        method=options.method,
        l2=options.l2,
        samples_us=tuple(samples),
        median_us=median(samples),
        spread=spread(samples),
        stderr_us=standard_error(samples),
        converged=converged(samples, options),
        clocks=None,
        overhead_us=overhead_us,
        overhead_subtracted=subtracted,
        notes=_lost(samples) if subtracted else (),
    )


def _lost(samples: Sequence[float]) -> tuple[str, ...]:
    """A note when a work is too short for events to tell it from the launch latency."""
    lost = sum(sample <= 0 for sample in samples)
    if not lost:
        return ()
    return (
        f"{lost} of {len(samples)} samples were no longer than the launch latency and count as "
        "0 us; use method='graph' or 'cupti'",
    )


def _overhead(options: TimingOptions, backend: Backend) -> tuple[float, str]:
    """The launch latency inside each sample, and a note where it is not known."""
    if options.method != "events":
        return 0.0, ""
    calibration = recent_calibration(backend)
    return calibration.launch_us or 0.0, calibration.note


def _subtracted(overhead_us: float) -> float:
    return overhead_us if events.SUBTRACT_EVENT_OVERHEAD else 0.0


def _probes(works: Sequence[Work], options: TimingOptions, backend: Backend) -> list[Probe]:
    if options.method != "graph":
        return [stream_probe(work, options.l2, backend, len(works)) for work in works]
    # Less the pair around an empty kernel, or replays of short works would have too few launches.
    pilots = [Probe(work.name, nothing, work.launch) for work in (*works, empty_work(backend))]
    *around_us, empty_us = raw_medians(backend, pilots, PILOT_SAMPLES)
    return [
        graph_probe(work, options, backend, pair_us - empty_us)
        for work, pair_us in zip(works, around_us, strict=True)
    ]


@contextmanager
def _sampler(options: TimingOptions, backend: Backend) -> Iterator[Sampler]:
    if options.method != "cupti":
        yield EventSampler(backend)
        return
    trace = tracer()
    with trace.tracing():
        yield CuptiSampler(backend, trace)
