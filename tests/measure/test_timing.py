"""The timers on a simulated device, whose true durations are known."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from simulated import (
    BLOCKER_TIMEOUT_US,
    EMPTY_US,
    LATENCY_US,
    LAUNCH_US,
    SHARE_US,
    SimulatedDevice,
    constant_work,
)

from gpukit.errors import UnsupportedError
from gpukit.measure import sampling
from gpukit.measure.errors import MeasurementError
from gpukit.measure.events import EventSampler
from gpukit.measure.nvml import Reading
from gpukit.measure.probes import Probe, launches_per_replay, nothing
from gpukit.measure.sampling import BatchSize, Collector, finished, interleave, settled, shuffled
from gpukit.measure.telemetry import Monitor
from gpukit.measure.timing import measure
from gpukit.measure.works import Timing, TimingOptions, Work

QUICK = TimingOptions(warmup_s=0.0, rel_error=0.003)


def time_on(device: SimulatedDevice, works: list[Work], options: TimingOptions) -> list[Timing]:
    return measure(device, Monitor(None), works, options)


def runs(device: SimulatedDevice, *names: str) -> list[str]:
    """The device's log reduced to these works."""
    return [entry for entry in device.log if entry.partition("[")[0] in names]


# --- what a sample contains ------------------------------------------------------------


@pytest.mark.parametrize("l2", ["flush", "hot", "rotate"])
def test_a_sample_is_the_work_and_nothing_else(l2: str) -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, l2=l2)
    (timing,) = time_on(device, [constant_work(device, "a", 3.0, slots=4)], options)
    # 3 us of work against 20 us of launch and 60 us of flush: any leak would show.
    assert timing.samples_us == pytest.approx([3.0] * len(timing.samples_us), abs=SHARE_US)
    assert timing.converged and timing.spread == pytest.approx(0)


def test_the_simulated_device_shows_launch_gaps_without_a_blocker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = SimulatedDevice()
    monkeypatch.setattr(device, "block", lambda: None)
    work = constant_work(device, "a", 3.0, kernels=2)
    (gap,) = EventSampler(device)([(Probe("a", nothing, work.launch), 0)]) or [0.0]
    assert gap > LAUNCH_US


def test_works_of_many_kernels_are_gap_free_too() -> None:
    device = SimulatedDevice()
    (timing,) = time_on(device, [constant_work(device, "a", 12.0, kernels=6)], QUICK)
    assert timing.median_us == pytest.approx(12.0, abs=SHARE_US)


def test_hot_runs_the_work_right_before_each_sample_even_when_interleaved() -> None:
    device = SimulatedDevice()
    works = [constant_work(device, name, 5.0) for name in ("a", "b")]
    time_on(device, works, dataclasses.replace(QUICK, l2="hot"))
    starts = [i for i, entry in enumerate(device.log) if entry == "event"][::2]
    timed = [(device.log[i - 1], device.log[i + 1]) for i in starts]
    pairs = [(before, run) for before, run in timed if run in ("a[0]", "b[0]")]
    assert {run for _, run in pairs} == {"a[0]", "b[0]"}
    assert all(before == run for before, run in pairs)


def test_flush_precedes_every_start_event() -> None:
    device = SimulatedDevice()
    time_on(device, [constant_work(device, "a", 5.0)], QUICK)
    after_prime = device.log[1:]
    for i, entry in enumerate(after_prime):
        if entry == "a[0]":
            assert after_prime[i - 2 : i] == ["flush", "event"]


# --- order -----------------------------------------------------------------------------


def test_works_alternate_from_the_first_sample_to_the_last() -> None:
    device = SimulatedDevice()
    works = [constant_work(device, name, us) for name, us in (("a", 5.0), ("b", 9.0), ("c", 2.0))]
    timings = time_on(device, works, QUICK)
    order = [entry[0] for entry in runs(device, "a", "b", "c")]
    assert order == list(itertools.islice(itertools.cycle("abc"), len(order)))
    counts = [len(timing.samples_us) for timing in timings]
    assert max(counts) - min(counts) <= 1 and min(counts) >= QUICK.min_samples


def test_drift_hits_interleaved_works_alike() -> None:
    device = SimulatedDevice()

    def drifting(name: str, us: float) -> Work:
        return Work(name, lambda slot: device.launch(name, lambda: us + device.host_us * 1e-3))

    options = dataclasses.replace(QUICK, rel_error=1e-9, max_samples=300)
    a, b = time_on(device, [drifting("a", 50.0), drifting("b", 51.0)], options)
    assert a.spread > 0.05  # the drift is far larger than the difference
    assert b.median_us - a.median_us == pytest.approx(1.0, abs=0.2)


def test_rotation_takes_the_slots_in_turn() -> None:
    device = SimulatedDevice()
    work = constant_work(device, "a", 10.0, slots=3)
    time_on(device, [work], dataclasses.replace(QUICK, l2="rotate"))
    order = runs(device, "a")
    assert order == list(itertools.islice(itertools.cycle(["a[0]", "a[1]", "a[2]"]), len(order)))


def test_the_first_turn_is_not_among_the_samples() -> None:
    device = SimulatedDevice()
    served = itertools.count()
    cold_turn = 4

    def launch(slot: int) -> None:
        # Priming takes the first four, then the first turn of the rotation follows.
        device.launch(f"a[{slot}]", lambda: 500.0 if next(served) < 2 * cold_turn else 10.0)

    options = dataclasses.replace(QUICK, l2="rotate")
    (timing,) = time_on(device, [Work("a", launch, slots=cold_turn)], options)
    assert max(timing.samples_us) == pytest.approx(10.0, abs=SHARE_US)


@pytest.mark.parametrize(
    ("works", "slots", "turns"),
    [
        (1, 3, [(0, 0), (0, 1), (0, 2), (0, 0)]),
        (2, 1, [(0, 0), (1, 0), (0, 0), (1, 0)]),
        (2, 3, [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1), (1, 2), (0, 0)]),
        (2, 2, [(0, 0), (1, 1), (1, 0), (0, 1), (0, 0)]),
    ],
)
def test_interleaving_counts_launches_over_all_works(
    works: int, slots: int, turns: list[tuple[int, int]]
) -> None:
    assert list(itertools.islice(interleave(works, slots), len(turns))) == turns


@pytest.mark.parametrize("works", [1, 2, 3, 4])
@pytest.mark.parametrize("slots", [2, 3, 4, 6, 7])
def test_every_work_meets_every_slot_equally_often(works: int, slots: int) -> None:
    turns = list(itertools.islice(interleave(works, slots), works * slots))
    assert sorted(turns) == [(work, slot) for work in range(works) for slot in range(slots)]


@pytest.mark.parametrize(("works", "slots"), [(1, 3), (5, 1), (6, 4), (7, 7)])
def test_shuffled_turns_hold_every_work_once_and_sets_in_turn(works: int, slots: int) -> None:
    taken = list(itertools.islice(shuffled(works, slots), works * 50))
    assert [slot for _, slot in taken] == [step % slots for step in range(len(taken))]
    for start in range(0, len(taken), works):
        assert sorted(work for work, _ in taken[start:start + works]) == list(range(works))


def test_shuffled_works_follow_every_other_work_and_meet_every_set() -> None:
    works, slots = 6, 4
    taken = list(itertools.islice(shuffled(works, slots), works * 200))
    assert taken == list(itertools.islice(shuffled(works, slots), works * 200))
    before = {(one, other) for (other, _), (one, _) in itertools.pairwise(taken)}
    assert len(before) >= works * (works - 1)
    assert set(taken) == set(itertools.product(range(works), range(slots)))



@pytest.mark.parametrize("method", ["events", "graph"])
@pytest.mark.parametrize(("works", "slots"), [(1, 2), (2, 2), (3, 2), (2, 3), (4, 6), (3, 7)])
def test_all_other_sets_lie_between_two_uses_of_one_by_any_work(
    method: str, works: int, slots: int
) -> None:
    device = SimulatedDevice()
    names = "abcd"[:works]
    options = TimingOptions(method=method, l2="rotate", warmup_s=0.05)
    time_on(device, [constant_work(device, name, 400.0, slots) for name in names], options)
    sets = [int(entry[2:-1]) for entry in runs(device, *names)][works * slots :]
    if method == "graph":  # the pilots keep to set 0
        sets = sets[sets.index(1) - 1 :]
    assert len(sets) > 10 * slots
    for start in range(len(sets) - slots):
        assert len(set(sets[start : start + slots])) == slots


@pytest.mark.parametrize("slots", [2, 3, 5])
def test_the_first_turn_is_discarded_whoever_launches_it(slots: int) -> None:
    device = SimulatedDevice()
    served = itertools.count()

    def work(name: str) -> Work:
        def launch(slot: int) -> None:
            # Each of the two primes all slots, then the turn comes.
            device.launch(name, lambda: 500.0 if next(served) < 3 * slots else 10.0)

        return Work(name, launch, slots)

    for timing in time_on(device, [work("a"), work("b")], dataclasses.replace(QUICK, l2="rotate")):
        assert max(timing.samples_us) == pytest.approx(10.0, abs=SHARE_US)


# --- graphs ----------------------------------------------------------------------------


@pytest.mark.parametrize("us", [2.0, 20.0, 2000.0])
def test_a_graph_sample_shares_one_launch_latency(us: float) -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, method="graph", l2="rotate")
    (timing,) = time_on(device, [constant_work(device, "a", us, slots=3)], options)
    launches = launches_per_replay(us - EMPTY_US, 3)
    assert timing.median_us == pytest.approx(us + LATENCY_US / launches, rel=1e-4)
    assert timing.median_us < 1.003 * us
    assert timing.overhead_us == 0.0 and not timing.overhead_subtracted


def test_a_replay_goes_round_the_slots_in_whole_turns() -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, method="graph", l2="rotate")
    time_on(device, [constant_work(device, "a", 50.0, slots=7)], options)
    replayed = runs(device, "a")[7 + 4 :]  # after priming and the pilot
    assert replayed[:8] == [f"a[{slot}]" for slot in (0, 1, 2, 3, 4, 5, 6, 0)]
    assert len(replayed) % 7 == 0


@pytest.mark.parametrize(
    ("launch_us", "slots", "launches"),
    [(1000.0, 1, 1), (5000.0, 1, 1), (10.0, 1, 100), (10.0, 7, 105), (0.0, 1, 512),
     (5000.0, 12, 12), (0.5, 1, 512), (0.5, 3, 513)],
)  # fmt: skip
def test_launches_per_replay(launch_us: float, slots: int, launches: int) -> None:
    assert launches_per_replay(launch_us, slots) == launches


def test_a_failed_capture_names_the_work() -> None:
    device = SimulatedDevice()
    calls = itertools.count()

    def launch(slot: int) -> None:
        if device._recorded is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        next(calls)
        device.launch("a", lambda: 5.0)

    options = dataclasses.replace(QUICK, method="graph", l2="hot")
    with pytest.raises(UnsupportedError, match=r"work 'a' cannot be captured .*not permitted"):
        time_on(device, [Work("a", launch)], options)


# --- stopping --------------------------------------------------------------------------


def noisy_work(device: SimulatedDevice, us: float, sigma: float) -> Work:
    noise = random.Random(1)
    return Work("a", lambda slot: device.launch("a", lambda: max(noise.gauss(us, sigma), 0.1)))


def test_sampling_stops_when_the_median_is_known_well_enough() -> None:
    device = SimulatedDevice()
    (timing,) = time_on(device, [noisy_work(device, 100.0, 2.0)], QUICK)
    assert timing.converged
    assert timing.stderr_us < QUICK.rel_error * timing.median_us
    # 1.25 sigma / sqrt(n) = 0.3 at n = 70; a batch is at most 64 more.
    assert 20 <= len(timing.samples_us) < 250


def test_hopeless_noise_stops_at_the_most_samples() -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, max_samples=150, budget_s=60.0)
    (timing,) = time_on(device, [noisy_work(device, 100.0, 60.0)], options)
    assert len(timing.samples_us) == 150
    assert not timing.converged


def test_the_budget_ends_it_and_is_per_work() -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, budget_s=0.5, rel_error=1e-9, max_samples=10**6)
    time_on(device, [noisy_work(device, 20_000.0, 3000.0)], options)
    alone = device.seconds()
    pair = SimulatedDevice()
    time_on(pair, [noisy_work(pair, 20_000.0, 3000.0) for _ in range(2)], options)
    assert 0.5 <= alone < 0.75
    assert 1.0 <= pair.seconds() < 1.3


def test_a_work_longer_than_the_budget_still_gets_its_sample() -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, budget_s=0.1)
    (timing,) = time_on(device, [constant_work(device, "a", 3e6)], options)
    assert timing.median_us == pytest.approx(3e6)
    assert not timing.converged and len(timing.samples_us) == 1


@pytest.mark.parametrize(
    ("samples", "elapsed", "expected"),
    [
        ([[]], 99.0, False),
        ([[1.0] * 20], 0.0, True),
        ([[1.0] * 19], 0.0, False),
        ([[1.0] * 20, [1.0, 2.0] * 10], 0.0, False),
        ([[1.0] * 20, [1.0, 2.0] * 10], 1.9, False),
        ([[1.0] * 20, [1.0, 2.0] * 10], 2.0, True),
        ([[1.0, 2.0] * 500], 0.0, True),
    ],
)
def test_stopping_rule(samples: list[list[float]], elapsed: float, expected: bool) -> None:
    assert finished(samples, elapsed, QUICK) is expected


# --- batches and the blocker -----------------------------------------------------------


def test_batches_grow_for_short_works_and_never_pass_the_limit() -> None:
    size = BatchSize(most=64)
    for _ in range(10):
        size.went_well(1e-4)
    assert size.groups == 64
    size.went_well(0.64)  # 10 ms a group: two fit the aim
    assert size.groups == 2
    size.went_well(1.0)
    assert size.groups == 1


def test_ctrl_c_inside_a_launch_releases_the_blocker_and_propagates() -> None:
    device = SimulatedDevice()
    count = itertools.count()

    def launch(slot: int) -> None:
        if next(count) == 10:
            raise KeyboardInterrupt
        device.launch("a", lambda: 5.0)

    with pytest.raises(KeyboardInterrupt):
        time_on(device, [Work("a", launch)], QUICK)
    device.synchronize()  # asserts that nothing is held


def test_a_failing_launch_releases_the_blocker_too() -> None:
    device = SimulatedDevice()

    def launch(slot: int) -> None:
        raise ValueError("bad launch")

    released = device.releases
    with pytest.raises(ValueError, match="bad launch"):
        EventSampler(device)([(Probe("a", nothing, launch), 0)])
    assert device.releases == released + 1


def test_a_launch_that_synchronises_is_named_not_measured() -> None:
    device = SimulatedDevice()

    def launch(slot: int) -> None:
        device.launch("a", lambda: 5.0)
        device.wait_for_device()

    with pytest.raises(MeasurementError, match=r"waited for the host .* while timing a:"):
        time_on(device, [Work("a", launch)], QUICK)
    assert device.gave_up_count == sampling.STRIKES


def test_batches_that_timed_out_are_dropped_and_shrunk() -> None:
    device = SimulatedDevice()
    work = constant_work(device, "a", 5.0)
    collector = Collector(device, [Probe("a", nothing, work.launch)], EventSampler(device))
    for _ in range(10):
        collector.batch()
    stall = itertools.chain([BLOCKER_TIMEOUT_US], itertools.repeat(0.0))
    stalled = Work("a", lambda slot: (_advance(device, next(stall)), work.launch(slot))[1])
    collector._probes = [Probe("a", nothing, stalled.launch)]
    values = collector.batch()
    assert device.gave_up_count == 1
    assert len(values) == 32
    assert [value for _, value in values] == pytest.approx([5.0 + LATENCY_US] * 32)


def _advance(device: SimulatedDevice, host_us: float) -> None:
    device.host_us += host_us


# --- warm-up and telemetry -------------------------------------------------------------


class Clock:
    """A telemetry source whose SM clock follows a script and then stays."""

    def __init__(self, *mhz: float | None) -> None:
        self._mhz = list(mhz)
        self.reads = 0

    def read(self) -> Reading:
        self.reads += 1
        mhz = self._mhz[min(self.reads, len(self._mhz)) - 1]
        return Reading(mhz, 2619.0, 400.0, 55.0, ())

    def close(self) -> None:
        pass


def warm_up(clock: Clock, limit_s: float) -> float:
    """Simulated seconds that the warm-up takes."""
    device = SimulatedDevice()
    work = constant_work(device, "a", 100.0)
    collector = Collector(device, [Probe("a", nothing, work.launch)], EventSampler(device))
    collector.warm_up(lambda: clock.read().sm_mhz, limit_s)
    return device.seconds()


def test_warm_up_ends_when_two_readings_agree() -> None:
    clock = Clock(345.0, 1200.0, 1965.0, 1980.0)
    assert warm_up(clock, 10.0) < 0.2
    assert clock.reads == 4


def test_warm_up_without_telemetry_lasts_its_bound() -> None:
    assert warm_up(Clock(None), 0.3) == pytest.approx(0.3, abs=0.05)


def test_restless_clocks_are_waited_for_no_longer_than_the_bound() -> None:
    clock = Clock(*[1000.0, 1500.0] * 200)
    assert warm_up(clock, 0.3) == pytest.approx(0.3, abs=0.05)


def test_settled_is_within_one_percent() -> None:
    assert settled(1980.0, 1965.0) and settled(1965.0, 1980.0)
    assert not settled(1980.0, 1950.0)
    assert not settled(None, 1980.0) and not settled(1980.0, None)


def test_clocks_travel_with_the_timing_and_their_absence_is_noted() -> None:
    device = SimulatedDevice()
    monitor = Monitor(None, source=Clock(1980.0))
    work = constant_work(device, "a", 5.0)
    (timing,) = measure(device, monitor, [work], QUICK)
    assert timing.clocks is not None and timing.clocks.sm_mhz == (1980.0, 1980.0, 1980.0)
    (without,) = time_on(device, [work], QUICK)
    assert without.clocks is None
    assert any("clocks were not read" in note for note in without.notes)


# --- sustained load ----------------------------------------------------------------------


class Stamps(Clock):
    """A clock that notes when it was read."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__(1500.0)
        self.seen: list[float] = []
        self._device = device

    def read(self) -> Reading:
        self.seen.append(self._device.seconds())
        return super().read()


def test_sustained_means_so_much_load_in_turns_before_the_first_sample() -> None:
    device = SimulatedDevice()
    works = [constant_work(device, name, 400.0, slots=3) for name in ("a", "b")]
    options = dataclasses.replace(QUICK, l2="rotate", sustain_s=0.5, max_samples=20)
    clock = Stamps(device)
    measure(device, Monitor(None, source=clock), works, options)
    assert clock.seen[0] > 0.5  # clocks are read while samples are taken, thus after the load
    order = runs(device, "a", "b")
    assert len(order) * 400e-6 > 0.95 * 0.5  # all of it load, but for the batches' edges
    kinds = [entry[0] for entry in order]
    assert abs(kinds.count("a") - kinds.count("b")) <= 2


def test_sustained_load_does_not_end_when_clocks_agree() -> None:
    device = SimulatedDevice()
    options = dataclasses.replace(QUICK, warmup_s=0.3, sustain_s=0.8, max_samples=20)
    measure(device, Monitor(None, source=Clock(1500.0)), [constant_work(device, "a", 400.0)],
            options)
    assert device.seconds() > 0.8
