"""Error bounds and how to compare against them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """|got - want| <= atol + rtol |want|; `atol` may be one number per element."""

    atol: float | Array
    rtol: float

    def __str__(self) -> str:
        atol = float(np.max(self.atol, initial=0.0))
        return "exact" if atol == self.rtol == 0 else f"atol={atol:.3g} rtol={self.rtol:.3g}"


def scaled_error(got: Array, want: Array, bound: Bound) -> float:
    """max |got - want| / (atol + rtol |want|): at most 1 when the bound holds.

    NaN must meet NaN and each infinity its own kind, else the error is infinite. An overflow to
    infinity counts as right where `want` rounds to infinity: callers round `want` first.
    """
    if got.shape != want.shape:
        raise ValueError(f"got has shape {got.shape}, want {want.shape}")
    special = ~np.isfinite(want) | ~np.isfinite(got)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if not np.all(same[special]):
        return float("inf")
    exact = special | same
    allowed = bound.atol + bound.rtol * np.abs(np.where(exact, 0.0, want))
    error = np.abs(np.where(exact, 0.0, got) - np.where(exact, 0.0, want))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, error / allowed)
    return float(np.max(ratio, initial=0.0))
