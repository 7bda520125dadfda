"""float64 oracle of attention, and the error a kernel may make.

For each query: scores s = cap(scale q.k) + bias + ALiBi + relative logit, minus infinity where
the mask hides the key; output sum(exp(s) v) / z and LSE ln z with z = sum(exp(s)) + exp(sink). A
query that sees no key gives output 0 and LSE the sink, or minus infinity without one. With the
sink inside the LSE, `merge` of parts of the keys is exact when one part alone had the sink.

Arrays are [batch, seq, heads, dim]; query head h reads KV head h // (heads / kv_heads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpukit.dtypes import DType
from gpukit.reference.attention_masks import positions, visible
from gpukit.reference.tolerance import Array, Bound

_UNIT = 2.0**-24  # half an ulp of f32


@dataclass(frozen=True)
class Rules:
    """How scores become weights.

    Attributes:
        mask, window, chunk, top_left: see `attention_masks`.
        scale: of q.k; 1 / sqrt(dim) by default.
        softcap: cap(s) = softcap tanh(s / softcap), applied to scale q.k alone.
        bias: added to the scores, broadcasts to [batch, heads, Sq, Sk]; may be minus infinity.
        alibi: slopes [heads] or [batch, heads]; adds -slope |p - j|.
        relative: [batch, Sq, heads, extent]; adds [..., p - j] where 0 <= p - j < extent.
        sinks: [heads], natural-log units, unscaled.
    """

    mask: str = "null"
    window: int = 0
    chunk: int = 0
    top_left: bool = False
    scale: float | None = None
    softcap: float = 0.0
    bias: Any = None
    alibi: Any = None
    relative: Any = None
    sinks: Any = None


class Result(NamedTuple):
    """out [batch, Sq, heads, dim of v] and lse [batch, heads, Sq], float64."""

    out: Array
    lse: Array


def wide(values: Any) -> Array:
    """The same numbers in float64."""
    return np.asarray(values).astype(np.float64)


def scores(q: NDArray[Any], k: NDArray[Any], rules: Rules) -> Array:
    """[batch, heads, Sq, Sk], minus infinity for hidden keys."""
    queries, keys = q.shape[1], k.shape[1]
    s = _scale(q, rules) * _products(wide(q), _per_head(k, q.shape[2]))
    if rules.softcap:
        s = rules.softcap * np.tanh(s / rules.softcap)
    for term in (rules.bias, _alibi(rules, queries, keys), _relative(rules, queries, keys)):
        s = s if term is None else s + wide(term)
    seen = visible(rules.mask, queries, keys, window=rules.window, chunk=rules.chunk,
                   top_left=rules.top_left)
    masked: Array = np.where(seen, s, -np.inf)
    return masked


def oracle(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], rules: Rules | None = None) -> Result:
    """The exact result for q [B, Sq, H, D], k [B, Sk, Hkv, D], v [B, Sk, Hkv, Dv]."""
    rules = rules or Rules()
    s = scores(q, k, rules)
    weights, lse = _softmax(s, rules.sinks)
    wanted = np.asarray((weights > 0).any(axis=2)).swapaxes(1, 2)[..., None]
    return Result(_average(weights, np.where(wanted, _per_head(v, q.shape[2]), 0.0)), lse)


def merge(outs: list[Any], lses: list[Any]) -> Result:
    """One state of states over disjoint keys: outs [B, Sq, H, D], lses [B, H, Sq]."""
    stacked = np.stack([wide(lse) for lse in lses])
    top = stacked.max(axis=0)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(np.exp(stacked - shift).sum(axis=0))
    shares = np.exp(stacked - np.where(np.isfinite(lse), lse, 0.0)).swapaxes(-1, -2)[..., None]
    parts = np.where(shares > 0, np.stack([wide(out) for out in outs]), 0.0)
    return Result((shares * parts).sum(axis=0), lse)


def _softmax(s: Array, sinks: Any) -> tuple[Array, Array]:
    sink = np.full(s.shape[1], -np.inf) if sinks is None else wide(sinks)
    top = np.maximum(s.max(axis=-1, initial=-np.inf), sink[None, :, None])
    shift = np.where(np.isfinite(top), top, 0.0)
    weights = np.exp(s - shift[..., None])
    z = weights.sum(axis=-1) + np.exp(sink[None, :, None] - shift)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(z)
    return weights / np.where(z > 0, z, 1.0)[..., None], lse


def _scale(q: NDArray[Any], rules: Rules) -> float:
    return 1.0 / math.sqrt(q.shape[3]) if rules.scale is None else rules.scale


def _per_head(kv: NDArray[Any], heads: int) -> Array:
    repeated: Array = np.repeat(wide(kv), heads // kv.shape[2], axis=2)
    return repeated


def _products(q: Array, k: Array) -> Array:
    """[B, Sq, H, D] and [B, Sk, H, D] to [B, H, Sq, Sk]."""
    products: Array = q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1)
    return products


def _average(weights: Array, values: Array) -> Array:
    """[B, H, Sq, Sk] and [B, Sk, H, D] to [B, Sq, H, D]."""
    average: Array = (weights @ values.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    return average


def _alibi(rules: Rules, queries: int, keys: int) -> Array | None:
    if rules.alibi is None:
        return None
    distance = np.abs(positions(queries, keys, rules.top_left)[:, None] - np.arange(keys))
    slopes: Array = np.atleast_2d(wide(rules.alibi))
    bias: Array = -slopes[:, :, None, None] * distance
    return bias


def _relative(rules: Rules, queries: int, keys: int) -> Array | None:
    if rules.relative is None:
        return None
    logits = wide(rules.relative).swapaxes(1, 2)  # [batch, heads, Sq, extent]
    extent = logits.shape[-1]
    distance = positions(queries, keys, rules.top_left)[:, None] - np.arange(keys)
    inside = (distance >= 0) & (distance < extent)
    index = np.broadcast_to(np.where(inside, distance, 0), (*logits.shape[:2], queries, keys))
    added: Array = np.where(inside, np.take_along_axis(logits, index, axis=-1), 0.0)
    return added


class Bounds(NamedTuple):
    """What `out` and `lse` may be off by."""

    out: Bound
    lse: Bound


def bounds(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], out: DType,
           rules: Rules | None = None, *, weights_bits: int | None = None) -> Bounds:
    """Allowed error, element by element.

    Scores are sums of D products in f32, off by about 4 sqrt(D) + 4 units of their magnitude, which
    moves the output by at most sum p |v - out| |error|. Weights are rounded to the operand type
    before they multiply v: independent errors of half an ulp, so four standard deviations are
    4 u sqrt(sum (p v)^2) (u / sqrt(3) is one of them; the margin is for sums in f32). The output
    adds half an ulp of its own type.

    Args:
        weights_bits: significand bits of the rounded weights; those of `out` by default.
    """
    rules = rules or Rules()
    s = scores(q, k, rules)
    weights, _ = _softmax(s, rules.sinks)
    moved = _score_error(q, k, s, rules)
    values, error = _per_head(v, q.shape[2]), weights * moved
    result = np.abs(_average(weights, values))
    shift = (_average(error, np.abs(values))
             + error.sum(axis=-1).swapaxes(1, 2)[..., None] * result)
    unit = 2.0**-(weights_bits or out.exact_bits)
    rounding = np.sqrt(_average(weights**2, values**2))
    smallest = 2.0**-25 if out.name == "f16" else 2.0**-126
    return Bounds(Bound(shift + 4 * unit * rounding + 8 * _UNIT * result + smallest,
                        2.0**-out.exact_bits + _UNIT),
                  Bound(error.sum(axis=-1) + 4e-6, 4e-7))


def _score_error(q: NDArray[Any], k: NDArray[Any], s: Array, rules: Rules) -> Array:
    magnitude = abs(_scale(q, rules)) * _products(np.abs(wide(q)),
                                                  np.abs(_per_head(k, q.shape[2])))
    units = 4 * math.sqrt(q.shape[3]) + 4
    top = np.where(np.isfinite(s), np.abs(s), 0.0)
    softcap = 2.0**-10 * rules.softcap if rules.softcap else 0.0  # of a fast tanh
    return units * _UNIT * magnitude + 8 * _UNIT * top + softcap + 2.0**-21
