"""Random problems of e4m3 operands on a GPU, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpukit
from gpukit import dtypes
from gpukit.reference import attention as ref
from gpukit.reference import attention_layouts as layouts
from gpukit.reference.attention import Result, Rules

pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]
E4M3 = dtypes.parse("e4m3").value_dtype
SIZES = {"chunked_causal": "chunk", "sliding_causal": "window", "sliding": "window"}


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(E4M3)


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    length = st.one_of(st.sampled_from([0, 1, 63, 64, 65, 159, 160, 161]), st.integers(0, 1500))
    mask = draw(st.sampled_from(["null", "causal", *SIZES]))
    words = {SIZES[mask]: draw(st.integers(1, 1500))} if mask in SIZES else {}
    return {"queries": draw(length), "keys": draw(length), "kv_heads": draw(st.integers(1, 2)),
            "group": draw(st.sampled_from([1, 2, 3, 8])),
            "d": draw(st.sampled_from([16, 72, 128, 256])),
            "mask": mask, "words": words, "top_left": draw(st.booleans()),
            "padded": draw(st.booleans()), "seed": draw(st.integers(0, 99))}


def judge(got: Result, want: Result) -> None:
    empty = np.isneginf(want.lse)
    assert (np.isneginf(got.lse) == empty).all()
    zeros = np.where(empty, 0.0, got.lse), np.where(empty, 0.0, want.lse)
    assert np.abs(zeros[0] - zeros[1]).max(initial=0) < 5e-3
    assert (got.out.swapaxes(1, 2)[empty] == 0).all()
    assert np.abs(got.out - want.out).max(initial=0) < 0.25


@pytest.mark.parametrize("part", range(10))  # processes share them: nearly each compiles
@settings(max_examples=6, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(problems())
def test_gpu(part: int, p: dict[str, Any]) -> None:
    cupy = pytest.importorskip("cupy")
    seed, hk, d = p["seed"], p["kv_heads"], p["d"]
    q = normal(seed, 2, p["queries"], hk * p["group"], d)
    k, v = (normal(seed + i, 2, p["keys"], hk, d) for i in (1, 2))
    rules = Rules(p["mask"], top_left=p["top_left"], **p["words"])
    words = {"mask": p["mask"], "top_left": p["top_left"], **p["words"]}
    lengths = [p["keys"] // 2, p["keys"]]
    want = layouts.padded(q, k, v, lengths, rules) if p["padded"] else ref.oracle(q, k, v, rules)
    if p["padded"]:
        k[0, lengths[0]:] = v[0, lengths[0]:] = np.nan
        words["kv_lengths"] = cupy.asarray(np.array(lengths, np.uint32))
    out, lse = gpukit.attention(*(cupy.asarray(x.view(np.uint8)) for x in (q, k, v)),
                                return_lse=True, dtype="e4m3", **words)
    judge(Result(cupy.asnumpy(out).astype(np.float64), cupy.asnumpy(lse)), want)


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_many_keys_are_averaged_as_well(mask: str) -> None:
    """Sums over 16384 keys of values that are all positive: what tensor cores drop would show."""
    cupy = pytest.importorskip("cupy")
    q, k = normal(1, 1, 256, 2, 128), normal(2, 1, 16384, 2, 128)
    v = np.abs(normal(3, 1, 16384, 2, 128).astype(np.float32)).astype(E4M3)
    got = gpukit.attention(*(cupy.asarray(x.view(np.uint8)) for x in (q, k, v)), dtype="e4m3",
                           mask=mask)
    want = ref.oracle(q, k, v, Rules(mask)).out
    assert np.abs(cupy.asnumpy(got).astype(np.float64) / want - 1).max() < 0.05


def test_torch_tensors_say_what_they_hold() -> None:
    pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(1, 300, 2, 64, device="cuda").to(torch.float8_e4m3fn) for _ in range(3))
    out = gpukit.attention(q, k, v, k_scale=2.0, v_scale=torch.full((2,), 3.0, device="cuda"))
    wide = [x.cpu().float().numpy() for x in (q, k, v)]
    want = ref.oracle(wide[0], wide[1] * 2, wide[2] * 3).out
    assert np.abs(out.get().astype(np.float64) - want).max() < 0.75


def test_calls_that_have_been_made_before() -> None:
    """The short way, with other arrays and other factors each time."""
    cupy = pytest.importorskip("cupy")
    for seed in range(4):
        q, k, v = normal(seed, 1, 200, 4, 128), normal(7, 1, 300, 2, 128), normal(9, 1, 300, 2, 128)
        factors = np.float32([1, 2]) * (seed + 1)
        out, lse = gpukit.attention(*(cupy.asarray(x.view(np.uint8)) for x in (q, k, v)),
                                    dtype="e4m3", v_scale=cupy.asarray(factors), q_scale=0.5,
                                    mask="causal", return_lse=True)
        scaled = v.astype(np.float64) * factors[:, None]
        want = ref.oracle(q, k, scaled, Rules("causal", scale=0.5 / np.sqrt(128)))
        assert np.abs(cupy.asnumpy(out).astype(np.float64) - want.out).max() < 0.25 * factors[1]
        assert np.abs(cupy.asnumpy(lse) - want.lse).max() < 5e-3


def test_replay_with_other_lengths_and_scales() -> None:
    cupy = pytest.importorskip("cupy")
    q, k, v = normal(1, 2, 300, 4, 128), normal(2, 2, 900, 2, 128), normal(3, 2, 900, 2, 128)
    lengths, factor = cupy.zeros(2, cupy.uint32), cupy.ones((2, 2), cupy.float32)
    arrays = [cupy.asarray(x.view(np.uint8)) for x in (q, k, v)]
    out = cupy.empty(q.shape, np.float16)
    words = {"mask": "causal", "kv_lengths": lengths, "v_scale": factor, "out": out,
             "dtype": "e4m3"}
    gpukit.attention(*arrays, **words)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gpukit.attention(*arrays, **words)
        graph = stream.end_capture()
    for chosen, times in (([1, 900], 1.0), ([899, 300], 2.0), ([0, 0], 1.0)):
        lengths[...] = cupy.array(chosen, cupy.uint32)
        factor.fill(times)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        want = times * layouts.padded(q, k, v, chosen, Rules("causal")).out
        assert np.abs(cupy.asnumpy(out).astype(np.float64) - want).max() < 0.25 * times
