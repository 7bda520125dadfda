"""How a decode call is cut up: the shape of a CTA, and how many of them share a sequence's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpukit.kernels.attention_decode import D6, D7, FORMS, TILE, WARPGROUP_ROWS
from gpukit.kernels.spec import KernelSpec, Value

_SM_SHARED = 227 << 10  # bytes that the CTAs of an SM share
_CTA_RESERVED = 1 << 10  # bytes the driver keeps of them for every CTA


class Problem(NamedTuple):
    """What the choice depends on.

    Attributes:
        keys: the most keys a sequence can have.
        page: rows of a page, 0 without pages.
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
        form: of `attention.decode.d6`, or "warpgroup_8" to "warpgroup_64" for `attention.decode.d7`
            with that many query rows.
        warps, stages, cluster, blocks: their tunables; d7 has 4 warps.
        parts: clusters that a KV head's keys are split over.
    """

    form: str
    warps: int
    stages: int
    cluster: int
    blocks: int
    parts: int

    @property
    def spec(self) -> KernelSpec:
        """The kernel."""
        return D6 if self.form in FORMS else D7

    @property
    def rows(self) -> int:
        """Query rows of a CTA."""
        return {**FORMS, **{f"warpgroup_{n}": n for n in WARPGROUP_ROWS}}[self.form]

    def tunables(self, p: Problem) -> dict[str, Value]:
        """Of the kernel."""
        own: dict[str, Value] = {"form": self.form, "warps": self.warps}
        if self.spec is D7:
            own = {"rows": self.rows}
        return {"dtype": p.dtype, "dim": p.dim, "stages": self.stages, "cluster": self.cluster,
                "pages": p.pages, "blocks": self.blocks, **own}

    def units(self, p: Problem) -> int:
        """KV heads times blocks of query rows of one sequence."""
        return p.kv_heads * -(-p.rows // self.rows)

    def grid(self, p: Problem) -> tuple[int, int, int]:
        """Of CTAs."""
        return self.units(p), self.parts * self.cluster, p.sequences

    def states(self, p: Problem) -> int:
        """Items of four dims in the workspace."""
        return p.sequences * self.units(p) * self.parts * self.rows * p.dim // 4


def choose(p: Problem) -> Config:
    """The cut for a problem: 2 to 3 CTAs for every SM, and no more splits than keep its warps busy.

    Splits of one KV head meet in a cluster as far as that goes: through shared memory, which takes
    half the time of global memory.
    """
    form = "transposed_8" if p.rows <= 8 else "transposed_16"
    warps, stages = (4, 2) if p.dim <= 128 else (4, 1)
    shape = Config(form, warps, stages, 1, 1, 1)
    units = max(1, p.sequences * shape.units(p))
    slots = p.sms * _resident(shape, p)
    useful = max(1, p.keys // (TILE * warps))  # splits that give every warp a tile
    splits = min(useful, max(1, slots // units))
    cluster = _power_of_two(min(splits, 8)) if units * splits <= 2 * slots else 1
    return Config(form, warps, stages, cluster, 1, max(1, splits // cluster))


def _resident(shape: Config, p: Problem) -> int:
    """CTAs that an SM's shared memory holds."""
    return max(1, _SM_SHARED // (shape.spec.shared_bytes(shape.tunables(p)) + _CTA_RESERVED))


def _power_of_two(at_most: int) -> int:
    return 1 << (at_most.bit_length() - 1)
