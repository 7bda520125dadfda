"""Two results of the same cases: what became faster, slower, or cannot be told.

The verdict rests on intervals of the medians, taken from every sample, and on a noise threshold
below which a change is no change, because two runs of one binary differ by more than the samples
within a run show. A change counts only when its whole interval lies beyond the threshold; when
the interval straddles it, the answer is AMBIGUOUS, not a guess. Rows of emulated devices have no
time; their counters are exact, and so is the comparison of those.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpukit.bench.model import TIMED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpukit.bench.model import Row

FASTER, SLOWER, SAME, AMBIGUOUS = "FASTER", "SLOWER", "SAME", "AMBIGUOUS"
#: The case passed and now does not, or lost its speed: a wrong result, an error, a timeout.
BROKEN = "BROKEN"
#: The case passed and is not in the new result.
MISSING = "MISSING"
#: The case passes in both, without a time, and its counters differ.
CHANGED = "CHANGED"
#: The case failed or could not run before; now it passes, or still does not.
FIXED, UNMEASURED = "FIXED", "UNMEASURED"

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Change:
    """One case of the old result; ``new`` is None when the new one lacks it.

    ``ratio`` is the new median time over the old one, with its interval ``low`` to ``high``;
    None when either has no speed.
    """

    key: str
    old: Row
    new: Row | None
    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    def regressed(self, fail_over: float) -> bool:
        """Whether this fails a gate that allows ``fail_over`` (0.05: 5 % slower)."""
        if self.verdict in (BROKEN, MISSING):
            return True
        return self.verdict == SLOWER and self.ratio is not None and self.ratio > 1 + fail_over


@dataclass(frozen=True)
class Comparison:
    """All cases of two results.

    ``only_new`` holds the keys that the old result lacks, ``only_old`` those that the new one lacks
    and that had not passed; the others are `MISSING` changes.
    """

    changes: tuple[Change, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether no case passed in one result and exists in the other: nothing was compared."""
        return all(change.verdict in (MISSING, UNMEASURED) for change in self.changes)

    def failed(self, fail_over: float = 0.0) -> bool:
        """Whether a gate of this width fails: on a regression, and when nothing was compared."""
        return self.empty or bool(self.regressions(fail_over))

    def regressions(self, fail_over: float = 0.0) -> list[Change]:
        """Return the changes that fail a gate of this width."""
        return [change for change in self.changes if change.regressed(fail_over)]


def compare(
    old: Iterable[Row], new: Iterable[Row], *, noise: float = 0.01, across_devices: bool = False
) -> Comparison:
    """Compare rows that have the same key; of several with one key the last counts.

    ``noise`` is the share (0.01: 1 %) by which medians differ between runs for no reason.
    ``across_devices`` matches cases whatever device they ran on.
    """
    before, after = _by_key(old, across_devices), _by_key(new, across_devices)
    return Comparison(
        tuple(
            _change(key, row, after.get(key), noise)
            for key, row in before.items()
            if key in after or _passed(row)
        ),
        tuple(key for key, row in before.items() if key not in after and not _passed(row)),
        tuple(key for key in after if key not in before),
    )


def _by_key(rows: Iterable[Row], across_devices: bool) -> dict[str, Row]:
    return {row.case_key if across_devices else row.key: row for row in rows}


def _change(key: str, old: Row, new: Row | None, noise: float) -> Change:
    if new is None or not (_timed(old) and _timed(new)):
        return Change(key, old, new, _untimed_verdict(old, new))
    low, high = ratio_interval(old, new)
    assert old.time_us is not None and new.time_us is not None
    ratio = new.time_us / old.time_us
    return Change(key, old, new, verdict(low, high, noise), ratio, low, high)


def _untimed_verdict(old: Row, new: Row | None) -> str:
    """Judge a case by everything but its speed."""
    if new is None:
        return MISSING
    if not _passed(old):
        return FIXED if _passed(new) else UNMEASURED
    if not _passed(new) or _timed(old):
        return BROKEN
    return SAME if old.counters == new.counters else CHANGED


def _passed(row: Row) -> bool:
    return row.status in TIMED_STATUSES


def _timed(row: Row) -> bool:
    return _passed(row) and bool(row.time_us)


def ratio_interval(old: Row, new: Row) -> tuple[float, float]:
    """Return where the ratio of the true medians, new over old, lies; (0, inf) when unknown."""
    old_low, old_high = _interval(old)
    new_low, new_high = _interval(new)
    low = max(new_low, 0.0) / old_high
    return low, new_high / old_low if old_low > 0 else math.inf


def _interval(row: Row) -> tuple[float, float]:
    from gpukit.measure import median_interval

    if not row.samples_us:
        return -math.inf, math.inf
    return median_interval(row.samples_us, CONFIDENCE)


def verdict(low: float, high: float, noise: float) -> str:
    """Judge the interval of a time ratio: all of it must lie on one side of the threshold."""
    if high < 1 - noise:
        return FASTER
    if low > 1 + noise:
        return SLOWER
    return SAME if low >= 1 - noise and high <= 1 + noise else AMBIGUOUS


def environment_changes(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Return what differs between the last environment of each result: name to (old, new)."""
    from gpukit.measure.provenance import NOT_IDENTIFYING

    before, after = _last(old), _last(new)
    return {
        name: (before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name) and name not in NOT_IDENTIFYING
    }


def _last(environments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return _flat(list(environments.values())[-1]) if environments else {}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
