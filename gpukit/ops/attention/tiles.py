"""Which tile of `attention.sm90.k5` a problem gets."""

from __future__ import annotations

from typing import NamedTuple

from gpukit.kernels.attention import ADDITIVE, RELATIVE, ROWS
from gpukit.ops.attention.problem import Problem

_SHORT = 1536  # queries
_SHORT_WALK = 2048  # keys that a query sees
_FAR = 4096  # keys
_L2_SHARE = 32 << 20  # bytes of keys and values that are kept in use at a time


class Tile(NamedTuple):
    """n: keys per step. wgs: consumer warpgroups. stages: blocks in flight."""

    n: int
    wgs: int
    stages: int

    @property
    def rows(self) -> int:
        """Rows of queries."""
        return self.wgs * ROWS


def choose(problem: Problem) -> Tile:
    """The tile of a problem. A warpgroup more, with fewer keys a step for its registers' sake, has
    something to do at the ends of tiles, which count where walks are short; and on the longest,
    more rows share what is read of wide heads. Not if it leaves more rows idle, nor if scores need
    arrays added, for lack of registers."""
    p, wide = problem, long(problem)
    more = _with_more_warpgroups(p)
    if more is None or p.terms.bits & (ADDITIVE | RELATIVE):
        return wide
    share, two = p.heads // p.kv_heads, Tile(wide.n, 2, wide.stages)
    few = _rows(p.queries, share, more.rows) <= _rows(p.queries, share, two.rows) * 16 / 15
    return more if few else wide


def _with_more_warpgroups(problem: Problem) -> Tile | None:
    p, widest, short = problem, max(problem.d, problem.dv), seen(problem) <= _SHORT_WALK
    if widest <= 64:
        return Tile(64, 4, 8) if short else None
    if widest > 128:
        return None
    if p.mask.policy == "window":
        return Tile(64, 3, 5) if short else None
    return Tile(80, 3, 4) if p.keys > _FAR else None


def long(problem: Problem) -> Tile:
    """The tile for walks along many keys: as many keys as registers hold beside the sums; a third
    warpgroup where heads are narrow and its rows are not mostly masked ones; with a window a third
    stage then, for some of the three are a block ahead of others."""
    d, dv, policy = problem.d, problem.dv, problem.mask.policy
    widest = max(d, dv)
    if widest <= 64:
        return Tile(128, 3 if policy == "full" or problem.queries > _SHORT else 2,
                    3 if policy == "window" else 2)
    if widest <= 128:
        return Tile(128, 2, 2)
    if dv <= 128 and d <= 192:
        return Tile(128 if policy != "window" else 96, 2, 2)
    if widest <= 192:
        return Tile(112 if policy != "window" else 96, 2, 2)
    return Tile(80 if policy != "window" else 64, 2, 2)


def seen(problem: Problem) -> int:
    """Keys that a query sees, about."""
    p, mask = problem, problem.mask
    before = p.keys - (min(p.queries, p.keys) // 2 if mask.policy != "full" else 0)
    return min(before, mask.chunk // 2 or mask.left + mask.right + 1)


def section(keys: int, columns: int, itemsize: int, heads: int) -> int:
    """Heads whose keys and values (rows of d + dv columns) L2 holds together."""
    return min(max(_L2_SHARE // max(keys * columns * itemsize, 1), 1), heads)


def packing(queries: int, heads_per_kv: int, rows: int) -> int:
    """How many heads that read the same keys share a tile: more than one where that leaves clearly
    fewer rows of tiles idle."""
    best, least = 1, _idle(queries, rows) * 0.9
    for count in (2, 4, 8, 16, 32, 64):
        if heads_per_kv % count == 0 and _idle(queries * count, rows) / count < least:
            best, least = count, _idle(queries * count, rows) / count * 0.9
    return best


def _idle(queries: int, rows: int) -> float:
    """Rows of tiles that are started."""
    return -(-queries // rows) * rows


def _rows(queries: int, heads_per_kv: int, rows: int) -> float:
    """Rows of tiles that are started for a head."""
    group = packing(queries, heads_per_kv, rows)
    return _idle(queries * group, rows) / group
