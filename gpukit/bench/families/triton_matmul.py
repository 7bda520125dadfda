# mypy: ignore-errors
# Triton's own language: its compiler reads the source of what it decorates.
"""A persistent matmul in Triton: each CTA takes tile after tile, TMA brings the operands.

Importing this needs Triton; `matmul_peer_triton` does so where it is wanted.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

#: Tiles of this many tile rows are visited together, so that their operands meet in the L2.
_GROUP = 8


@triton.jit
def _place(tile, tiles_m, tiles_n, group: tl.constexpr):
    """Tile row and column: down a group of rows, then on to the next column."""
    per_group = group * tiles_n
    first = tile // per_group * group
    height = min(tiles_m - first, group)
    within = tile % per_group
    return first + within % height, within // height


@triton.jit
def _matmul(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr,
            b_is_nk: tl.constexpr, group: tl.constexpr, ctas: tl.constexpr):
    """C = A B; edges are TMA's: it reads zeros and writes nothing outside."""
    tiles_m = tl.cdiv(m, tile_m)
    tiles_n = tl.cdiv(n, tile_n)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, ctas, flatten=True):
        row, column = _place(tile, tiles_m, tiles_n, group)
        sums = tl.zeros((tile_m, tile_n), tl.float32)
        for step in range(tl.cdiv(k, tile_k)):
            x = a.load([row * tile_m, step * tile_k])
            if b_is_nk:
                y = b.load([column * tile_n, step * tile_k]).T
            else:
                y = b.load([step * tile_k, column * tile_n])
            sums = tl.dot(x, y, sums)
        c.store([row * tile_m, column * tile_n], sums.to(c.dtype))


def bind(a, b, c, config, *, b_is_nk, ctas):
    """The launch for these torch tensors, as a call without arguments."""
    m, n, k = c.shape[0], c.shape[1], a.shape[1]
    b_tile = [config.tile_n, config.tile_k] if b_is_nk else [config.tile_k, config.tile_n]
    descriptors = (
        TensorDescriptor.from_tensor(a, [config.tile_m, config.tile_k]),
        TensorDescriptor.from_tensor(b, b_tile),
        TensorDescriptor.from_tensor(c, [config.tile_m, config.tile_n]),
    )
    tiles = triton.cdiv(m, config.tile_m) * triton.cdiv(n, config.tile_n)
    launch = _matmul[(min(ctas, tiles),)]
    constants = {**config.tiles, "b_is_nk": b_is_nk, "group": _GROUP, "ctas": ctas}

    def call():
        launch(*descriptors, m, n, k, **constants, num_warps=config.num_warps,
               num_stages=config.num_stages)

    return call
