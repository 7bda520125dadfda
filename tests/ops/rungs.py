"""Launching a rung of a matmul ladder on an emulated device, with every result checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from gpukit import dtypes, emulator
from gpukit.devices.emulated import EmulatedDevice
from gpukit.emulator.counters import Counters
from gpukit.emulator.trace import Span, Trace
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

GUARD = 8  # rows before and after C that nobody may touch


def operand(shape: tuple[int, int], dtype: dtypes.DType, seed: int) -> np.ndarray:
    """Normal values, rows 16-byte aligned, in a matrix whose other columns are NaN."""
    rows, columns = shape
    wide = np.full((rows, -(-columns // 8) * 8 + 8), np.nan, dtype.numpy)
    wide[:, :columns] = np.random.default_rng(seed).standard_normal(shape)
    return wide[:, :columns]


def check(launch: Callable[..., None], rung: int, device: EmulatedDevice, m: int, n: int, k: int,
          *, dtype: str = "bf16", out: str = "bf16", **options: Any) -> np.ndarray:
    """Launch one rung; the whole result is right and nothing beside it was written."""
    given, result = dtypes.parse(dtype), dtypes.parse(out)
    a, b = operand((m, k), given, m + k), operand((n, k), given, n + k + 1).T
    around = np.full((GUARD + m + GUARD, n), np.nan, result.numpy)
    c = around[GUARD:-GUARD]
    launch(rung, device, a, b, c, **options)
    got = around.astype(np.float64)
    assert np.isnan(got[:GUARD]).all() and np.isnan(got[-GUARD:]).all()
    assert scaled_error(got[GUARD:-GUARD], ref.oracle(a, b), ref.bound(a, b, result)) <= 1
    return c


def counted(launch: Callable[..., None], rung: int, device: EmulatedDevice, *shape: int,
            **options: Any) -> Counters:
    """Counters of a checked launch."""
    check(launch, rung, device, *shape, **options)
    assert device.last_counters is not None
    return device.last_counters


def traced(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any], **words: Any) -> list[Span]:
    """What happened during `work`, in order of its beginning; `words` go to `emulator.run`."""
    trace, run = Trace(), emulator.run
    with monkeypatch.context() as patch:
        patch.setattr(emulator, "run", partial(run, listeners=[trace], **words))
        work()
    return sorted(trace.spans, key=lambda span: span.start)


def of(spans: list[Span], cta: int, track: str) -> list[Span]:
    """The spans of one CTA of a grid row, of a warp or an engine."""
    return [span for span in spans if (span.cta, span.track) == ((cta, 0, 0), track)]
