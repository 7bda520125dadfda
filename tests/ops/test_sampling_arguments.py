"""What sampling is not to be given is refused in one line that names it, before any launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpukit import sampling as typed
from gpukit.errors import ArgumentError
from gpukit.ops.sampling import ladder

sampling: Any = typed  # so that it may be given anything
run_rung: Any = ladder.run_rung
_X = np.zeros((3, 40), np.float32)
_MASK = np.ones((3, 2), np.uint32)
_LISTS = (np.array([0, 1, 1, 2], np.int32), np.array([1, 2], np.int32), np.array([1, 1], np.int32))
_DRAFTS, _TARGET = np.zeros((3, 2), np.int32), np.full((3, 3, 8), 1 / 8, np.float32)
_WIDE = np.zeros(128, np.float32)


def _broadcast() -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros((1, 40), np.float32), (3, 40), (0, 4))


def _frozen(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


def _lists(**given: Any) -> typed.Penalties:
    return typed.Penalties(**{**dict(zip(("offsets", "tokens", "counts"), _LISTS, strict=True)),
                                 **given})


@pytest.mark.parametrize(("call", "names"), [
    (lambda: sampling.sample(_X, top_k=float("nan")), "top_k=nan"),
    (lambda: sampling.sample(_X, top_k=np.complex64(1)), "top_k="),
    (lambda: sampling.sample(_X, seed=float("inf")), "seed=inf"),
    (lambda: sampling.sample(_X, joint="no"), "joint='no'"),
    (lambda: sampling.sample(_X, joint=np.ones(3, bool)), "joint="),
    (lambda: sampling.sample(_X, penalties={}), "penalties"),
    (lambda: sampling.sample(_X, penalties=_lists(tokens=[1, 2])), "penalties.tokens"),
    (lambda: sampling.sample(_X, penalties=_lists(tokens=np.array(1, np.int32))),
     "penalties.tokens"),
    (lambda: sampling.apply_penalties(_X.copy(), None), "penalties"),
    (lambda: sampling.update_counts(_lists(counts=_frozen(_LISTS[2])), np.zeros(3, np.int64)),
     "penalties.counts is read-only"),
    (lambda: sampling.apply_bitmask(_X.copy(), None), "bitmask"),
    (lambda: sampling.apply_bitmask(_X.copy(), _MASK, row_indices=[0, 1, 2]), "row_indices"),
    (lambda: sampling.apply_bitmask(_X.copy(), _MASK, fill="none"), "fill"),
    (lambda: sampling.apply_bitmask(_X.astype(np.float16), _MASK, fill=1e6), "fill"),
    (lambda: sampling.apply_bitmask(_broadcast(), _MASK), "logits has strides"),
    (lambda: sampling.scatter(_frozen(_X), np.zeros((1, 2), np.int32), 1.0), "matrix is read-only"),
    (lambda: sampling.softmax(_X, out=_frozen(_X)), "out is read-only"),
    (lambda: sampling.softmax(_X, out=_broadcast()), "out has strides"),
    (lambda: sampling.softmax(_WIDE[:120].reshape(3, 40), out=_WIDE[8:].reshape(3, 40)),
     "out overlaps logits"),
    (lambda: sampling.verify_drafts(_DRAFTS, _TARGET, seed=-1), "seed=-1"),
    (lambda: sampling.verify_drafts(_DRAFTS, _TARGET, position=2**63), "position="),
    (lambda: sampling.uniform(np.zeros(2, np.uint64), 2**63), "position="),
    (lambda: sampling.explain("nonsense", _X), "op='nonsense'"),
    (lambda: run_rung("s5", _X, seed=np.zeros(3, np.uint64)), "seed is an array"),
    (lambda: run_rung("s1", _X, workspace=[0]), "workspace"),
])
def test_one_line_names_the_argument(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert names in str(caught.value) and "\n" not in str(caught.value)


def test_numpy_numbers_are_numbers() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    for theirs, ours in ((np.int64(3), 3), (np.float32(3), 3.0)):
        assert (sampling.sample(logits, top_k=theirs, seed=np.uint64(5))
                == sampling.sample(logits, top_k=ours, seed=5)).all()
    assert (sampling.top_k(logits, np.int64(2))[1] == sampling.top_k(logits, 2)[1]).all()
