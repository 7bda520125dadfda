"""`gpukit tune matmul`: the cost model's best few, measured; the fastest is remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gpukit
from gpukit.bench.execute import describe
from gpukit.bench.families import buffers
from gpukit.bench.families.matmul_case import PreparedMatmul
from gpukit.bench.families.tuning import FINAL, FINALISTS, FIRST
from gpukit.bench.model import Case
from gpukit.errors import UnsupportedError
from gpukit.ops.matmul import tuned, warm
from gpukit.ops.matmul.choose import Estimate
from gpukit.ops.matmul.explain import allowed, problem_of

if TYPE_CHECKING:
    from gpukit.devices.cuda import CudaDevice
    from gpukit.measure import TimingOptions
    from gpukit.measure.works import L2State

#: A candidate must be faster than the model's choice by this share to replace it.
MARGIN = 0.005
L2: L2State = "rotate"

Step = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """A candidate, the model's estimate, and the median that was measured; None if it is wrong or
    does not run, which `note` explains."""

    config: str
    model_us: float
    median_us: float | None
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a problem's contest came to: candidates, fastest first, and the remembered one."""

    case: str
    candidates: tuple[Measured, ...]
    winner: str

    def speedup(self) -> float:
        """Of the winner over the model's choice."""
        times = {c.config: c.median_us for c in self.candidates if c.median_us}
        first = min(self.candidates, key=lambda c: c.model_us).config
        return times.get(first, float("nan")) / times[self.winner]


def tune(case: Case, device: CudaDevice, count: int, step: Step = lambda text: None) -> Outcome:
    """Measure a case's candidates on a GPU and remember the winner.

    Args:
        case: of the matmul family, kernel "matmul.auto".
        count: candidates, the model's best first.
        step: told what happens next.

    Raises:
        UnsupportedError: there is one candidate only, or none of them runs.
    """
    prepared = PreparedMatmul(replace(case, l2=L2), None, device, ())
    problem = problem_of(prepared.a[0], prepared.b[0], prepared.out[0], **_words(prepared, 0))
    candidates = allowed(problem, device.properties, count)
    if len(candidates) < 2:
        raise UnsupportedError(f"{candidates[0].config} is all there is for this problem")
    contest = _Contest(prepared, device, step)
    measured = contest.run(candidates)
    winner = _winner(measured)
    tuned.store(problem, device.properties, candidates[_index(candidates, winner)].config)
    warm.forget()
    prepared.close()
    return Outcome(case.key, measured, winner)


class _Contest:
    """Candidates on the buffers of one case."""

    def __init__(self, prepared: PreparedMatmul, device: CudaDevice, step: Step) -> None:
        self.prepared, self.device, self.step = prepared, device, step
        self.words = [_words(prepared, slot) for slot in range(len(prepared.out))]

    def run(self, candidates: Sequence[Estimate]) -> tuple[Measured, ...]:
        """All of them, the fastest first, what failed last."""
        launches, failed = self._able(candidates)
        if not launches:
            raise UnsupportedError(f"no candidate runs: {failed[0].note}")
        self.step(f"timing {len(launches)} candidates")
        times = self._timed(launches, FIRST)
        best = sorted(launches, key=lambda estimate: times[estimate])[:FINALISTS]
        finalists = {e: launches[e] for e in dict.fromkeys([*best, next(iter(launches))])}
        self.step(f"timing {len(finalists)} finalists")
        times |= self._timed(finalists, FINAL)
        done = [Measured(str(e.config), e.microseconds, times[e]) for e in launches]
        return (*sorted(done, key=lambda m: m.median_us or 0.0), *failed)

    def _able(self, candidates: Sequence[Estimate]) -> tuple[dict[Estimate, Any], list[Measured]]:
        """What compiles, runs and is right, in the model's order; the others with the reason."""
        able, failed = {}, []
        for i, estimate in enumerate(candidates):
            self.step(f"compiling {i + 1} of {len(candidates)}: {estimate.config}")
            launch = partial(self._launch, estimate.config)
            try:
                wrong = self._verdict(launch)
            except Exception as problem:  # a candidate may be more than the GPU takes
                buffers.require_alive(str(estimate.config), problem, self.device)
                wrong = describe(problem)
            if wrong:
                failed.append(Measured(str(estimate.config), estimate.microseconds, None, wrong))
            else:
                able[estimate] = launch
        return able, failed

    def _launch(self, config: Any, slot: int) -> None:
        p = self.prepared
        gpukit.matmul(p.a[slot], p.b[slot], out=p.out[slot], config=config, **self.words[slot])

    def _verdict(self, launch: Callable[[int], None]) -> str:
        """What is wrong with the results; nothing: ""."""
        self.prepared.poison()
        launch(0)
        result = self.prepared.check(0)
        return "" if result.ok else f"its result is wrong: {result.error:.3g} x the tolerance"

    def _timed(self, launches: dict[Estimate, Any], base: TimingOptions) -> dict[Estimate, float]:
        from gpukit.measure import Work, time_works

        works = [Work(str(e.config), launch, len(self.words)) for e, launch in launches.items()]
        options = replace(base, method="graph", l2=L2)
        timings = time_works(works, options)
        return {e: t.median_us for e, t in zip(launches, timings, strict=True)}


def _words(prepared: PreparedMatmul, slot: int) -> dict[str, Any]:
    """What `gpukit.matmul` is told besides the arrays."""
    return {**prepared.kind.words(prepared.fast), **prepared.scales[slot].words}


def _winner(measured: Sequence[Measured]) -> str:
    """The fastest, or the model's choice where that is as fast."""
    running = [m for m in measured if m.median_us is not None]
    fastest = running[0]
    model = min(running, key=lambda m: m.model_us)
    close = (model.median_us or 0.0) <= (fastest.median_us or 0.0) * (1 + MARGIN)
    return model.config if close else fastest.config


def _index(candidates: Sequence[Estimate], config: str) -> int:
    return [str(estimate.config) for estimate in candidates].index(config)
