"""Caches in pages."""

from __future__ import annotations

from typing import Any

from gpukit.errors import ArgumentError
from gpukit.ops import arrays


def layer(blocks: Any, index: int) -> tuple[Any, Any]:
    """One layer's keys and values of a cache, as views.

    Args:
        blocks: [pages, 2, layers, page, KV heads, dim], keys before values.
        index: the layer.

    Returns:
        k and v, [pages, page, KV heads, dim] each.

    Raises:
        ArgumentError: another rank or second axis, or no such layer.
    """
    if getattr(blocks, "ndim", 0) != 6 or blocks.shape[1] != 2:
        raise ArgumentError(f"paged.layer: blocks has shape {getattr(blocks, 'shape', None)}; "
                            "accepted: [pages, 2, layers, page, KV heads, dim]")
    arrays.check_integer("paged.layer", "index", index, 0, blocks.shape[2] - 1)
    return blocks[:, 0, index], blocks[:, 1, index]
