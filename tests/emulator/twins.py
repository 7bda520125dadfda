"""Bad kernels and their good twins: what a check must say, or not say, under every schedule."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator

SCHEDULES = [
    (policy, seed) for policy in ("random", "early", "late", "starved") for seed in range(2)
]


def arguments():
    """``const float* x, float* y``: 4096 numbers, and room for as many."""
    return [np.arange(4096, dtype="f4"), np.zeros(4096, "f4")]


def silent(source, grid, threads, **options):
    """Every schedule passes and gives the same ``y``, which is returned."""
    results = []
    for policy, seed in SCHEDULES:
        x, y = arguments()
        emulator.run(WRAPPERS + source, grid, threads, [x, y], policy=policy, seed=seed, **options)
        results.append(y)
    assert all((y == results[0]).all() for y in results)
    return results[0]


def reported(source, grid, threads, error, match=None, **options):
    """Every schedule is reported, with exactly this class of error; returns the reports."""
    reports = []
    for policy, seed in SCHEDULES:
        with pytest.raises(error, match=match) as caught:
            emulator.run(
                WRAPPERS + source, grid, threads, arguments(), policy=policy, seed=seed, **options
            )
        assert caught.type is error, (policy, seed, caught.value)
        reports.append(str(caught.value))
    return reports
