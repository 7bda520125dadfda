"""Peers that come in several variants: the fastest one, chosen as cold as it will be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from gpukit.bench.execute import describe
from gpukit.bench.families.buffers import Launch, require_alive, tried
from gpukit.errors import UnsupportedError
from gpukit.measure import TimingOptions, Work

if TYPE_CHECKING:
    from gpukit.measure.works import L2State, Method

#: All variants are timed shortly, then the best few for longer: a race among equals is noise.
FIRST = TimingOptions(min_samples=5, max_samples=30, budget_s=0.03, rel_error=0.005, warmup_s=0.05)
FINAL = replace(FIRST, min_samples=20, max_samples=300, budget_s=0.15, rel_error=0.002)
FINALISTS = 3


_winners: dict[tuple[str, str, str], dict[str, int]] = {}


@dataclass(frozen=True)
class Tuned:
    """A launch and how it was chosen: ``candidates`` that ran, index of the ``winner``."""

    launch: Launch
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, slot: int) -> None:
        self.launch(slot)


@dataclass(frozen=True)
class Contest:
    """Where variants compete: the device, the buffer sets and the L2 state of the case, and
    ``verdict``, which runs a launch and says what is wrong with its result (nothing: "").

    ``name`` tells peer and problem: the next contest of that name goes to the same winner.
    """

    name: str
    device: Any
    slots: int
    l2: str
    method: str
    verdict: Callable[[Launch], str]

    def options(self, base: TimingOptions) -> TimingOptions:
        """Timing as in the case; CUPTI's tracing is for the case alone."""
        method = "events" if self.method == "cupti" else self.method
        return replace(base, l2=cast("L2State", self.l2), method=cast("Method", method))


def fastest(variants: Sequence[Callable[[], Launch]], contest: Contest) -> Tuned:
    """Make, try and time the variants; return the fastest whose result is right.

    ``winner`` counts from 0 in the order given.

    Raises:
        UnsupportedError: no variant runs, or none is right; says what became of the last one.
        LaunchError: a variant left the device unusable.
    """
    key = (contest.name, contest.l2, contest.method)
    if key in _winners:  # the other rungs of a ladder meet the same peers
        facts = _winners[key]
        return Tuned(variants[facts["winner"]](), facts)
    able, reason = _able(variants, contest.device)
    for index in _by_time(able, contest):
        reason = contest.verdict(able[index])
        if not reason:
            _winners[key] = {"candidates": len(able), "winner": index}
            return Tuned(able[index], _winners[key])
    raise UnsupportedError(reason or "it has no variant for this problem")


def _able(variants: Sequence[Callable[[], Launch]],
          device: Any) -> tuple[dict[int, Launch], str]:
    """The variants that run, by index, and why the last that does not did not."""
    able, reason = {}, ""
    for index, make in enumerate(variants):
        try:
            able[index] = tried(make, device)
        except Exception as problem:  # a variant may ask for more than the device has
            require_alive(f"variant {index}", problem, device)
            reason = describe(problem)
    return able, reason


def _by_time(able: Mapping[int, Launch], contest: Contest) -> list[int]:
    """Indices, fastest first; only the finalists were timed well."""
    order = list(able)
    if len(order) < 2:
        return order
    order = _raced(order, able, contest.options(FIRST), contest.slots)
    finalists = order[:FINALISTS]
    return _raced(finalists, able, contest.options(FINAL), contest.slots) + order[FINALISTS:]


def _raced(order: Sequence[int], able: Mapping[int, Launch], options: TimingOptions,
           slots: int) -> list[int]:
    from gpukit.measure import time_works

    works = [Work(f"variant {index}", able[index], slots) for index in order]
    timings = time_works(works, options)
    medians = {index: one.median_us for index, one in zip(order, timings, strict=True)}
    return sorted(order, key=lambda index: medians[index])
