"""gpukit.matmul as the library runs it, on the emulated H100: any layout, type and epilogue."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from products import POISON, Product
from random_products import products

import gpukit
from gpukit import dtypes, emulator
from gpukit.devices import emulated
from gpukit.emulator.policies import POLICIES
from gpukit.ops.matmul import Gemm

LAYOUTS = ("nt", "nn", "tn", "tt")
SMALL = "gemm:bm=128,bn=32,stages=3"
EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5, "scales": ("each", "each")}


@pytest.fixture(autouse=True)
def h100() -> None:
    emulated.get("h100").use()


# Layouts, types, sizes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_layouts_are_read_as_they_are(layout: str, dtype: str) -> None:
    """Tails in every dimension; two tiles of C, three blocks of K."""
    Product(136, 72, 168, layout, dtype).run()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "tf32"), [("e4m3", False), ("e5m2", False), ("f32", True)])
def test_types_that_must_run_along_k_in_any_layout(layout: str, dtype: str, tf32: bool) -> None:
    Product(40, 48, 144, layout, dtype, tf32=tf32).run()


@pytest.mark.parametrize(("dtype", "out"), [
    (dtype, out) for dtype in ("bf16", "f16", "e4m3") for out in ("bf16", "f16", "f32")
    if dtype != out])
def test_types_of_c(dtype: str, out: str) -> None:
    Product(66, 40, 72, dtype=dtype, out=out).run()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_f32_is_exact_without_tf32(layout: str) -> None:
    Product(33, 30, 40, layout, "f32").run()
    Product(3, 40, 40, layout, "f32", **EVERYTHING | {"scales": (None, None)}).run()


@pytest.mark.parametrize(("m", "n", "k"), [
    (1, 1, 1), (1, 8, 8), (8, 1, 64), (1, 200, 72), (200, 1, 72), (17, 9, 5), (64, 64, 63),
    (129, 65, 65), (3, 264, 520)])
def test_any_size(m: int, n: int, k: int) -> None:
    Product(m, n, k).run()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("offsets", "pads"), [
    ((0, 0, 0), (8, 16, 8)), ((1, 0, 0), (0, 0, 0)), ((0, 3, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 0)),
    ((4, 4, 4), (4, 4, 4)), ((0, 0, 0), (0, 0, 3))])
def test_rows_at_any_address(layout: str, offsets: tuple[int, int, int],
                             pads: tuple[int, int, int]) -> None:
    """What TMA cannot address is packed (A, B) or written by plain stores (C)."""
    Product(40, 48, 72, layout, offsets=offsets, pads=pads).run()


def test_views_without_a_contiguous_dimension() -> None:
    a = np.random.default_rng(0).standard_normal((80, 144)).astype(np.float16)
    b = np.random.default_rng(1).standard_normal((144, 60)).astype(np.float16)
    want = a[::2, ::-2].astype("f8") @ b[::2, 3::3].astype("f8")
    got = gpukit.matmul(a[::2, ::-2], b[::2, 3::3], out_dtype="f32")
    assert np.allclose(got, want, atol=1e-4 * np.abs(want).max())
    row = np.broadcast_to(a[:1], (70, 144))
    want = row.astype("f8") @ b.astype("f8")
    assert np.allclose(gpukit.matmul(row, b, out_dtype="f32"), want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 0, 4), (0, 0, 0)], ids=str)
def test_empty_results(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    got = gpukit.matmul(np.ones((m, k), np.float16), np.ones((k, n), np.float16))
    assert got.shape == (m, n)
    assert gpukit.matmul(np.ones((2, m, k), np.float16), np.ones((2, k, n), np.float16)).size == 0


@pytest.mark.parametrize("dtype", ["bf16", "f32", "e4m3"])
def test_without_k_there_is_the_epilogue_of_zeros(dtype: str) -> None:
    Product(5, 7, 0, dtype=dtype).run()
    Product(5, 7, 0, dtype=dtype, **EVERYTHING).run()
    Product(5, 7, 0, batch=(2,), batch_b=(2,), dtype=dtype, bias=True, activation="silu").run()


def test_special_values_stay_where_they_are() -> None:
    """Tiles are filled up with zeros: an infinity must not meet them."""
    a, b = np.ones((70, 40), np.float16), np.ones((40, 72), np.float16)
    a[3], b[:, 5] = np.inf, np.nan
    got = gpukit.matmul(a, b)
    assert np.isnan(got[:, 5]).all()
    assert np.isinf(np.delete(got[3], 5)).all()
    assert (np.delete(np.delete(got, 3, 0), 5, 1) == 40).all()


# Epilogues


@pytest.mark.parametrize(("config", "activation"), [
    *((SMALL, name) for name in (None, "relu", "gelu", "gelu_tanh", "silu")),
    *((config, name) for config in ("gemm:bm=128,bn=32,stages=3,swap=true", "narrow:bn=32")
      for name in (None, "gelu"))])
def test_activations(activation: str | None, config: str) -> None:
    Product(30, 136, 72, activation=activation, alpha=0.75).run(config=config)
    Product(30, 136, 72, activation=activation, bias=True, residual=True).run(config=config)


@pytest.mark.parametrize(("bias", "residual", "scales"), [
    (True, False, (None, None)), (False, True, (None, None)), (False, False, ("one", None)),
    (False, False, (None, "each")), (False, False, ("each", "number")),
    (True, True, ("number", "one")), (True, True, ("each", "each"))])
@pytest.mark.parametrize("config", [SMALL, "gemm:bm=128,bn=32,stages=3,swap=true", "narrow:bn=32",
                                    "ladder:rung=sm80.a2", "ladder"])
def test_terms(bias: bool, residual: bool, scales: tuple[str | None, str | None],
               config: str) -> None:
    Product(30, 72, 40, bias=bias, residual=residual, scales=scales, alpha=2.0).run(config=config)


@pytest.mark.parametrize("config", [
    "gemm:bm=128,bn=64,stages=3,split=2", "gemm:bm=64,bn=32,stages=3,share=pingpong",
    "gemm:bm=64,bn=64,stages=3,share=columns", "gemm:bm=128,bn=32,stages=3,cm=2,cn=2",
    "narrow:rows=48,bn=24,split=3"])
@pytest.mark.parametrize("out", ["f16", "f32"])
def test_every_way_to_share_work_has_the_epilogue(config: str, out: str) -> None:
    Product(139, 80, 200, dtype="f16", out=out, pads=(0, 0, 8), **EVERYTHING).run(config=config)


def test_plain_stores_have_the_epilogue() -> None:
    Product(70, 51, 72, pads=(0, 0, 2), offsets=(0, 0, 1), **EVERYTHING).run(config=SMALL)
    Product(70, 51, 72, out="f32", **EVERYTHING).run(config=SMALL)


@pytest.mark.parametrize("config", [
    None, "gemm:bm=128,bn=32,cm=2,cn=2", "gemm:bm=128,bn=32,swap=true",
    "gemm:bm=64,bn=64,share=pingpong", "narrow:rows=56,bn=24,split=2", "vector",
    "ladder:rung=sm80.a2"])
def test_residual_may_be_out_itself(config: str | None) -> None:
    """Tiles hang over C, where nothing may be read that others write."""
    m = 7 if config == "vector" else 70
    p = Product(m, 72, 40)
    start = np.random.default_rng(9).standard_normal((m, 72)).astype(p.a.dtype)
    out = start.copy()
    gpukit.matmul(p.a, p.b, out=out, residual=out, config=config)
    want = p.a.astype("f8") @ p.b.astype("f8") + start.astype("f8")
    assert np.allclose(out.astype("f8"), want, rtol=2**-7, atol=2**-7)


def test_scales_as_columns_and_rows_of_one() -> None:
    p = Product(33, 40, 136, dtype="e4m3", scales=("each", "each"))
    a, b = p.terms["scale_a"], p.terms["scale_b"]
    p.check(gpukit.matmul(p.a, p.b, scale_a=a[:, None], scale_b=b[None]))
    p.check(gpukit.matmul(p.a, p.b, scale_a=a[:, None], scale_b=b))


# 8-bit floats


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_bytes_are_what_the_caller_says(dtype: str) -> None:
    p = Product(33, 40, 136, dtype=dtype)
    a, b = p.a.view(np.uint8), p.b.view(np.uint8)
    p.check(gpukit.matmul(a, b, dtype_a=dtype))
    p.check(gpukit.matmul(a, p.b, dtype_a=dtype))
    p.check(gpukit.matmul(p.a, b))
    assert a.dtype == np.uint8 and p.a.dtype == dtypes.parse(dtype).value_dtype


@pytest.mark.parametrize("shape", [(33, 40, 136), (130, 264, 300), (1, 8, 128), (64, 128, 129)],
                         ids=str)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_factors_of_blocks(shape: tuple[int, int, int], dtype: str) -> None:
    Product(*shape, dtype=dtype, scales=("block", "block")).run()


@pytest.mark.parametrize("config", [
    "gemm:bm=128,bn=112,stages=3", "gemm:bm=64,bn=96,stages=3,share=pingpong",
    "gemm:bm=64,bn=256,stages=2,share=columns", "gemm:bm=128,bn=64,stages=3,cm=2,cn=2"])
def test_factors_of_blocks_in_every_tile(config: str) -> None:
    Product(140, 300, 272, dtype="e4m3", scales=("block", "block"), bias=True, residual=True,
            activation="relu", alpha=0.5).run(config=config)


def test_factors_of_blocks_of_any_strides() -> None:
    p = Product(36, 264, 300, dtype="e4m3", scales=("block", "block"))
    a, b = p.terms["scale_a"], p.terms["scale_b"]
    fast = np.ascontiguousarray(a.T).T  # as TMA reads it: nothing to pack
    p.check(gpukit.matmul(p.a, p.b, scale_a=fast, scale_b=b[:, :].T.copy().T))
    wide = np.full((36, 6), np.nan, np.float32)
    wide[:, ::2] = a
    p.check(gpukit.matmul(p.a, p.b, scale_a=wide[:, ::2], scale_b=b))


def test_fast_sums_are_those_of_the_tensor_cores() -> None:
    counters = []
    for fast in (False, True):
        Product(64, 64, 256, dtype="e4m3", fast_accum=fast).run(config="gemm:bm=64,bn=64,stages=3,"
                                                                       "share=pingpong")
        counters.append(emulated.get("h100").last_counters.warp_instructions)
    assert counters[0] > counters[1]


# Batches


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stacks(layout: str) -> None:
    Product(40, 48, 72, layout, batch=(3,), batch_b=(3,)).run()
    Product(5, 48, 72, layout, batch=(2, 3), batch_b=(2, 3), bias=True, residual=True,
            scales=("number", "one")).run()


def test_rows_of_a_stack_are_one_product() -> None:
    """[2, 3, M, K] by [K, N]: one launch, with factors for each row."""
    gpukit_calls = []
    run = emulator.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emulator, "run", lambda *a, **k: gpukit_calls.append(1) or run(*a, **k))
        Product(5, 40, 72, batch=(2, 3), **EVERYTHING).run()
    assert len(gpukit_calls) == 1


@pytest.mark.parametrize("options", [
    {"batch_b": (2, 2)},  # one A for all
    {"batch": (3,), "pads": (8, 0, 0)},
    {"batch": (3,), "batch_b": (3,), "scales": ("each", None)},
    {"batch": (3,), "batch_b": (3,), "scales": (None, "each")},
    {"batch": (3,), "batch_b": (3,), "offsets": (1, 2, 3), "pads": (1, 1, 1)},
    {"batch": (2,), "batch_b": (2,), "dtype": "e4m3", "layout": "tn"},
    {"batch": (2,), "batch_b": (2,), "dtype": "f32", "bias": True},
    {"batch": (2,), "dtype": "f32", "residual": True}], ids=str)
def test_stacks_that_need_more(options: dict[str, Any]) -> None:
    Product(20, 24, 40, **options).run()


def test_heads_side_by_side() -> None:
    """[B, S, H, D] seen as [B, H, S, D]: leading dimensions that are no even stack."""
    rng = np.random.default_rng(3)
    q, k = (rng.standard_normal((2, 20, 3, 16)).astype(np.float16).transpose(0, 2, 1, 3)
            for _ in range(2))
    out = np.full((2, 20, 3, 20), np.nan, np.float16).transpose(0, 2, 1, 3)
    gpukit.matmul(q, k.swapaxes(2, 3), out=out)
    want = q.astype("f8") @ k.swapaxes(2, 3).astype("f8")
    assert np.allclose(out.astype("f8"), want, atol=0.02)


# Configurations


CONFIGS = ["gemm:bm=128,bn=16", "gemm:bm=256,bn=48,stages=2", "gemm:bm=128,bn=256",
           "gemm:bm=64,bn=160,stages=3,share=columns", "gemm:bm=192,bn=64,stages=2,share=columns",
           "gemm:bm=128,bn=48,stages=2,share=pingpong", "gemm:bm=128,bn=32,cm=2,group=1",
           "gemm:bm=128,bn=32,cn=2,group=2", "gemm:bm=128,bn=64,cm=2,cn=2,share=columns,stages=2",
           "gemm:bm=128,bn=64,cm=4", "gemm:bm=256,bn=32,cn=4,stages=2", "gemm:bm=128,bn=96,split=2",
           "gemm:bm=128,bn=8,stages=4,swap=true", "gemm:bm=64,bn=24,share=pingpong,swap=true",
           "gemm:bm=64,bn=128,share=columns,swap=true,cn=2,stages=3",
           "gemm:bm=128,bn=64,split=2,swap=true"]


@pytest.mark.parametrize("config", CONFIGS)
def test_forced_configurations(config: str) -> None:
    Product(150, 136, 200).run(config=config)


@pytest.mark.parametrize("config", [
    "gemm:bm=128,bn=64,stages=2", "gemm:bm=128,bn=128,stages=2,cm=2",
    "gemm:bm=256,bn=64,stages=2,cn=2", "gemm:bm=128,bn=64,split=2",
    "gemm:bm=64,bn=72,stages=2,share=pingpong",
    "gemm:bm=64,bn=128,share=columns,stages=2", "gemm:bm=128,bn=40,swap=true,stages=2"])
@pytest.mark.parametrize("layout", ["nn", "tn", "tt"])
def test_forced_configurations_of_other_layouts(config: str, layout: str) -> None:
    out = "f32" if "bn=72" in config else "bf16"
    Product(150, 136, 200, layout, out=out).run(config=config)


@pytest.mark.parametrize(("rows", "bn", "split"), [
    (8, 8, 1), (8, 40, 4), (24, 16, 2), (24, 128, 1), (64, 8, 1), (64, 40, 4), (72, 16, 2),
    (72, 128, 1), (128, 8, 1), (128, 40, 4)])
def test_forced_narrow_configurations(rows: int, bn: int, split: int) -> None:
    Product(20, 150, 200).run(config=f"narrow:rows={rows},bn={bn},stages=3,split={split}")


def test_narrow_splits_may_have_no_k() -> None:
    Product(3, 40, 72).run(config="narrow:rows=16,bn=8,split=4")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", [
    "gemm:bm=128,bn=32,stages=2", "gemm:bm=64,bn=32,stages=2,share=pingpong,cm=2",
    "gemm:bm=128,bn=32,stages=2,split=2", "narrow:rows=24,bn=16,stages=2,split=2"])
def test_every_schedule_gives_the_same_bits(policy: str, config: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    run, results = emulator.run, []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        results.append(Product(140, 72, 136, **EVERYTHING).run(config=config).tobytes())
    assert len(set(results)) == 1


# Anything


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(products())
def test_anything(product: Product) -> None:
    product.run()


def test_the_poison_of_these_tests_is_never_a_result() -> None:
    for size, dtype in ((2, np.float16), (2, ml_dtypes.bfloat16), (4, np.float32)):
        assert np.isnan(np.array([POISON[size]], f"u{size}").view(dtype)).all()


def test_a_configuration_is_its_text() -> None:
    config = Gemm(bm=64, swap=True, share="columns")
    assert str(config) == "gemm:bm=64,bn=256,share=columns,swap=true"
