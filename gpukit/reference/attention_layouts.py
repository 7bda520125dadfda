"""Attention oracles for sequences of different lengths: ragged, padded and paged.

Each sequence is cut out and given to the dense oracle. Relative logits of ragged calls are
[tokens, heads, extent] and cut like q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpukit.reference.attention import Result, Rules, oracle
from gpukit.reference.tolerance import Array


def ragged(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], q_offsets: Sequence[int],
           kv_offsets: Sequence[int], rules: Rules | None = None) -> Result:
    """q [Tq, H, D], k and v [Tk, Hkv, D]; sequence b has rows offsets[b] to offsets[b + 1].

    Returns:
        out [Tq, H, Dv] and lse [H, Tq].
    """
    rules = rules or Rules()
    out = np.zeros((q.shape[0], q.shape[1], v.shape[2]))
    lse = np.full((q.shape[1], q.shape[0]), -np.inf)
    for b in range(len(q_offsets) - 1):
        rows, keys = (slice(int(x[b]), int(x[b + 1])) for x in (q_offsets, kv_offsets))
        own = rules if rules.relative is None else replace(
            rules, relative=rules.relative[rows][None])
        part = oracle(q[rows][None], k[keys][None], v[keys][None], _of_batch(own, b))
        out[rows], lse[:, rows] = part.out[0], part.lse[0]
    return Result(out, lse)


def padded(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], kv_lengths: Sequence[int],
           rules: Rules | None = None, q_lengths: Sequence[int] | None = None) -> Result:
    """Dense arrays of which the first lengths[b] rows count; rows of q beyond give 0 and -inf."""
    rules = rules or Rules()
    out = np.zeros((*q.shape[:3], v.shape[3]))
    lse = np.full((q.shape[0], q.shape[2], q.shape[1]), -np.inf)
    for b, keys in enumerate(kv_lengths):
        rows = q.shape[1] if q_lengths is None else int(q_lengths[b])
        own = rules if rules.relative is None else replace(
            rules, relative=rules.relative[b:b + 1, :rows])
        part = oracle(q[b:b + 1, :rows], k[b:b + 1, :keys], v[b:b + 1, :keys], _of_batch(own, b))
        out[b, :rows], lse[b, :, :rows] = part.out[0], part.lse[0]
    return Result(out, lse)


def gather(pages: NDArray[Any], table: NDArray[Any], length: int) -> NDArray[Any]:
    """The first `length` rows of one sequence: pages [P, page, Hkv, D], table [entries]."""
    page = pages.shape[1]
    rows = np.arange(length)
    gathered: NDArray[Any] = pages[table[rows // page].astype(np.int64), rows % page]
    return gathered


def paged(q: NDArray[Any], k_pages: NDArray[Any], v_pages: NDArray[Any], table: NDArray[Any],
          kv_lengths: Sequence[int], rules: Rules | None = None) -> Result:
    """q [B, Sq, H, D]; k_pages and v_pages [P, page, Hkv, D]; table [B, entries]."""
    rules = rules or Rules()
    parts = [oracle(q[b:b + 1], gather(k_pages, table[b], int(length))[None],
                    gather(v_pages, table[b], int(length))[None], _of_batch(rules, b))
             for b, length in enumerate(kv_lengths)]
    return Result(np.concatenate([part.out for part in parts]),
                  np.concatenate([part.lse for part in parts]))


def _of_batch(rules: Rules, b: int) -> Rules:
    """The rules with those terms that differ by sequence cut to sequence b."""
    alibi: Array | None = None if rules.alibi is None else np.atleast_2d(rules.alibi)
    own = rules if alibi is None or len(alibi) == 1 else replace(rules, alibi=alibi[b])
    bias = own.bias
    if bias is not None and np.ndim(bias) == 4 and len(bias) > 1:
        own = replace(own, bias=bias[b:b + 1])
    return own
