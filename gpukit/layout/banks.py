"""Banks of shared memory, and what an access of a warp costs.

32 banks of 4 bytes answer once a clock each, so 128 bytes a clock at best. Lanes of one pass that
want different 4-byte words of one bank take turns; lanes that want the same word share it. An
access of 8 bytes per lane is served half a warp at a time, one of 16 bytes a quarter at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.layout.algebra import Array

BANKS, WORD = 32, 4


def bank(address: Any) -> Any:
    """The bank of a byte."""
    return address // WORD % BANKS


@dataclass(frozen=True)
class Access:
    """One access of some lanes of a warp.

    ``passes`` [lane] says with which lanes a lane is served, ``ways`` [lane] how many turns the
    busiest of its own banks takes, ``wavefronts`` what all of it takes in clocks and ``ideal`` the
    number without conflicts.
    """

    passes: Array
    ways: Array
    wavefronts: int
    ideal: int


def access(addresses: Any, width: int) -> Access:
    """What an access of ``width`` bytes (4, 8, 16) at each lane's address costs."""
    at = np.asarray(addresses, np.int64)
    together = BANKS * WORD // max(width, WORD)
    passes = np.arange(len(at)) // together
    ways = np.concatenate([_ways(at[passes == p], width) for p in range(int(passes[-1]) + 1)])
    cost = sum(int(ways[passes == p].max()) for p in range(int(passes[-1]) + 1))
    return Access(passes, ways, cost, int(passes[-1]) + 1)


def _ways(at: Array, width: int) -> Array:
    """Per lane of one pass: different words that the busiest of its banks is asked for."""
    words = at[:, None] // WORD + np.arange(max(width // WORD, 1))
    distinct = np.unique(words)
    asked = np.bincount(distinct % BANKS, minlength=BANKS)
    found: Array = asked[words % BANKS].max(axis=1)
    return found
