"""Decode calls for tests: caches with NaN beyond every length, tables that name no page there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.ops.attention.plan import Config, Problem
from gpukit.reference.attention import Rules, bounds, oracle
from gpukit.reference.tolerance import scaled_error

NOWHERE = 2147480000
FORMS = ("plain", "transposed_8", "transposed_16", "warpgroup_8", "warpgroup_16")
MASKS: dict[str, dict[str, int]] = {
    "causal": {}, "null": {}, "chunked_causal": {"chunk": 32}, "sliding_causal": {"window": 20},
    "sliding": {"window": 2},
}
TERMS: dict[str, Any] = {
    "scale": 0.3, "softcap": 1.5, "sinks": np.array([0, 3, -2, 1], np.float32),
    "alibi": np.array([0.5, 0.01, 0, 1], np.float32),
}


@dataclass(frozen=True)
class Case:
    """Sizes and lengths of a call; page 0 for a contiguous cache."""

    lengths: tuple[int, ...] = (37,)
    room: int = 40
    tokens: int = 1
    heads: int = 4
    kv_heads: int = 1
    dim: int = 64
    page: int = 0
    dtype: str = "bf16"
    queries: str = ""  # their type, if the cache is of e4m3

    def problem(self) -> Problem:
        page = self.page or 1
        return Problem(self.dtype, len(self.lengths), self.tokens, self.heads, self.kv_heads,
                       self.dim, -(-self.room // page) * page, self.page, 132,
                       queries=self.queries)

    @property
    def types(self) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Of q, and of k and v."""
        return tuple(dtypes.parse(name).value_dtype for name in (
            self.queries or self.dtype, "e4m3" if self.queries else self.dtype))


@dataclass(frozen=True)
class Inputs:
    """q; dense k and v, times their scales; what the call gets for them."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    call: dict[str, Any]


def inputs(case: Case) -> Inputs:
    rng, (of_q, of_cache) = np.random.default_rng(3), case.types
    batch = len(case.lengths)
    q = rng.standard_normal((batch, case.tokens, case.heads, case.dim)).astype(of_q)
    k, v = (rng.standard_normal((batch, case.room, case.kv_heads, case.dim)).astype(of_cache)
            for _ in "kv")
    lengths = np.array(case.lengths, np.uint32)
    used = np.arange(case.room) < lengths[:, None]
    caches = [np.where(used[..., None, None], x, of_cache.type(np.nan)) for x in (k, v)]
    call: dict[str, Any] = {"lengths": lengths}
    if case.page:
        call["page_table"], caches = in_pages(caches, case, rng)
    call = {"q": q, "k": caches[0], "v": caches[1], **call}
    return scaled(Inputs(q, k, v, call), case, rng) if case.queries else Inputs(q, k, v, call)


def scaled(given: Inputs, case: Case, rng: np.random.Generator) -> Inputs:
    """With a number for q, a factor per KV head for k, one per sequence and head for v."""
    of_k, of_v = (rng.uniform(0.5, 2, (n, case.kv_heads)).astype(np.float32)
                  for n in (1, len(case.lengths)))
    call = given.call | {"k_scale": of_k, "v_scale": of_v}
    q = given.q.astype(np.float64)
    if case.queries == "e4m3":
        q, call["q_scale"] = q * 0.75, 0.75
    k, v = (x.astype(np.float64) * scale[:, None, :, None]
            for x, scale in ((given.k, of_k), (given.v, of_v)))
    return Inputs(q, k, v, call)


def in_pages(caches: list[np.ndarray], case: Case, rng: np.random.Generator
             ) -> tuple[np.ndarray, list[np.ndarray]]:
    """A table in random order, and the pages it names among others full of NaN."""
    entries = -(-case.room // case.page)
    pages = len(caches[0]) * entries + 2
    table = rng.permutation(pages)[:pages - 2].reshape(-1, entries).astype(np.uint32)
    stores = []
    for cache in caches:
        store = np.full((pages, case.page, case.kv_heads, case.dim), np.nan, cache.dtype)
        for b in range(len(cache)):
            for j in range(case.room):
                store[table[b, j // case.page], j % case.page] = cache[b, j]
        stores.append(store)
    for b, length in enumerate(case.lengths):
        table[b, -(-length // case.page):] = NOWHERE
    return table, stores


def worst(got: tuple[np.ndarray, np.ndarray], given: Inputs, case: Case, rules: Rules) -> float:
    """The largest error of output and LSE, in units of what is allowed."""
    return max(error_of(got, given, case, b, rules) for b in range(len(case.lengths)))


def error_of(got: tuple[np.ndarray, np.ndarray], given: Inputs, case: Case, b: int,
             rules: Rules) -> float:
    """`worst` of one sequence."""
    dtype, length = dtypes.parse(case.dtype), case.lengths[b]
    operands = given.q[b:b + 1], given.k[b:b + 1, :length], given.v[b:b + 1, :length]
    want, bound = oracle(*operands, rules), bounds(*operands, dtype, rules)
    return max(scaled_error(got[0][b:b + 1].astype(np.float64), want.out, bound.out),
               scaled_error(got[1][b:b + 1].astype(np.float64), want.lse, bound.lse))


def cut(form: str, cluster: int = 1, parts: int = 1, warps: int = 2, stages: int = 2) -> Config:
    return Config(form, _warps(form, warps), stages, cluster, 1, parts)


def even(form: str, gangs: int, stages: int = 2) -> Config:
    return Config(form, _warps(form, 2), stages, 1, 1, gangs, "even")


def _warps(form: str, given: int) -> int:
    return 4 if form.startswith(("warpgroup", "upright")) else given
