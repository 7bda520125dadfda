"""The kernel for few rows of A with exact sums of 8-bit products, and with factors of blocks: the
same cases on the emulated H100 and on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from products import Product, moved

import gpukit
from gpukit.devices import cuda, emulated, nvrtc
from gpukit.devices.models import MODELS
from gpukit.kernels import matmul_library as specs
from gpukit.ops.matmul import Narrow, Problem, choose, limits
from gpukit.ops.matmul.candidates import candidates

H100 = MODELS["h100"].properties
EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5}
SCALES = ((None, None), ("number", "one"), ("each", "each"), ("block", "block"))

# Tiles of weights that end within blocks of 128 and within N, K within a block, tokens in a tile.
CASES = [(Product(m, n, k, dtype=dtype, out=out, scales=scales, **words), config)
         for m, n, k, dtype, out, config, words in (
             (1, 128, 128, "e4m3", None, "narrow:rows=64,bn=8", {}),
             (5, 331, 520, "e5m2", "f16", "narrow:rows=16,bn=8,split=4", EVERYTHING),
             (16, 300, 900, "e4m3", None, "narrow:rows=48,bn=16,stages=3,split=2", {}),
             (33, 200, 300, "e4m3", "f32", "narrow:rows=112,bn=40,stages=2", EVERYTHING),
             (64, 264, 640, "e4m3", None, "narrow:rows=128,bn=64,stages=4", EVERYTHING),
             (70, 136, 4224, "e4m3", "f32", "narrow:rows=80,bn=64,stages=4", {}),
             (130, 160, 272, "e5m2", None, "narrow:rows=64,bn=128,stages=3", EVERYTHING))
         for scales in SCALES]


def name(value: Any) -> str:
    if isinstance(value, Product):
        return f"{value.m}x{value.n}x{value.k}-{value.dtype}-{value.scales[0]}"
    return str(value)


@pytest.fixture
def hopper() -> Any:
    import cupy

    if cuda.get(0).properties.capability != (9, 0):
        pytest.skip("needs a Hopper GPU")
    return cupy


@pytest.mark.parametrize(("product", "config"), CASES, ids=name)
def test_exact_sums(product: Product, config: str) -> None:
    emulated.get("h100").use()
    product.run(config=config)


@pytest.mark.gpu
@pytest.mark.parametrize(("product", "config"), CASES, ids=name)
def test_exact_sums_on_a_gpu(hopper: Any, product: Product, config: str) -> None:
    product.run_gpu(hopper, config=config)


@pytest.mark.gpu
@pytest.mark.parametrize("scales", SCALES, ids=str)
@pytest.mark.parametrize("m", [1, 8, 16, 32, 64, 100, 128])
def test_weights_of_a_model_on_a_gpu(hopper: Any, m: int,
                                     scales: tuple[str | None, str | None]) -> None:
    Product(m, 4096, 7168, dtype="e4m3", scales=scales).run_gpu(hopper)
    Product(m, 2112, 7168, dtype="e4m3", scales=scales, **EVERYTHING).run_gpu(hopper)


def large_and_small() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Products of which the first 128 leave no bit for the rest in a tensor core's sum."""
    a, b = np.ones((4, 4096)), np.ones((4096, 8))
    a[:, :128] = b[:128] = 448
    want = a @ b
    return a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn), want


@pytest.mark.gpu
@pytest.mark.parametrize("config", ["narrow:rows=16,bn=8", "narrow:rows=16,bn=8,split=2"])
def test_small_products_are_not_lost_on_a_gpu(hopper: Any, config: str) -> None:
    a, b, want = large_and_small()
    words: dict[str, Any] = {"dtype_a": "e4m3", "out_dtype": "f32", "config": config}
    x, w = moved(hopper, a), moved(hopper, np.ascontiguousarray(b.T)).T
    assert (gpukit.matmul(x, w, **words).get() == want).all()
    assert (gpukit.matmul(x, w, fast_accum=True, **words).get() != want).any()


def test_factors_of_blocks_of_any_strides() -> None:
    emulated.get("h100").use()
    p = Product(36, 264, 300, dtype="e4m3", scales=("block", "block"))
    a, b = p.terms["scale_a"], p.terms["scale_b"]
    config = "narrow:rows=96,bn=40"
    p.check(gpukit.matmul(p.a, p.b, config=config, scale_b=b.T.copy().T,
                          scale_a=np.ascontiguousarray(a.T).T))
    wide = np.full((36, 6), np.nan, np.float32)
    wide[:, ::2] = a
    p.check(gpukit.matmul(p.a, p.b, scale_a=wide[:, ::2], scale_b=b, config=config))


@pytest.mark.parametrize("sums", ["promoted", "blocks"])
@pytest.mark.parametrize("m", [1, 16, 32, 64])
def test_few_rows_of_8_bit_operands_stream_the_weights(m: int, sums: str) -> None:
    for n, k in ((4096, 4096), (28672, 4096), (2112, 7168), (7168, 16384)):
        assert isinstance(choose(Problem(m, n, k, dtype="e4m3", sums=sums), H100), Narrow)


@pytest.mark.slow
@pytest.mark.parametrize("sums", ["plain", "promoted", "blocks"])
@pytest.mark.parametrize("extras", [False, True])
def test_no_candidate_spills(sums: str, extras: bool) -> None:
    """Also of tiles beyond the candidates, which may be forced; stages do not change the code."""
    kind = Problem(128, 4096, 4096, dtype="e4m3", sums=sums, extras=extras,
                   act="gelu" if extras else "none")
    found = {Narrow(c.rows, c.bn, 2) for m in (8, 64, 96, 128)
             for c in candidates(replace(kind, m=m), H100)
             if isinstance(c, Narrow) and c.rows in (64, 112) and c.split == 1}
    configs = [*found, *(Narrow(rows, bn, 2) for rows, bn in widest(kind))]
    built = nvrtc.compile_variants(
        specs.NARROW, [limits.tunables(config, kind) for config in configs], "sm_90a")
    spills = {str(config): nvrtc.resources(compiled).spill_bytes
              for config, compiled in zip(configs, built, strict=True)}
    assert not {config: spilt for config, spilt in spills.items() if spilt}


def widest(problem: Problem) -> list[tuple[int, int]]:
    """Rows of weights and the most tokens that the rules allow with them."""
    return [(rows, max(bn for bn in range(8, 129, 8)
                       if not limits.refusal(Narrow(rows, bn, 2), problem, H100)))
            for rows in (64, 128, 192, 256)]
