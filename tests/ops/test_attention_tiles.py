"""Which tile of rung 5 a problem gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gpukit.ops.attention import masks, tiles
from gpukit.ops.attention.problem import Problem, Terms
from gpukit.ops.attention.tiles import Tile

PLAIN = Terms(1.0)


def chosen(d: int, queries: int, mask: str = "null", *, keys: int | None = None,
           window: int | None = None, chunk: int | None = None, heads: int = 8,
           terms: Terms = PLAIN) -> Tile:
    return tiles.choose(cast(Problem, SimpleNamespace(
        d=d, dv=d, heads=heads, kv_heads=8, queries=queries, keys=keys or queries, terms=terms,
        mask=masks.named("test", mask, window, chunk, False))))


@pytest.mark.parametrize(("queries", "mask", "wgs"), [
    (512, "null", 4), (2048, "null", 4), (4096, "null", 3), (512, "causal", 4), (4096, "causal", 4),
    (8192, "causal", 3), (100, "null", 3), (384, "causal", 2), (1100, "causal", 2)])
def test_narrow_heads_have_four_warpgroups_on_short_walks(queries: int, mask: str,
                                                          wgs: int) -> None:
    assert chosen(64, queries, mask) == {4: Tile(64, 4, 8)}.get(wgs, Tile(128, wgs, 2))


def test_few_queries_of_many_keys_walk_far() -> None:
    assert chosen(64, 256, "causal", keys=2100).wgs == 4
    assert chosen(64, 256, "causal", keys=9000).wgs == 2


@pytest.mark.parametrize(("d", "few", "many"), [
    (64, Tile(64, 4, 8), Tile(128, 3, 3)), (128, Tile(64, 3, 5), Tile(128, 2, 2)),
    (192, Tile(96, 2, 2), Tile(96, 2, 2))])
def test_windows(d: int, few: Tile, many: Tile) -> None:
    assert chosen(d, 16384, "sliding_causal", window=1024) == few
    assert chosen(d, 16384, "sliding", window=1024) == few
    assert chosen(d, 16384, "chunked_causal", chunk=4096) == few
    assert chosen(d, 16384, "sliding_causal", window=4096) == many


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_wide_heads_have_three_warpgroups_on_long_walks(mask: str) -> None:
    assert chosen(128, 4096, mask) == Tile(128, 2, 2)
    assert chosen(128, 8192, mask) == Tile(80, 3, 4)
    assert chosen(96, 8192, mask) == Tile(80, 3, 4)
    assert chosen(192, 8192, mask).wgs == 2


def test_heads_of_a_tile_leave_no_rows_idle() -> None:
    assert chosen(64, 384, "causal", heads=64) == Tile(64, 4, 8)


def test_arrays_added_to_scores_take_registers() -> None:
    assert chosen(64, 512, terms=Terms(1.0, softcap=9.0)).wgs == 4
    assert chosen(64, 512, terms=Terms(1.0, bias=object())).n == 128
