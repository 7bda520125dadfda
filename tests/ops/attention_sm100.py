"""Problems for the Blackwell attention kernels on the emulated B200, and their judgement."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.devices import emulated
from gpukit.ops.attention import blackwell, masks
from gpukit.ops.attention.blackwell import Config
from gpukit.ops.attention.problem import Lengths, Problem, Terms
from gpukit.reference import attention as ref
from gpukit.reference.attention import Rules
from gpukit.reference.tolerance import scaled_error

Array = np.ndarray[Any, Any]
SMALL = Config(n=32, stages=3)  # many steps for few keys: cheap to emulate


def normal(seed: int, *shape: int, dtype: str = "bf16", gain: float = 1.0) -> Array:
    """Normal values times `gain`."""
    values = np.random.default_rng(seed).standard_normal(shape) * gain
    return values.astype(dtypes.parse(dtype).numpy)


def problem(queries: int, keys: int, *, heads: int = 1, d: int = 64, dtype: str = "bf16",
            mask: str = "null", window: int | None = None, gain: float = 1.0,
            device: Any = None) -> Problem:
    """One sequence; with a `gain` of 8 maxima keep growing from block to block."""
    q = normal(1, 1, queries, heads, d, dtype=dtype, gain=gain)
    k, v = (normal(seed, 1, keys, heads, d, dtype=dtype) for seed in (2, 3))
    return Problem(device or emulated.get("b200"), dtype, q, k, v, np.full_like(q, np.nan),
                   np.full((1, heads, queries), np.nan, np.float32), 1, queries, keys,
                   masks.named("test", mask, window, None, False), Terms(d**-0.5), Lengths())


def check(p: Problem, config: Config | None = None, rules: Rules | None = None) -> None:
    """A launch gives the oracle's result, within what is allowed."""
    blackwell.launch(p, config)
    judge(p, rules or Rules())


def judge(p: Problem, rules: Rules) -> None:
    """out and lse are the oracle's, within what is allowed."""
    want, allowed = ref.oracle(p.q, p.k, p.v, rules), ref.bounds(
        p.q, p.k, p.v, dtypes.parse(p.dtype), rules)
    assert scaled_error(p.out.astype(np.float64), want.out, allowed.out) <= 1
    empty = np.isneginf(want.lse)
    assert (np.isneginf(p.lse) == empty).all()
    assert scaled_error(np.where(empty, 0, p.lse), np.where(empty, 0, want.lse), allowed.lse) <= 1
