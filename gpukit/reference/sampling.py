"""Oracles of the sampling family in float64: which tokens are kept, with what probability.

Sorted and summed in float64, sharing nothing with the kernels but the definitions of
`gpukit.sampling.sample` and the Philox generator, which is restated here in Python integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
GREEDY = 1e-5
UNIFORM, DRAW, GUMBEL, ACCEPT, RESIDUAL = range(5)
_LARGEST = float(np.finfo(np.float32).max)
_WORD = 0xFFFFFFFF


def philox(seed: int, position: int, block: int, domain: int) -> tuple[int, int, int, int]:
    """Philox4x32-10: key seed, counter (position, block, domain)."""
    c = [position & _WORD, position >> 32 & _WORD, block, domain]
    k0, k1 = seed & _WORD, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & _WORD, p0 >> 32 ^ c[3] ^ k1, p0 & _WORD]
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c[0], c[1], c[2], c[3]


def uniform(seed: int, position: int = 0) -> float:
    """What `gpukit.sampling.uniform` gives for one seed."""
    return (philox(seed, position, 0, UNIFORM)[0] >> 8) * 2.0**-24


def clean(logits: NDArray[np.generic]) -> Array:
    """float64 logits: NaN as -infinity, +infinity as the largest float32."""
    values = np.asarray(logits).astype(np.float64)
    values = np.where(np.isnan(values), -np.inf, values)
    return np.asarray(np.minimum(values, _LARGEST), dtype=np.float64)


def argmax(logits: NDArray[np.generic]) -> NDArray[np.int64]:
    """The first maximum of each row; 0 where there is none."""
    return np.asarray(np.argmax(clean(logits), axis=-1), dtype=np.int64)


def softmax(logits: NDArray[np.generic], temperature: float = 1.0) -> Array:
    """Probabilities of one row; all on the first maximum if greedy, zeros if it has none."""
    return distribution(logits, Settings(temperature))


@dataclass(frozen=True)
class Settings:
    """How one row is sampled; see `gpukit.sampling.sample`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    joint: bool = False


def distribution(logits: NDArray[np.generic], settings: Settings, slack: float = 0.0) -> Array:
    """The probabilities of one row after all filters.

    Args:
        slack: moves the thresholds of min-p and top-p by this much, relative: where results for
            +slack and -slack differ, rounding decides.
    """
    x = clean(logits)
    if x.max() == -np.inf:
        return np.zeros_like(x)
    if not settings.temperature > GREEDY or x.max() == _LARGEST:
        return np.asarray(np.arange(x.size) == np.argmax(x), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        weight = np.exp((x - x.max()) / float(np.float32(settings.temperature)))
    keep = weight >= min(1.0, float(np.float32(settings.min_p))) * (1 + slack)
    keep &= x >= _kth(x, settings.top_k)
    keep |= x == x.max()
    if settings.top_p < 1:
        base = weight.sum() if settings.joint else weight[keep].sum()
        limit = float(np.float32(settings.top_p)) * base * (1 - slack)
        keep &= (_mass_above(x, weight) < limit) | (x == x.max())
    kept = np.where(keep, weight, 0.0)
    return np.asarray(kept / kept.sum(), dtype=np.float64)


def _kth(x: Array, k: int) -> float:
    """The k-th largest value; -infinity where the filter is off."""
    return float(np.sort(x)[-k]) if 0 < k < x.size else -np.inf


def _mass_above(x: Array, weight: Array) -> Array:
    """Of each token, the mass of those with larger logits."""
    order = np.argsort(-x, kind="stable")
    ordered, before = x[order], np.concatenate([[0.0], np.cumsum(weight[order])[:-1]])
    first = np.searchsorted(-ordered, -ordered, side="left")  # ties share what is above the first
    above = np.empty_like(x)
    above[order] = before[first]
    return above


def draw(probabilities: Array, seed: int, position: int = 0, slack: float = 0.0) -> set[int]:
    """The tokens that (seed, position) may draw: more than one only within `slack` of a border."""
    return _draw(probabilities, philox(seed, position, 0, DRAW), slack)


def _draw(probabilities: Array, words: tuple[int, int, int, int], slack: float) -> set[int]:
    u = (words[0] << 32 | words[1]) / 2.0**64
    upto = np.cumsum(probabilities)
    live = np.flatnonzero(probabilities)
    if not live.size:
        return {0}
    last = int(live[-1])
    picks = (int(np.searchsorted(upto, u + shift, side="right")) for shift in (-slack, slack))
    low, high = (min(pick, last) for pick in picks)
    return {int(t) for t in live if low <= t <= high}


def gumbel_scores(logits: NDArray[np.generic], temperature: float, seed: int,
                  position: int = 0) -> Array:
    """Of one row, what `gpukit.sampling.gumbel_argmax` takes the maximum of."""
    words = [philox(seed, position, block, GUMBEL) for block in range((logits.size + 3) // 4)]
    bits = np.array(words, np.float64).reshape(-1)[:logits.size]
    noise = -np.log(-np.log1p(-(bits + 0.5) / 2.0**32))
    return np.asarray(clean(logits) / temperature + noise, dtype=np.float64)


def top_k(logits: NDArray[np.generic], k: int) -> tuple[Array, NDArray[np.int64]]:
    """The k largest of one row in order, lower tokens first among equals; padded."""
    x = clean(logits)
    order = np.lexsort((np.arange(x.size), -x))[:k]
    order = order[x[order] > -np.inf]
    values, tokens = np.full(k, -np.inf), np.full(k, -1, np.int64)
    values[: order.size], tokens[: order.size] = x[order], order
    return values, tokens


def beam_step(logits: NDArray[np.generic], scores: NDArray[np.generic],
              best: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Beams, tokens and scores of one batch entry's best continuations: logits [beams, V]."""
    x = np.asarray(logits).astype(np.float64)
    most = x.max(axis=1, keepdims=True)
    log_p = x - most - np.log(np.exp(x - most).sum(axis=1, keepdims=True))
    values, flat = top_k((log_p + np.asarray(scores, np.float64)[:, None]).reshape(-1), best)
    beams = np.where(flat < 0, -1, flat // x.shape[1])
    return beams, np.where(flat < 0, -1, flat % x.shape[1]), values


def verify(drafts: NDArray[np.integer], target: NDArray[np.generic],
           draft: NDArray[np.generic] | None, seed: int, position: int = 0,
           slack: float = 0.0) -> tuple[int, set[int]]:
    """Of one row: how many drafts stand, and the tokens that may follow them."""
    q = np.nan_to_num(np.asarray(target, np.float64))
    n, width = len(drafts), q.shape[1]
    p = np.zeros((n, width))
    if draft is not None:
        p = np.nan_to_num(np.asarray(draft, np.float64))
    else:
        for i, token in enumerate(drafts):
            if 0 <= token < width:
                p[i, token] = 1.0
    stand = 0
    for token in drafts:
        u = (philox(seed, position, stand, ACCEPT)[0] >> 8) * 2.0**-24
        if not (0 <= token < width and u * p[stand, token] < q[stand, token]):
            break
        stand += 1
    rest = np.maximum(q[stand] - p[stand], 0.0) if stand < n else q[stand]
    rest = rest if rest.sum() > 0 else q[stand]
    return stand, _draw(rest / rest.sum(), philox(seed, position, 0, RESIDUAL), slack)


def penalize(logits: NDArray[np.generic], counts: dict[int, int], frequency: float,
             presence: float, repetition: float) -> Array:
    """The penalties of one row from a dictionary token -> occurrences (0: in the prompt only)."""
    x = clean(logits)
    for token, count in counts.items():
        if not 0 <= token < x.size:
            continue
        value = x[token] / repetition if x[token] > 0 else x[token] * repetition
        x[token] = value - (frequency * count + presence if count else 0.0)
    return x
