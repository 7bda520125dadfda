"""The configurations worth considering for a kind of problem, whatever its sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from gpukit.devices.protocol import Properties
from gpukit.kernels.matmul_sm100_library import BM
from gpukit.ops.matmul import limits, sm100_limits
from gpukit.ops.matmul.configs import Config, Gemm, Narrow, Sgemm, Tcgen05
from gpukit.ops.matmul.problem import Problem

_CLUSTERS = ((1, 1), (2, 1), (1, 2))  # wider ones never won a sweep on an H200
_ANY_SIZE = 1 << 20
_SWAPPED_BELOW = 128  # rows of C: with more, tiles of C itself fit as well
_NARROW_BELOW = 257
_SWAPPED_UP_TO = 256  # rows of C on Blackwell, whose transposed tiles are as wide
_FEW_CTAS = 4  # per SM: more of them run one after the other


def candidates(problem: Problem, properties: Properties) -> tuple[Config, ...]:
    """All that fit; some may still be refused for the sizes of a problem."""
    kind = replace(problem, m=_ANY_SIZE, n=_ANY_SIZE, k=_ANY_SIZE, batch=1, act="none")
    found: tuple[Config, ...] = _gemms(kind, properties, False)
    if problem.m < _SWAPPED_BELOW:
        found += _gemms(kind, properties, True)
    if problem.m < _NARROW_BELOW:
        found += _narrows(kind, properties, _padded(problem.m))
    return found


def sgemms(problem: Problem, properties: Properties) -> tuple[Sgemm, ...]:
    """Those for float32 that fit, on any GPU; slices of K only where tiles leave SMs idle."""
    found = (Sgemm(bm, bn, split=split) for bm in (32, 64, 128) for bn in (64, 128)
             for split in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    few = _FEW_CTAS * properties.sm_count
    return tuple(c for c in found if not limits.refusal(c, problem, properties)
                 and (c.split == 1 or limits.sgemm_ctas(c, problem) <= few))


def tcgen05s(problem: Problem, properties: Properties) -> tuple[Tcgen05, ...]:
    """Those for Blackwell's tensor cores that fit, no wider than C is; the transposed product where
    C has few rows, or rows that only it can write. Slices of K where tiles leave SMs idle."""
    kind = replace(problem, m=_ANY_SIZE, n=_ANY_SIZE, k=_ANY_SIZE, batch=1, act="none")
    found: list[Tcgen05] = []
    for swap in (False, True):
        if swap and problem.tma_c and problem.m > _SWAPPED_UP_TO:
            continue
        columns = problem.m if swap else problem.n
        found += (c for c in _tcgen05s(kind, properties, swap, 1) if c.bn - 16 < columns)
        for tile in _tcgen05s(kind, properties, swap, 2):
            if tile.bn - 16 < columns:
                found += _slices(tile, problem, properties)
    return tuple(found)


def _slices(tile: Tcgen05, problem: Problem, properties: Properties) -> Iterator[Tcgen05]:
    """More and more slices of K, until every SM has one."""
    steps = sm100_limits.steps(problem)
    ctas = sm100_limits.cluster_tiles(replace(tile, split=1), problem) * tile.cluster
    for split in (2, 3, 4, 6, 8, 12, 16):
        if split <= steps and ctas * (split - 1) < properties.sm_count:
            yield replace(tile, split=split)


@lru_cache(maxsize=256)
def _tcgen05s(kind: Problem, properties: Properties, swap: bool, split: int) -> tuple[Tcgen05, ...]:
    tiles = (Tcgen05(bn, ctas, cluster, swap=swap, split=split) for bn in range(16, 257, 16)
             for ctas, cluster in ((2, 2), (2, 4), (1, 1), (1, 2)))
    ordered = (replace(tile, group=_group(tile, properties)) for tile in tiles)
    deep = (limits.settled(tile, kind, properties) for tile in ordered)
    return tuple(c for c in deep if isinstance(c, Tcgen05)
                 and not limits.refusal(c, kind, properties))


def _group(tile: Tcgen05, properties: Properties) -> int:
    """Rows of tiles walked together: the fewest rows of A and of B^T in a wave of all SMs."""
    wave, rows = properties.sm_count // tile.cluster, BM * tile.cluster
    return min((1, 2, 4, 8, 16), key=lambda group: group * rows + wave / group * tile.bn)


def _padded(m: int) -> int:
    """Rows of C in a tile that takes them all, or half of them: what the tensor cores have."""
    return next((bn for bn in (8, 16, 24, 32, 48, 64, 96) if bn >= m), 128)


@lru_cache(maxsize=256)
def _gemms(kind: Problem, properties: Properties, swap: bool) -> tuple[Gemm, ...]:
    tiles = (*_tiles(), *_short_tiles()) if swap else _tiles()
    whole = [replace(tile, swap=swap, cm=cm, cn=cn) for tile in tiles for cm, cn in _CLUSTERS]
    split = [Gemm(128, bn, split=2, swap=swap) for bn in range(32, 257, 16)]
    deep = (limits.settled(config, kind, properties) for config in (*whole, *split))
    return tuple(c for c in deep if isinstance(c, Gemm)
                 and not limits.refusal(c, kind, properties))


def _tiles() -> Iterator[Gemm]:
    for bm, bns in ((128, range(16, 257, 16)), (256, range(96, 209, 16))):
        yield from (Gemm(bm, bn) for bn in bns)
    for bm, bns in ((64, range(128, 513, 32)), (128, range(192, 417, 32)),
                    (192, range(128, 257, 32))):
        yield from (Gemm(bm, bn, share="columns") for bn in bns)
    for bm, bns in ((64, range(16, 257, 16)), (128, range(16, 209, 16))):
        yield from (Gemm(bm, bn, share="pingpong") for bn in bns)


def _short_tiles() -> Iterator[Gemm]:
    """For few rows of C, which are the columns of swapped tiles."""
    for bn in (8, 24, 40, 56):
        yield from (Gemm(128, bn), Gemm(64, bn, share="pingpong"), Gemm(128, bn, share="pingpong"))


@lru_cache(maxsize=256)
def _narrows(kind: Problem, properties: Properties, bn: int) -> tuple[Narrow, ...]:
    found = (Narrow(rows, bn, stages, split)
             for rows in (16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128)
             for stages in (4, 6, 8, 12, 16) for split in (1, 2))  # 4 lost every sweep
    few = replace(kind, m=bn)
    return tuple(c for c in found if not limits.refusal(c, few, properties))
