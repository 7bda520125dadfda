"""Which earlier accesses do not happen before the present one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.check.clocks import MOMENT, WARP_SHIFT, Clocks

_SHIFT, _MOMENT = np.array(WARP_SHIFT), np.array(MOMENT)  # NumPy is quicker with these


def unordered(clocks: Clocks, prior: Any, warps: Any, across_waves: bool) -> Any:
    """Bool array: the stamps of ``prior`` that the ``warps`` (a number, or one each) have not seen.

    None if there are none. ``across_waves``: stamps of earlier waves count too; the warp must have
    heard of their CTA since.
    """
    if not np.count_nonzero(prior):
        return None
    writers = prior >> _SHIFT
    if clocks.first == 0:
        seen = clocks.seen
        known = seen[warps][writers] if isinstance(warps, int) else seen[warps, writers]
        late = (prior & _MOMENT) >= known
    else:
        writers = writers - clocks.first
        recent = writers >= 0
        thresholds = clocks.seen[warps, np.where(recent, writers, 0)]
        late = recent & ((prior & MOMENT) >= thresholds)
        if across_waves:
            late |= _unheard(clocks, prior, warps, ~recent & (prior != 0))
    return late if np.count_nonzero(late) else None


def hidden(clocks: Clocks, prior: Any, warp: int) -> Any:
    """Bool array: the stamps of this wave that the async proxy need not see for ``warp``.

    None if there are none; then they also happen before what ``warp`` does now.
    """
    writers = (prior >> WARP_SHIFT) - clocks.first
    if clocks.first == 0:
        late = (prior & MOMENT) >= clocks.seen_async[warp][writers]
    else:
        recent = writers >= 0
        late = recent & ((prior & MOMENT) >= clocks.seen_async[warp][np.where(recent, writers, 0)])
    return late if np.count_nonzero(late) else None


def _unheard(clocks: Clocks, prior: Any, warps: Any, old: Any) -> Any:
    """Those of the ``old`` stamps whose CTA the warp knows nothing of."""
    if not old.any():
        return old
    known = [clock.past for clock in clocks.of_warp]
    if not any(known):
        return old
    ctas = (prior[old] >> WARP_SHIFT) // clocks.warps_per_cta
    asking = np.broadcast_to(warps, prior.shape)[old]
    result = np.zeros(prior.shape, np.bool_)
    pairs = zip(ctas.tolist(), asking.tolist(), strict=True)
    result[old] = [not known[warp] >> cta & 1 for cta, warp in pairs]
    return result
