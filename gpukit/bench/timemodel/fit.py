"""The figures of a GPU that nobody publishes, from a ladder that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpukit.bench.timemodel.machine import FITTED, Machine
from gpukit.bench.timemodel.predict import predict
from gpukit.bench.timemodel.work import Rung
from gpukit.errors import missing

_WEIGHT = 0.15  # of a figure's distance from the first guess, against that of times: both in log


def fit(machine: Machine, measured: Sequence[tuple[Rung, float]], size: int) -> Machine:
    """The machine whose model comes closest to measured times (in us) of size^3, in the log.

    There are about as many figures as rungs: a small weight keeps each near its first guess unless
    the times say otherwise.

    Raises:
        MissingDependencyError: no SciPy.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise missing("SciPy", "model", "gpukit model") from None

    start = np.log([getattr(machine, name) for name in FITTED])
    times = np.log([us for _, us in measured])

    def misses(figures: Any) -> Any:
        trial = with_figures(machine, np.exp(figures))
        said = np.log([predict(rung, trial, size, size, size).us for rung, _ in measured])
        return np.concatenate([said - times, _WEIGHT * (figures - start)])

    found = np.exp(least_squares(misses, start, diff_step=1e-3).x)
    return with_figures(machine, [float(f"{figure:.3g}") for figure in found])


def with_figures(machine: Machine, values: Sequence[float] | np.ndarray[Any, Any]) -> Machine:
    """The machine with these fitted figures."""
    figures: dict[str, Any] = dict(zip(FITTED, map(float, values), strict=True))
    return replace(machine, **figures)
