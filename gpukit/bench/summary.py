"""How a kernel stands against each peer over all problems of a sweep, in three numbers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpukit.bench.model import TIMED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpukit.bench.rows import Row

#: Below this ratio a row is clearly lost: two runs of one program differ by less.
LOST = 0.95
#: Header to meaning of what the summary's table says.
LEGEND = {
    "geomean": "geometric mean, over the rows, of the peer's time over ours; > 1: ours is faster",
    f"below {LOST}": "rows whose ratio is below that: ours is clearly slower than the peer",
    "worst": "the smallest ratio and the problem it belongs to",
}
HEADER = ("against", "kernel", "rows", *LEGEND)

#: What sets standings apart besides the peer: the kernel, and how it was timed.
_STATES = ("device", "l2", "method", "load")


@dataclass(frozen=True)
class Standing:
    """One kernel, timed in one way, against one peer over ``rows`` problems.

    Ratios are the peer's time over ours: above 1, ours is faster. ``below`` counts those below
    `LOST`; ``problem`` is the one with the ``worst`` ratio.
    """

    peer: str
    kernel: str
    device: str
    l2: str
    method: str
    load: str
    rows: int
    geomean: float
    below: int
    worst: float
    problem: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dataclasses.asdict(self)


def standings(rows: Iterable[Row]) -> list[Standing]:
    """Return a standing for each kernel and peer that met, in the order of the peers."""
    met: dict[str, dict[tuple[str, ...], list[tuple[float, Row]]]] = {}
    for row in rows:
        for peer, entry in row.peers.items():
            ratio = entry.get("ratio")
            if ratio and row.status in TIMED_STATUSES:
                who = (row.kernel, *(getattr(row, name) for name in _STATES))
                met.setdefault(peer, {}).setdefault(who, []).append((ratio, row))
    return [
        _standing(peer, who, meetings)
        for peer, group in met.items()
        for who, meetings in group.items()
    ]


def _standing(
    peer: str, who: tuple[str, ...], meetings: Sequence[tuple[float, Row]]
) -> Standing:
    ratios = [ratio for ratio, _ in meetings]
    worst, row = min(meetings, key=lambda meeting: meeting[0])
    geomean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    below = sum(ratio < LOST for ratio in ratios)
    kernel, device, l2, method, load = who
    return Standing(
        peer, kernel, device, l2, method, load, len(ratios), geomean, below, worst, problem(row)
    )


def problem(row: Row) -> str:
    """Return the problem of a row in short: ``64x3072x3072 bf16``."""
    return f"{'x'.join(map(str, row.shape.values()))} {row.dtype}"


def summary_cells(rows: Iterable[Row]) -> list[list[str]]:
    """Return the lines of the summary under `HEADER`; none where no kernel met a peer twice."""
    found = standings(rows)
    if all(one.rows < 2 for one in found):
        return []
    states = [name for name in _STATES if len({getattr(one, name) for one in found}) > 1]
    return [_cells(one, states) for one in found]


def _cells(one: Standing, states: Sequence[str]) -> list[str]:
    kernel = " ".join([one.kernel, *(getattr(one, name) for name in states)])
    worst = f"{one.worst:.3f} at {one.problem}"
    return [one.peer, kernel, str(one.rows), f"{one.geomean:.3f}", str(one.below), worst]
