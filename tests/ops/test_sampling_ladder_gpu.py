"""The sampling ladder on a GPU, at vocabularies that models have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukit import sampling
from gpukit.ops.sampling.ladder import RUNGS, run_rung
from gpukit.reference import sampling as ref
from gpukit.reference.sampling import Settings

pytestmark = pytest.mark.gpu

SLACK = 1e-6


def rows(width: int) -> Any:
    """Random logits, many ties, NaNs."""
    x = np.random.default_rng(width).standard_normal((3, width), np.float32) * 2
    x[1], x[2, ::7] = np.round(x[1]), np.nan
    return x


def run(rung: str, x: Any, s: Settings, **options: Any) -> Any:
    import cupy

    return cupy.asnumpy(run_rung(rung, cupy.asarray(x), temperature=s.temperature, top_k=s.top_k,
                                 top_p=s.top_p, joint=s.joint, seed=11, **options))


@pytest.mark.parametrize("settings", [
    Settings(0.8, 50, 0.9), Settings(1.0, 0, 0.9), Settings(1.0, 1000, 0.95),
    Settings(1.0, 50, 0.9, joint=True), Settings(), Settings(0.0)], ids=str)
@pytest.mark.parametrize("width", [32001, 128256])
@pytest.mark.parametrize("rung", ["s1", "s2", "s3", "s5"])
def test_sets_and_tokens(rung: str, width: int, settings: Settings) -> None:
    import cupy

    if rung == "s2" and (settings.joint or (not settings.top_k and settings.temperature)):
        pytest.skip("s2 has neither a joint top-p nor rows without a k")
    x, limits = rows(width), cupy.empty(3, np.float32)
    ids = run(rung, x, settings, limits=limits)
    np.testing.assert_array_equal(run(rung, np.tile(x, (50, 1)), settings).reshape(50, 3),
                                  np.tile(ids, (50, 1)))
    for token, limit, row in zip(ids, cupy.asnumpy(limits), x, strict=True):
        if settings.temperature:
            kept = np.nan_to_num(row, nan=-np.inf) >= limit
            surely, perhaps = (ref.distribution(row, settings, s) for s in (SLACK, -SLACK))
            assert not (kept & (perhaps == 0) & (ref.distribution(row, Settings()) > 1e-12)).any()
            assert kept[surely > 1e-12].all()
        assert int(token) in ref.draw(ref.distribution(row, settings), 11, 0, 1e-5)


def test_filtered_rows_draw_the_token_of_sample() -> None:
    import cupy

    x, settings = rows(128256), Settings(0.8, 50, 0.9)
    want = cupy.asnumpy(sampling.sample(cupy.asarray(x), temperature=0.8, top_k=50, top_p=0.9,
                                        seed=11))
    for rung in ("s1", "s2", "s3", "s5"):
        np.testing.assert_array_equal(run(rung, x, settings), want)


def test_rejection_draws_what_is_kept_as_often_as_it_should() -> None:
    """Chi-square of 3000 draws over the tokens kept of 1000: false alarm below 1e-6."""
    import cupy

    x, settings = rows(1000)[:1], Settings(1.0, 20, 0.9, joint=True)
    out, on_gpu = cupy.empty((3000, 1), np.int64), cupy.asarray(x)
    for seed in range(3000):
        run_rung("s4", on_gpu, top_k=20, top_p=0.9, joint=True, seed=seed, out=out[seed])
    counts = np.bincount(cupy.asnumpy(out)[:, 0], minlength=1000)
    want = 3000 * ref.distribution(x[0], settings)
    live = want > 0
    assert counts[~live].sum() == 0
    assert ((counts - want)[live] ** 2 / want[live]).sum() < 70  # at most 19 degrees of freedom


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_is_captured_in_a_graph(rung: str) -> None:
    import cupy

    from gpukit.ops.sampling.ladder import workspace_words

    x, out = cupy.asarray(rows(32000)), cupy.empty(3, np.int64)
    space = cupy.empty(max(1, workspace_words(rung, x, top_k=50)), np.uint64)
    options = {"top_k": 50, "seed": 3, "workspace": space}
    want = cupy.asnumpy(run_rung(rung, x, **options))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        run_rung(rung, x, out=out, **options)
        graph = stream.end_capture()
        out.fill(-1)
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), want)
