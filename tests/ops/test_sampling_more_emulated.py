"""Top-k, Gumbel-max, verified drafts, beams and edits on the emulator against the oracle."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gpukit import sampling
from gpukit.reference import sampling as ref

SMALL = {"threads": 256, "cluster": 2}


def random(count: int, width: int, seed: int = 0, scale: float = 2.0) -> Any:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, width)) * scale).astype(np.float32)


@pytest.mark.parametrize("k", [1, 7, 100, 400])
def test_top_k_in_order(k: int) -> None:
    x = random(4, 3001)
    x[1] = np.round(x[1])
    x[2] = 0
    x[2, ::7] = -1
    x[3, 5:] = -np.inf
    x[3, 0] = np.nan
    log_sum = np.empty(4, np.float32)
    values, tokens = sampling.top_k(x, k, log_sum=log_sum, tunables=SMALL)
    for row in range(4):
        want_values, want_tokens = ref.top_k(x[row], k)
        np.testing.assert_array_equal(values[row], want_values.astype(np.float32))
        np.testing.assert_array_equal(tokens[row], want_tokens)
    want = [np.log(np.exp(ref.clean(row)).sum()) for row in x]
    np.testing.assert_allclose(log_sum, want, rtol=1e-6)


def test_top_k_per_row_and_beyond_the_row() -> None:
    x = random(4, 20).astype(ml_dtypes.bfloat16)
    x[3] = -np.inf
    _, tokens = sampling.top_k(x, 30, per_row=np.array([3, 0, 50, 5], np.int32))
    assert list((tokens >= 0).sum(1)) == [3, 0, 20, 0]
    np.testing.assert_array_equal(tokens[2, :20], ref.top_k(x[2], 20)[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gumbel_noise_is_philox(dtype: Any) -> None:
    x = random(8, 1030, 1, 0.5).astype(dtype)
    seeds = np.arange(8, dtype=np.uint64)
    ids = sampling.gumbel_argmax(x, temperature=0.7, seed=seeds, position=5, tunables=SMALL)
    scores = [ref.gumbel_scores(row, 0.7, seed, 5) for seed, row in enumerate(x)]
    for token, score in zip(ids, scores, strict=True):
        assert score[token] >= score.max() - 1e-4
    assert len(set(ids.tolist())) > 4


def test_gumbel_at_its_ends() -> None:
    x = np.round(random(4, 50, 2))
    x[1] = -np.inf
    x[2, ::2] = np.nan
    x[3, 9] = np.inf
    cold = sampling.gumbel_argmax(x, temperature=0.0)
    assert list(cold) == list(ref.argmax(x))
    warm = sampling.gumbel_argmax(x, seed=3)
    assert warm[1] == 0
    assert warm[2] % 2 == 1
    assert warm[3] == 9
    assert sampling.gumbel_argmax(x[3:], temperature=1e38, seed=3)[0] == 9


def chain(b: int, n: int, v: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    p, q = (rng.dirichlet(np.full(v, 0.3), (b, m)).astype(np.float32) for m in (n, n + 1))
    drafts = [[rng.choice(v, p=row / row.sum()) for row in rows] for rows in p.astype(np.float64)]
    return np.array(drafts, np.int32), p, q


@pytest.mark.parametrize("cluster", [1, 2])
def test_verified_drafts(cluster: int) -> None:
    drafts, p, q = chain(8, 3, 37)
    p[0] = q[0, :3]  # drafts that cannot be refused
    drafts[1, 0] = 99
    accepted = np.empty(8, np.int32)
    seeds = np.arange(8, dtype=np.uint64)
    out = sampling.verify_drafts(drafts, q, p, seed=seeds, position=2, accepted=accepted,
                                 tunables={"cluster": cluster})
    assert accepted[0] == 3
    assert accepted[1] == 0
    for row in range(8):
        stand, follow = ref.verify(drafts[row], q[row], p[row], row, 2, 1e-5)
        assert accepted[row] == stand
        assert list(out[row, :stand]) == list(drafts[row, :stand])
        assert int(out[row, stand]) in follow
        assert (out[row, stand + 1:] == -1).all()


def test_certain_drafts_of_their_own_lengths() -> None:
    _, _, q = chain(4, 3, 37)
    drafts = q[:, :3].argmax(-1)
    lengths, accepted = np.array([0, 1, 2, 3], np.int32), np.empty(4, np.int32)
    out = sampling.verify_drafts(drafts, q, lengths=lengths, seed=5, accepted=accepted)
    for row in range(4):
        n = lengths[row]
        stand, follow = ref.verify(drafts[row, :n], q[row, : n + 1], None, 5, 0, 1e-5)
        assert accepted[row] == stand
        assert int(out[row, stand]) in follow
    greedy = np.eye(37, dtype=np.float32)[q.argmax(-1)]
    same = sampling.verify_drafts(drafts, greedy, seed=6, accepted=accepted)
    assert (accepted == 3).all()
    np.testing.assert_array_equal(same, q.argmax(-1))


def test_drafts_alike_in_law_follow_the_target() -> None:
    """Chi-square of 400 first tokens over 3: a false alarm once in 1e4."""
    p, q = np.array([0.6, 0.3, 0.1], np.float32), np.array([0.2, 0.5, 0.3], np.float32)
    n = 400
    drafts = np.random.default_rng(4).choice(3, (n, 1), p=p / p.sum()).astype(np.int32)
    out = sampling.verify_drafts(drafts, np.tile(q, (n, 2, 1)), np.tile(p, (n, 1, 1)),
                                 seed=np.arange(n, dtype=np.uint64), tunables={"cluster": 1})
    counts = np.bincount(out[:, 0], minlength=3)
    assert ((counts - n * q) ** 2 / (n * q)).sum() < 18.4


def test_beams() -> None:
    x = random(6, 50, 5)
    scores = np.array([[0, -1, -3], [-0.5, -np.inf, -np.inf]], np.float32)
    beams, tokens, totals = sampling.beam_step(x, scores, 6)
    for entry in range(2):
        rows = x[3 * entry:3 * entry + 3]
        want = ref.beam_step(rows, scores[entry], 6)
        np.testing.assert_array_equal(beams[entry], want[0])
        np.testing.assert_array_equal(tokens[entry], want[1])
        np.testing.assert_allclose(totals[entry], want[2], rtol=1e-6, atol=1e-6)


def test_beams_that_run_out_are_padded() -> None:
    beams, tokens, totals = sampling.beam_step(random(1, 3), np.zeros((1, 1), np.float32), 5)
    assert list(beams[0]) == [0, 0, 0, -1, -1]
    assert list(tokens[0, 3:]) == [-1, -1]
    assert (totals[0, 3:] == -np.inf).all()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_bitmask_in_place(dtype: Any) -> None:
    x = random(3, 70, 6).astype(dtype)
    before, mask = x.copy(), np.full((2, 3), 0xFFFFFFFF, np.uint32)
    mask[0, 1], mask[1, 2] = 0xFF, 0
    assert sampling.apply_bitmask(x, mask, row_indices=np.array([2, 0], np.int32)) is x
    before[2, 40:64] = -np.inf
    before[0, 64:] = -np.inf
    np.testing.assert_array_equal(x.view(np.uint8), before.view(np.uint8))


def test_bitmask_of_rows_that_do_not_exist() -> None:
    x = np.ones((2, 40), "f4")
    sampling.apply_bitmask(x, np.zeros((3, 2), "u4"), row_indices=np.array([7, -1, 1], "i4"))
    assert (x[0] == 1).all() and np.isneginf(x[1]).all()


def test_tokens_beyond_31_bits_are_not_counted() -> None:
    tokens, counts = np.array([9, -1], "i4"), np.array([1, 0], "i4")
    penalties = sampling.Penalties(np.array([0, 2], "i4"), tokens, counts)
    for token in (2**32 + 9, 2**40 + 9, -(2**33)):
        sampling.update_counts(penalties, np.array([token], "i8"))
    assert tokens.tolist() == [9, -1] and counts.tolist() == [1, 0]


def test_counts_penalise_what_was_drawn() -> None:
    lists = (np.array([0, 3, 6, 7], np.int32), np.array([5, -1, -1, 1, 2, 9, 0], np.int32),
             np.array([1, 0, 0, 1, 1, 0, 1], np.int32))
    penalties = sampling.Penalties(*lists, frequency=0.5, presence=np.full(3, 0.25, np.float32),
                                   repetition=2.0)
    full = np.empty(3, np.uint8)
    sampling.update_counts(penalties, np.array([7, 2, 1], np.int64), full=full)
    assert list(full) == [0, 0, 1]
    assert list(lists[1]) == [5, 7, -1, 1, 2, 9, 0]
    assert list(lists[2]) == [1, 1, 0, 1, 2, 0, 1]
    sampling.update_counts(penalties, np.array([-1, 2, -1], np.int64))
    assert list(lists[2]) == [1, 1, 0, 1, 3, 0, 1]
    x = random(3, 9, 7)
    x[1, 1] = -np.inf
    want = [ref.penalize(row, dict(zip(lists[1][a:b].tolist(), lists[2][a:b].tolist(),
                                       strict=True)), 0.5, 0.25, 2.0)
            for row, a, b in zip(x, lists[0], lists[0][1:], strict=False)]
    np.testing.assert_allclose(sampling.apply_penalties(x, penalties), want, rtol=1e-6)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_scatter_skips_what_is_outside(index: Any) -> None:
    x = random(3, 70, 8)
    want = x.copy()
    pairs = np.array([[0, 1], [3, 0], [-1, 2], [2, 69], [1, 70]], index)
    sampling.scatter(x, pairs, 9.0)
    want[0, 1] = want[2, 69] = 9
    np.testing.assert_array_equal(x, want)
    sampling.scatter(x, pairs, np.arange(5, dtype=np.float32))
    want[0, 1], want[2, 69] = 0, 3
    np.testing.assert_array_equal(x, want)


def test_softmax_of_rows_beyond_registers() -> None:
    x = random(1, 270_001, 9)
    got = sampling.softmax(x, 0.7, tunables={"cluster": 1, "threads": 256})
    np.testing.assert_allclose(got[0], ref.softmax(x[0], 0.7), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.8, 1e30])
def test_softmax_where_f32_ends(temperature: float) -> None:
    x = random(7, 1100, 10, 3.0)
    most = np.finfo(np.float32).max
    x[0] = -most
    x[1, ::2] = -most
    x[2, [7, 3]] = np.inf, np.nan
    x[3, [1030, 1050, 4]] = most, np.inf, -most
    x[4] = -np.inf
    x[4, 1099] = -most
    x[5, [5, 6]] = 3e38, -3e38
    x[6] *= np.float32(1e-39)
    with np.errstate(over="ignore"):
        want = [ref.softmax(row, temperature) for row in x]
    got = sampling.softmax(x, temperature, tunables={"threads": 64, "cluster": 1})
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)
