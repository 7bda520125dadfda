"""Which tile of `attention.sm90.k5` a problem gets."""

from __future__ import annotations

from typing import NamedTuple

from gpukit.kernels.attention import ROWS

_SHORT = 1536  # queries
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


def choose(d: int, dv: int, policy: str, queries: int) -> Tile:
    """The tile for heads of d (q, k) and dv (v) columns: as many keys as registers hold beside the
    sums; a third warpgroup where heads are narrow and its rows are not mostly masked ones; with a
    window a third stage then, for some of the three are a block ahead of others."""
    widest = max(d, dv)
    if widest <= 64:
        return Tile(128, 3 if policy == "full" or queries > _SHORT else 2,
                    3 if policy == "window" else 2)
    if widest <= 128:
        return Tile(128, 2, 2)
    if dv <= 128 and d <= 192:
        return Tile(128 if policy != "window" else 96, 2, 2)
    if widest <= 192:
        return Tile(112 if policy != "window" else 96, 2, 2)
    return Tile(80 if policy != "window" else 64, 2, 2)


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
