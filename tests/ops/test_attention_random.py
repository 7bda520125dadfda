"""Random problems against the oracle: small ones emulated, larger ones on a GPU."""

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

Array = np.ndarray[Any, Any]
BF16 = dtypes.parse("bf16")
SIZES = {"chunked_causal": "chunk", "sliding_causal": "window", "sliding": "window"}


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16.numpy)


@st.composite
def problems(draw: st.DrawFn, longest: int) -> dict[str, Any]:
    length = st.one_of(st.sampled_from([0, 1, 63, 64, 65, 127, 128, 129]),
                       st.integers(0, longest)).map(lambda n: min(n, longest))
    mask = draw(st.sampled_from(["null", "causal", *SIZES]))
    words = {SIZES[mask]: draw(st.integers(1, longest))} if mask in SIZES else {}
    return {"queries": draw(length), "keys": draw(length), "kv_heads": draw(st.integers(1, 2)),
            "group": draw(st.sampled_from([1, 2, 3, 8])),
            "d": draw(st.sampled_from([8, 64, 72, 128, 192, 256])),
            "mask": mask, "words": words, "top_left": draw(st.booleans()),
            "padded": draw(st.booleans()), "seed": draw(st.integers(0, 99))}


def check(p: dict[str, Any], kernel: str | None, up: Any, down: Any) -> None:
    seed, hk, d = p["seed"], p["kv_heads"], p["d"]
    q = normal(seed, 2, p["queries"], hk * p["group"], d)
    k, v = (normal(seed + i, 2, p["keys"], hk, d) for i in (1, 2))
    rules = Rules(p["mask"], top_left=p["top_left"], **p["words"])
    words = {"mask": p["mask"], "top_left": p["top_left"], **p["words"], "kernel": kernel}
    lengths = [p["keys"] // 2, p["keys"]]
    want = layouts.padded(q, k, v, lengths, rules) if p["padded"] else ref.oracle(q, k, v, rules)
    if p["padded"]:
        k[0, lengths[0]:] = v[0, lengths[0]:] = np.nan
        words["kv_lengths"] = up(np.array(lengths, np.uint32))
    out, lse = gpukit.attention(up(q), up(k), up(v), return_lse=True, **words)
    judge(Result(down(out).astype(np.float64), down(lse)), want)


def judge(got: Result, want: Result) -> None:
    """Weights are rounded to 2^-9: outputs are off by at most that times what they average."""
    empty = np.isneginf(want.lse)
    assert (np.isneginf(got.lse) == empty).all()
    zeros = np.where(empty, 0.0, got.lse), np.where(empty, 0.0, want.lse)
    assert np.abs(zeros[0] - zeros[1]).max(initial=0) < 1e-4
    assert (got.out.swapaxes(1, 2)[empty] == 0).all()
    assert np.abs(got.out - want.out).max(initial=0) < 0.04


@settings(max_examples=12, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(problems(130), st.sampled_from(["k2", "k5"]))
def test_emulated(p: dict[str, Any], kernel: str) -> None:
    check(p, kernel, lambda x: x, lambda x: x)


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(15))  # processes share them: nearly each compiles
@settings(max_examples=10, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(problems(1500), st.sampled_from([None, "k2"]))
def test_gpu(part: int, p: dict[str, Any], kernel: str | None) -> None:
    cupy = pytest.importorskip("cupy")
    check(p, kernel, cupy.asarray, cupy.asnumpy)


@pytest.mark.gpu
def test_gpu_replay_with_other_lengths() -> None:
    cupy = pytest.importorskip("cupy")
    q, k, v = normal(1, 3, 300, 4, 128), normal(2, 3, 900, 2, 128), normal(3, 3, 900, 2, 128)
    lengths = cupy.zeros(3, cupy.uint32)
    given_arrays = [cupy.asarray(x) for x in (q, k, v)]
    out = cupy.empty_like(given_arrays[0])
    words = {"mask": "causal", "kv_lengths": lengths, "out": out}
    gpukit.attention(*given_arrays, **words)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gpukit.attention(*given_arrays, **words)
        graph = stream.end_capture()
    for chosen in ([0, 1, 900], [899, 300, 299], [0, 0, 0]):
        lengths[...] = cupy.array(chosen, cupy.uint32)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        want = layouts.padded(q, k, v, chosen, Rules("causal"))
        assert np.abs(cupy.asnumpy(out).astype(np.float64) - want.out).max() < 0.04


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [None, "k2"])
def test_gpu_offsets_beyond_32_bits(kernel: str | None) -> None:
    cupy = pytest.importorskip("cupy")
    batch, rows = 18, 1 << 20
    if cupy.cuda.Device().mem_info[0] < 12 << 30:
        pytest.skip("needs 12 GB")
    k = cupy.zeros((batch, rows, 1, 128), BF16.numpy)  # 2.4e9 elements
    q, part = normal(1, batch, 5, 1, 128), normal(2, batch, 70, 1, 128)
    k[:, :70] = cupy.asarray(part)
    lengths = cupy.full(batch, 70, cupy.uint32)
    out = gpukit.attention(cupy.asarray(q), k, k, kv_lengths=lengths, kernel=kernel)
    want = ref.oracle(q, part, part)
    assert np.abs(cupy.asnumpy(out).astype(np.float64) - want.out).max() < 0.04
