"""How a decode call is cut up: the shape of a CTA, and how many of them share a sequence's keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpukit.kernels.attention_decode import (
    CLUSTERS,
    D6,
    D7,
    D8,
    FORMS,
    STAGES,
    STEP,
    TILE,
    WARPGROUP_ROWS,
)
from gpukit.kernels.spec import KernelSpec, Value

_SM_SHARED = 227 << 10  # bytes that the CTAs of an SM share
_CTA_RESERVED = 1 << 10  # bytes the driver keeps of them for every CTA
# Queries on the MMA's M; keys there; keys there by wgmma; queries by wgmma.
KINDS = ("plain", "transposed", "warpgroup", "upright")
_SUMS = 32 * 128  # f32 sums of a CTA of the transposed kernel, beyond which registers spill
_FILLED = 0.75  # of the SMs: then the others are not missed
_LONG = 16  # steps of an SM from which an even cut pays
_WAVE, _MOST_WAVES = 2, 2  # CTAs per SM of a grid in waves
_MANY = 3  # waves, in which CTAs end at different times: then nobody waits for the last one
_NEARLY = 0.9
_WORTH = 4  # steps of a part
_MOST_TILES = 1 << 30  # that kernels can count
_MOST_BLOCKS_Z = 65535  # of any grid, in which a grid of parts has its sequences
_DEEPEST, _DEEPEST_NARROW = 3, 4  # tiles of a ring: more gain nothing
_WIDE = 8  # warps of a CTA that has an SM to itself, of 8-bit caches
_CLUSTER = max(CLUSTERS)  # the largest that every GPU takes


class Problem(NamedTuple):
    """What the choice depends on.

    Attributes:
        keys: the most keys a sequence can have.
        page: rows of a page, 0 without pages.
        sms: of the GPU.
        wgmma: whether the GPU has it.
        extra: "bias" or "relative" logits, or "none".
        queries: their type if the cache is of e4m3; otherwise empty, and it is dtype.
        uneven: whether sequences have lengths of their own.
    """

    dtype: str
    sequences: int
    tokens: int
    heads: int
    kv_heads: int
    dim: int
    keys: int
    page: int
    sms: int
    wgmma: bool = True
    extra: str = "none"
    queries: str = ""
    uneven: bool = False

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.heads // self.kv_heads

    @property
    def rows(self) -> int:
        """Query rows that read the same keys."""
        return self.group * self.tokens

    @property
    def pages(self) -> str:
        """The kernel's way to find a row of the cache."""
        return "none" if not self.page else "whole" if self.page % TILE == 0 else "any"


@dataclass(frozen=True)
class Config:
    """A way to cut a decode call up.

    Attributes:
        form: of `attention.decode.d6`; or "warpgroup_8" to "warpgroup_64", `attention.decode.d7`
            with that many query rows, or "upright_64", its other form; or "narrow_8" or
            "narrow_16", `attention.decode.d8`.
        warps, stages, cluster, blocks: their tunables; d7 has 4 warps.
        parts: clusters that a KV head's keys are split over; of an even cut, gangs: CTAs for each
            KV head.
        cut: "grid", every KV head's keys in as many parts, or "even", as many keys for every gang.
    """

    form: str
    warps: int
    stages: int
    cluster: int
    blocks: int
    parts: int
    cut: str = "grid"

    @property
    def spec(self) -> KernelSpec:
        """The kernel."""
        return D6 if self.form in FORMS else D8 if self.form.startswith("narrow") else D7

    @property
    def rows(self) -> int:
        """Query rows of a CTA."""
        return 16 if self.form == "plain" else int(self.form.rpartition("_")[2])

    def tunables(self, p: Problem) -> dict[str, Value]:
        """Of the kernel."""
        own: dict[str, Value] = {"form": self.form, "warps": self.warps}
        if self.spec is D7:
            own = {"rows": self.rows,
                   "form": "upright" if self.form.startswith("upright") else "transposed"}
        if self.spec is D8:
            own = {"rows": self.rows, "warps": self.warps, "queries": p.queries}
        return {"dtype": p.dtype, "dim": p.dim, "stages": self.stages, "cluster": self.cluster,
                "pages": p.pages, "extra": p.extra, "cut": self.cut, "blocks": self.blocks, **own}

    def units(self, p: Problem) -> int:
        """KV heads times blocks of query rows of one sequence."""
        return p.kv_heads * -(-p.rows // self.rows)

    def grid(self, p: Problem) -> tuple[int, int, int]:
        """Of CTAs."""
        if self.cut == "even":
            return self.units(p), self.parts, 1
        return self.units(p), self.parts * self.cluster, p.sequences

    def states(self, p: Problem) -> int:
        """Items of four dims in the workspace."""
        each = 2 if self.cut == "even" else p.sequences
        return each * self.units(p) * self.parts * self.rows * p.dim // 4

    def counters(self, p: Problem) -> int:
        """Of parts that have arrived."""
        each = self.parts if self.cut == "even" else p.sequences * self.cluster
        return each * self.units(p)


def choose(p: Problem, kind: str | None = None, cut: str | None = None) -> Config:
    """The cut for a problem.

    Args:
        kind: one of `KINDS`; the GPU's best by default.
        cut: "grid" or "even"; the better one by default.
    """
    shape = Config(_form(p, kind or _kind(p)), 4, 1, 1, 1, 1)
    return _even(p, shape) if (cut or _better(p, shape)) == "even" else _grid(p, shape)


def _better(p: Problem, shape: Config) -> str:
    """An even cut where no grid is large enough, and where SMs have work for long, unless a grid
    of equal parts gives all of them as much, or all its CTAs have room at once (memory then serves
    them alike), or they are many and gangs would have parts of sequences to put together."""
    if p.sequences > _MOST_BLOCKS_Z:
        return "even"
    steps = _units(p, shape) * -(-p.keys // _step(shape))
    tiles = p.sequences * (-(-p.keys // TILE) + 1)
    short = steps < _LONG * p.sms or _in_cluster(p, shape)
    if short or tiles >= _MOST_TILES or shape.units(p) > p.sms // 2:
        return "grid"
    if p.uneven or shape.spec is D6:
        return "even"
    if _fill(p, shape) >= _NEARLY or _at_once(p, shape):
        return "grid"
    many = shape.spec is D7 and _units(p, shape) >= _MANY * _WAVE * p.sms
    room = _resident(replace(shape, stages=_DEEPEST), p) >= _WAVE
    return "grid" if many and room and p.sequences % _even(p, shape).parts else "even"


def _at_once(p: Problem, shape: Config) -> int:
    """So many CTAs of a cluster for every unit that each SM has one, and none more than two; 0 if
    that cannot be, or if one CTA per SM would not keep up."""
    units = _units(p, shape)
    fitting = [n for n in CLUSTERS if p.sms <= n * units <= 2 * p.sms]
    if not fitting or _at_a_time(p, shape) > 1 or fitting[0] * _step(shape) > p.keys:
        return 0
    one = replace(shape, cluster=fitting[0], stages=2)
    return fitting[0] if _resident(one, p) >= 2 else 0


def _fill(p: Problem, shape: Config) -> float:
    """The share of places for CTAs that a grid of equal parts uses, in whole waves."""
    units, places = _units(p, shape), _at_a_time(p, shape) * p.sms
    if units <= places:
        return units * (places // units) / places
    waves = units / (_WAVE * p.sms)
    return waves / math.ceil(waves) if waves <= _MOST_WAVES else 0.0


def _even(p: Problem, shape: Config) -> Config:
    """As many gangs of CTAs, one for each unit, as have room on the GPU at a time."""
    even = replace(shape, cut="even", stages=2)
    resident = max(1, min(max(2, _at_a_time(p, shape)), _resident(even, p)))
    gangs = max(1, resident * p.sms // max(1, shape.units(p)))
    deepest = _deepest(p, resident)
    return replace(even, parts=_fitting(gangs, p.sequences), blocks=3 if resident == 3 else 1,
                   stages=_stages(even, p, deepest, resident))


def _fitting(gangs: int, sequences: int) -> int:
    """Nearly as many gangs such that, of equal lengths, all have whole sequences or equal parts of
    one; all gangs if there is no such number."""
    candidates = [n for n in range(1, gangs + 1)
                  if sequences and (n % sequences == 0 or sequences % n == 0)]
    best = max(candidates, default=gangs)
    return best if best >= _NEARLY * gangs else gangs


def _at_a_time(p: Problem, shape: Config) -> int:
    """CTAs per SM: one if what it does with a step takes no longer than the memory needs for it;
    more to hide it, and the look-up of single rows."""
    if shape.spec is D6 or p.dim < 96 or p.uneven:
        return 2
    return 1 if shape.rows <= 16 else 2


def _grid(p: Problem, shape: Config) -> Config:
    """As many splits as give every SM a CTA, or as many as it is to have at a time.

    On an H200, 32 query heads to 8 of keys, dim 128: one CTA per SM is faster than two at one
    sequence of 8192 keys; splits that meet in a cluster, through shared memory, are faster than
    those that meet in global memory at one sequence of 1024 keys, but clusters of CTAs with larger
    rings start late.
    """
    if shape.spec is D8 and _at_a_time(p, shape) == 1 and _units(p, shape) > p.sms // 4:
        shape = replace(shape, warps=_WIDE)
    units, step = _units(p, shape), _step(shape)
    useful = max(1, p.keys // step)  # splits that give every warp a tile
    cluster, parts = 1, max(1, min(useful, _splits(units, p.sms)))
    if _in_cluster(p, shape):
        cluster, parts = max(n for n in CLUSTERS if n <= useful), 1
    elif _fill(p, shape) < _NEARLY and _at_once(p, shape):
        cluster, parts = _at_once(p, shape), 1
    elif _at_a_time(p, shape) > 1 and units > p.sms // 2:  # one alone would not keep up
        parts = max(1, min(useful // _WORTH, 2 * p.sms // units))
    steps = -(-p.keys // (cluster * parts * step))
    resident = min(2, -(-units * cluster * parts // p.sms))
    alike = parts > 1 or (units <= 2 * p.sms and _fill(p, shape) < _NEARLY)
    deepest = _deepest(p, resident if alike else 1)
    return replace(shape, cluster=cluster, parts=parts,
                   stages=_stages(shape, p, min(steps, deepest), resident))


def _units(p: Problem, shape: Config) -> int:
    """Of all sequences."""
    return max(1, p.sequences * shape.units(p))


def _step(shape: Config) -> int:
    """Keys that a CTA's warps take at a time."""
    return STEP if shape.spec is D7 else TILE * shape.warps


def _in_cluster(p: Problem, shape: Config) -> bool:
    """A cluster's CTAs are enough for the keys, and the SMs for a cluster per unit."""
    return _units(p, shape) * _CLUSTER <= p.sms and p.keys // _step(shape) <= 2 * _CLUSTER


def _kind(p: Problem) -> str:
    if p.queries:
        return "narrow"
    return "warpgroup" if p.wgmma else "transposed"


def _splits(units: int, sms: int) -> int:
    """So many that they fill the SMs once; twice where once would leave many without."""
    once = sms // units
    return once if once * units >= _FILLED * sms else 2 * sms // units


def _form(p: Problem, kind: str) -> str:
    """The kind with as many query rows as the problem has, as far as it goes."""
    if kind == "plain":
        return kind
    sizes = [8, 16] if kind != "upright" else [64]
    if kind == "warpgroup":
        sizes = [n for n in WARPGROUP_ROWS if n * p.dim <= _SUMS]
    return f"{kind}_{next((n for n in sizes if p.rows <= n), sizes[-1])}"


def _deepest(p: Problem, resident: int) -> int:
    """Tiles of a ring: the CTAs of an SM shall not ask for so much that all wait longer."""
    if p.queries:
        return _DEEPEST_NARROW
    return _DEEPEST if resident == 1 or p.dim < 96 else 2


def _stages(shape: Config, p: Problem, steps: int, resident: int) -> int:
    """The deepest ring that steps can fill and that so many CTAs of an SM have room for."""
    fitting = [n for n in STAGES
               if n <= max(1, steps) and _resident(replace(shape, stages=n), p) >= resident]
    return max(fitting, default=1)


def _resident(shape: Config, p: Problem) -> int:
    """CTAs that an SM's shared memory holds."""
    return _SM_SHARED // (shape.spec.shared_bytes(shape.tunables(p)) + _CTA_RESERVED)
