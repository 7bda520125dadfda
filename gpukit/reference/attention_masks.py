"""Which keys a query sees, by the name of the mask.

Query i of Sq stands at position p = i + Sk - Sq among Sk keys ("bottom right": the last query at
the last key), or at p = i ("top left"). Key j is seen where

- null: always
- causal: j <= p
- chunked_causal: j <= p and both are in one chunk, j // chunk == p // chunk
- sliding_causal: p - window < j <= p, window keys with the query's own
- sliding: |p - j| < window, window - 1 keys to either side of the query's own
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MASKS = ("null", "causal", "chunked_causal", "sliding_causal", "sliding")


def positions(queries: int, keys: int, top_left: bool = False) -> NDArray[np.int64]:
    """Where each query stands among the keys, [Sq]."""
    return np.arange(queries) + (0 if top_left else keys - queries)


def visible(mask: str, queries: int, keys: int, *, window: int = 0, chunk: int = 0,
            top_left: bool = False) -> NDArray[np.bool_]:
    """The seen pairs, [Sq, Sk].

    Args:
        window: of the sliding masks, at least 1.
        chunk: of chunked_causal, at least 1.
    """
    if mask not in MASKS:
        raise ValueError(f"mask {mask!r} is unknown; known: {', '.join(MASKS)}")
    size = {"chunked_causal": chunk, "sliding_causal": window, "sliding": window}.get(mask, 1)
    if size < 1:
        raise ValueError(f"mask {mask!r} needs a window or chunk of at least 1")
    p = positions(queries, keys, top_left)[:, None]
    j = np.arange(keys)[None, :]
    seen = np.ones((queries, keys), bool) if mask in ("null", "sliding") else j <= p
    if mask.startswith("sliding"):
        seen = seen & (np.abs(p - j) < window)
    if mask == "chunked_causal":
        seen = seen & (j // chunk == p // chunk)
    return seen
