"""Sampling on a GPU against the float64 oracle, at vocabularies that models have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukit import sampling
from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

pytestmark = pytest.mark.gpu

FILTERS = [Settings(), Settings(0.7, 50, 0.9), Settings(1.3, 40, 0.8, 0.02, True),
           Settings(1.0, 0, 0.8), Settings(1.0, 0, 0.999), Settings(1.0, 1000, 0.95),
           Settings(1.0, 30000, 0.99), Settings(0.8, 0, 1.0, 0.05), Settings(0.0)]
SLACK = 1e-6


def on_gpu(x: Any) -> Any:
    import cupy

    return cupy.asarray(x)


def on_host(x: Any) -> Any:
    import cupy

    return cupy.asnumpy(x)


def random(count: int, width: int, seed: int = 0) -> Any:
    x = np.random.default_rng(seed).standard_normal((count, width), np.float32) * 2
    if count > 1:
        x[1, ::7] = np.nan
    return x


@pytest.mark.parametrize("settings", FILTERS, ids=str)
@pytest.mark.parametrize("width", [1, 31, 32001, 128256, 300_000])
def test_sets_probabilities_and_tokens(width: int, settings: Settings) -> None:
    import cupy

    x = random(3, width, width)
    distribution = cupy.empty(x.shape, np.float32)
    options = {"temperature": settings.temperature, "top_k": settings.top_k,
               "top_p": settings.top_p, "min_p": settings.min_p, "joint": settings.joint,
               "seed": 12345 + width}
    ids = on_host(sampling.sample(on_gpu(x), distribution=distribution, **options))
    batch = sampling.sample(on_gpu(np.tile(x, (40, 1))), **options)
    np.testing.assert_array_equal(on_host(batch).reshape(40, 3), np.tile(ids, (40, 1)))
    for token, got, row in zip(ids, on_host(distribution), x, strict=True):
        want, kept = ref.distribution(row, settings), got > 0
        surely, perhaps = (ref.distribution(row, settings, s) > 0 for s in (SLACK, -SLACK))
        assert not (kept & ~perhaps).any()
        assert kept[surely & (want > 1e-12)].all()
        if (kept == (want > 0))[want > 1e-12].all():
            np.testing.assert_allclose(got, want, rtol=4e-6, atol=1e-14)
            assert int(token) in ref.draw(want, 12345 + width, 0, 1e-5)


@pytest.mark.parametrize("count", [1, 16, 300])
@pytest.mark.parametrize("width", [32000, 128256, 151936, 256000])
def test_softmax_and_argmax(count: int, width: int) -> None:
    x = random(count, width, count)
    soft, best = on_host(sampling.softmax(on_gpu(x), 0.8)), on_host(sampling.argmax(on_gpu(x)))
    np.testing.assert_array_equal(best, ref.argmax(x))
    for row in {0, count // 2, count - 1}:
        np.testing.assert_allclose(soft[row], ref.softmax(x[row], 0.8), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("k", [1, 50, 1000])
def test_top_k(k: int) -> None:
    x = random(5, 128256, k)
    x[2] = np.round(x[2])
    x[3] = 1.0
    values, tokens = (on_host(a) for a in sampling.top_k(on_gpu(x), k))
    for row in range(5):
        want = ref.top_k(x[row], k)
        np.testing.assert_array_equal(values[row], want[0].astype(np.float32))
        np.testing.assert_array_equal(tokens[row], want[1])


@pytest.mark.parametrize("draw", ["sample", "gumbel_argmax"])
def test_frequencies(draw: str) -> None:
    """Chi-square of 200000 draws over 20 tokens: false alarm below 1e-6."""
    import cupy

    x = np.random.default_rng(5).standard_normal(20, np.float32)
    rows = cupy.ascontiguousarray(cupy.broadcast_to(on_gpu(x), (200_000, 20)))
    seeds = cupy.arange(200_000, dtype=np.uint64)
    ids = on_host(getattr(sampling, draw)(rows, seed=seeds))
    want = 2e5 * ref.softmax(x)
    counts = np.bincount(ids, minlength=20)
    assert ((counts - want) ** 2 / want).sum() < 70  # 19 degrees of freedom


def test_a_graph_replays_with_new_seeds() -> None:
    import cupy

    x, seed = on_gpu(random(4, 32000, 9)), cupy.zeros(4, np.uint64)
    out = cupy.empty(4, np.int64)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        sampling.sample(x, seed=seed, out=out)
        stream.begin_capture()
        sampling.sample(x, seed=seed, out=out)
        graph = stream.end_capture()
        for value in (1, 2):
            seed.fill(value)
            graph.launch(stream)
            stream.synchronize()
            want = sampling.sample(x, seed=value)
            np.testing.assert_array_equal(on_host(out), on_host(want))


def test_drafts_and_beams() -> None:
    rng = np.random.default_rng(3)
    p, q = (rng.dirichlet(np.full(5000, 0.1), (20, n)).astype(np.float32) for n in (3, 4))
    drafts = p.argmax(-1).astype(np.int32)
    accepted = on_gpu(np.empty(20, np.int32))
    out = on_host(sampling.verify_drafts(on_gpu(drafts), on_gpu(q), on_gpu(p), seed=7,
                                         accepted=accepted))
    for row, stand in enumerate(on_host(accepted)):
        want, follow = ref.verify(drafts[row], q[row], p[row], 7, 0, 1e-5)
        assert stand == want
        assert int(out[row, stand]) in follow
    x, scores = random(1, 128256, 4).repeat(4, 0), np.array([[0, -1, -2, -3]], np.float32)
    beams, tokens, totals = (on_host(a) for a in sampling.beam_step(on_gpu(x), on_gpu(scores), 8))
    want_beams, want_tokens, want_totals = ref.beam_step(x, scores[0], 8)
    np.testing.assert_array_equal(beams[0], want_beams)
    np.testing.assert_array_equal(tokens[0], want_tokens)
    np.testing.assert_allclose(totals[0], want_totals, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"top_p": 0.5}, {"top_k": 1 << 23},
                                     {"min_p": 0.5, "top_p": 0.25}], ids=str)
def test_equal_logits_beyond_2_to_the_23(options: dict[str, Any]) -> None:
    """Masses still add up: tokens come from every quarter of the row (false alarm below 1e-6)."""
    width = (1 << 24) + 1000
    x = on_gpu(np.zeros((1, width), np.float32))
    tokens = [int(sampling.sample(x, seed=seed, **options)[0]) for seed in range(64)]
    assert np.histogram(tokens, 4, (0, width))[0].min() > 0


@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.99])
@pytest.mark.parametrize("scale", [0.1, 2.0, 8.0])
def test_nuclei_of_any_size(scale: float, top_p: float) -> None:
    import cupy

    settings = Settings(0.8, 0, top_p)
    for host in (random(2, 128256, 3) * scale).astype(np.float32):
        distribution = cupy.empty((1, len(host)), np.float32)
        ids = sampling.sample(on_gpu(host[None]), temperature=0.8, top_p=top_p, seed=5,
                              distribution=distribution)
        nominal, surely, perhaps = (ref.distribution(host, settings, s) for s in (0, SLACK, -SLACK))
        kept = on_host(distribution)[0] > 0
        assert not (kept & (perhaps == 0)).any()
        assert kept[(surely > 0) & (nominal > 1e-12)].all()
        assert any(int(ids[0]) in ref.draw(p, 5, 0, 1e-5) for p in (nominal, surely, perhaps))


@pytest.mark.parametrize("width", [32000, 128256, 200_001])
@pytest.mark.parametrize("count", [1, 15, 16, 40])
def test_rows_held_on_chip_give_the_token_of_the_long_way(count: int, width: int) -> None:
    """That way is the one with a distribution."""
    import cupy

    x = random(count, width, 5)
    kinds: list[Any]
    kinds = [np.round, np.sort, np.ones_like, lambda row: row - 1.2 * np.log1p(np.arange(row.size)),
             lambda row: np.where(np.arange(row.size) % 3, -np.inf, row),
             lambda row: np.where(np.arange(row.size) < 40, row, -np.inf),
             lambda row: np.where(np.arange(row.size) == 777, np.inf, row)]
    for row, kind in enumerate(kinds[:max(0, count - 2)]):
        x[row + 2] = kind(x[row + 2])
    x, seeds = on_gpu(x), cupy.arange(count, dtype=np.uint64)
    asked: list[dict[str, Any]] = [
        {"top_k": 50, "top_p": 0.9, "temperature": 0.8}, {"top_k": 1}, {"top_k": 56},
        {"top_k": 20, "min_p": 0.1, "top_p": 0.5}, {"top_k": 112, "top_p": 0.99},
        {"top_p": 0.9, "temperature": 0.8}, {"top_p": 0.3}, {"top_p": 0.999, "temperature": 9.0}]
    for options in asked:
        status, other = (cupy.empty(count, np.uint8) for _ in range(2))
        short = sampling.sample(x, seed=seeds, status=status, **options)
        long = sampling.sample(x, seed=seeds, status=other, **options,
                               distribution=cupy.empty(x.shape, np.float32))
        np.testing.assert_array_equal(on_host(short), on_host(long))
        np.testing.assert_array_equal(on_host(status), on_host(other))
