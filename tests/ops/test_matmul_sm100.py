"""gpukit.matmul on the emulated B200: any layout, type, tile and epilogue, and what is chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from products import Product
from random_products import products

import gpukit
from gpukit import emulator
from gpukit.devices import emulated
from gpukit.devices.models import MODELS
from gpukit.emulator.policies import POLICIES
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels import matmul_sm100_library as specs
from gpukit.ops.matmul import Problem, Tcgen05, Vector, choose, sm100_model
from gpukit.ops.matmul.candidates import tcgen05s

LAYOUTS = ("nt", "nn", "tn", "tt")
B200, H100 = MODELS["b200"].properties, MODELS["h100"].properties
PAIR = "tcgen05:bn=64,stages=3"
SINGLE = "tcgen05:bn=32,ctas=1,cluster=1,stages=3"
SWAPPED = "tcgen05:bn=32,ctas=1,cluster=1,stages=3,swap=true"
WAYS = (PAIR, SINGLE, SWAPPED, "tcgen05:bn=64,cluster=4,stages=3",
        "tcgen05:bn=32,ctas=1,cluster=2,stages=3", "tcgen05:bn=64,stages=3,swap=true",
        "tcgen05:bn=64,stages=3,split=2", f"{SWAPPED},split=3")
EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5, "scales": ("each", "each")}


@pytest.fixture(autouse=True)
def b200() -> Any:
    device = emulated.get("b200")
    device.use()
    yield device
    emulated.get().use()


def instructions() -> int:
    """Of the tensor cores, in the last launch."""
    counters = emulated.get("b200").last_counters
    assert counters is not None
    return int(counters.extra.get("tcgen05.mma", 0))


# Layouts, types, sizes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("config", [PAIR, SWAPPED])
def test_layouts_are_read_as_they_are(layout: str, config: str | None) -> None:
    """Tails in every dimension; several tiles of C, three steps of K."""
    Product(136, 72, 168, layout).run(config=config)
    assert instructions()


@pytest.mark.parametrize("layout", ["nn", "tt"])
@pytest.mark.parametrize("config", ["tcgen05:bn=192,stages=3", "tcgen05:bn=256,cluster=4,stages=3",
                                    "tcgen05:bn=96,ctas=1,cluster=1,stages=3"])
def test_tiles_of_operands_along_n_are_whole_slabs(layout: str, config: str) -> None:
    Product(130, 264, 72, layout, "f16").run(config=config)


@pytest.mark.parametrize("config", [PAIR, SWAPPED])
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "f32"), ("f16", "f16"), ("f16", "bf16")])
def test_types_of_c(dtype: str, out: str, config: str) -> None:
    Product(139, 80, 200, dtype=dtype, out=out).run(config=config)


@pytest.mark.parametrize(("m", "n", "k"), [
    (1, 1, 1), (8, 1, 64), (9, 200, 72), (200, 1, 72), (17, 9, 5), (129, 65, 65), (3, 264, 520)])
def test_any_size(m: int, n: int, k: int) -> None:
    Product(m, n, k).run()


@pytest.mark.parametrize("bn", [32, 96, 192, 224, 256])
@pytest.mark.parametrize("ctas", [1, 2])
def test_widths(bn: int, ctas: int) -> None:
    Product(140, bn + 24, 72).run(config=f"tcgen05:bn={bn},ctas={ctas},cluster={ctas},stages=2")


@pytest.mark.parametrize("bn", [16, 48, 112, 192, 256])
def test_widths_of_transposed_tiles(bn: int) -> None:
    """One tile of tokens, hung over by those there are."""
    Product(bn - 5, 136, 72).run(config=f"tcgen05:bn={bn},ctas=1,cluster=1,stages=2,swap=true")


@pytest.mark.parametrize(("cluster", "tiles"), [
    (2, (1, 3)), (2, (3, 3)), (4, (1, 1)), (4, (5, 3))], ids=str)
@pytest.mark.parametrize("ctas", [1, 2])
def test_odd_numbers_of_tiles_in_clusters(ctas: int, cluster: int, tiles: tuple[int, int]) -> None:
    Product(128 * tiles[0] - 3, 64 * tiles[1] - 8, 72).run(
        config=f"tcgen05:bn=64,ctas={ctas},cluster={cluster},stages=3,group=2")


@pytest.mark.parametrize("layout", ["nt", "tn"])
@pytest.mark.parametrize(("offsets", "pads"), [
    ((0, 0, 0), (8, 16, 8)), ((1, 0, 0), (0, 0, 0)), ((0, 3, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 0)),
    ((0, 0, 0), (0, 0, 3))])
def test_rows_at_any_address(layout: str, offsets: tuple[int, int, int],
                             pads: tuple[int, int, int]) -> None:
    """What TMA cannot address is packed (A, B) or written by the transposed product (C)."""
    Product(40, 48, 72, layout, offsets=offsets, pads=pads).run()


@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_without_k_there_is_the_epilogue_of_zeros(dtype: str) -> None:
    Product(5, 7, 0, dtype=dtype).run()
    Product(5, 7, 0, dtype=dtype, **EVERYTHING).run()
    assert gpukit.matmul(np.ones((0, 4), np.float16), np.ones((4, 5), np.float16)).shape == (0, 5)


def test_special_values_stay_where_they_are() -> None:
    """Tiles are filled up with zeros: an infinity must not meet them."""
    a, b = np.ones((70, 40), np.float16), np.ones((40, 72), np.float16)
    a[3], b[:, 5] = np.inf, np.nan
    got = gpukit.matmul(a, b)
    assert np.isnan(got[:, 5]).all()
    assert np.isinf(np.delete(got[3], 5)).all()
    assert (np.delete(np.delete(got, 3, 0), 5, 1) == 40).all()


# tf32 and 8-bit floats


@pytest.mark.parametrize(("layout", "dtype", "dtype_b"), [
    ("nt", "f32", None), ("nn", "f32", None), ("nt", "e4m3", None), ("tn", "e5m2", None),
    ("nt", "e4m3", "e5m2"), ("nt", "e5m2", "e4m3")])
@pytest.mark.parametrize("config", [PAIR, SWAPPED])
def test_types_that_must_run_along_k(layout: str, dtype: str, dtype_b: str | None,
                                     config: str) -> None:
    Product(40, 80, 144, layout, dtype, tf32=dtype == "f32", dtype_b=dtype_b).run(config=config)


@pytest.mark.parametrize("scales", [("one", None), (None, "each"), ("each", "number"),
                                    ("each", "each")])
@pytest.mark.parametrize("config", [PAIR, SWAPPED, f"{SWAPPED},split=2"])
def test_factors_of_8_bit_operands(scales: tuple[str | None, str | None], config: str) -> None:
    Product(33, 72, 272, dtype="e4m3", scales=scales).run(config=config)


def test_8_bit_products_are_added_up_in_f32_in_any_case() -> None:
    sums = [Product(33, 40, 520, dtype="e4m3", fast_accum=fast).run() for fast in (False, True)]
    assert sums[0].tobytes() == sums[1].tobytes()


def test_factors_of_blocks_of_128_are_for_hopper() -> None:
    p = Product(33, 40, 136, dtype="e4m3", scales=("block", "block"))
    with pytest.raises(UnsupportedError, match="factors of blocks of 128 need sm_90a, this GPU is "
                                               "sm_100"):
        gpukit.matmul(p.a, p.b, **p.terms)


# Epilogues


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("config", [PAIR, SWAPPED])
def test_activations(activation: str, config: str) -> None:
    if activation == "relu":
        Product(30, 136, 72, activation=activation, alpha=0.75).run(config=config)
    Product(30, 136, 72, activation=activation, bias=True, residual=True).run(config=config)


@pytest.mark.parametrize(("bias", "residual", "scales"), [
    (True, False, (None, None)), (False, True, (None, None)), (False, False, ("one", None)),
    (False, False, (None, "each")), (False, False, ("each", "number")),
    (True, True, ("number", "one"))])
@pytest.mark.parametrize("config", [PAIR, SWAPPED])
def test_terms(bias: bool, residual: bool, scales: tuple[str | None, str | None],
               config: str) -> None:
    Product(30, 72, 40, bias=bias, residual=residual, scales=scales, alpha=2.0).run(config=config)


@pytest.mark.parametrize("config", WAYS)
def test_every_way_to_share_work_has_the_epilogue(config: str) -> None:
    out = "f32" if config in (PAIR, SWAPPED) else "f16"
    Product(139, 80, 200, dtype="f16", out=out, pads=(0, 0, 8), **EVERYTHING).run(config=config)


@pytest.mark.parametrize("config", [PAIR, SWAPPED, f"{SWAPPED},split=3"])
def test_residual_may_be_out_itself(config: str) -> None:
    p = Product(70, 72, 200)
    start = np.random.default_rng(9).standard_normal((70, 72)).astype(p.a.dtype)
    out = start.copy()
    gpukit.matmul(p.a, p.b, out=out, residual=out, config=config)
    want = p.a.astype("f8") @ p.b.astype("f8") + start.astype("f8")
    assert np.allclose(out.astype("f8"), want, rtol=2**-7, atol=2**-7)


# Batches, slices of K


@pytest.mark.parametrize("config", [PAIR, SWAPPED, f"{PAIR},split=2", None])
def test_stacks(config: str | None) -> None:
    Product(140, 48, 200, "nn", batch=(3,), batch_b=(3,), bias=True, residual=True).run(
        config=config)


@pytest.mark.parametrize("options", [
    {"batch_b": (2, 2)}, {"batch": (3,), "pads": (8, 0, 0)},
    {"batch": (3,), "batch_b": (3,), "offsets": (1, 2, 3), "pads": (1, 1, 1)}], ids=str)
def test_stacks_that_need_more(options: dict[str, Any]) -> None:
    Product(20, 24, 40, **options).run()


@pytest.mark.parametrize(("k", "split"), [(128, 2), (320, 4), (576, 8), (577, 8)])
def test_slices_of_k_are_none_without_work(k: int, split: int) -> None:
    """Five steps in four slices of two are three."""
    Product(20, 40, k).run(config=f"{SWAPPED},split={split}")


# Schedules


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", [
    "tcgen05:bn=96,stages=2", "tcgen05:bn=64,cluster=4,stages=2,split=2",
    "tcgen05:bn=32,ctas=1,cluster=2,stages=2,swap=true"])
def test_every_schedule_gives_the_same_bits(policy: str, config: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, of an odd number of steps and pieces, through a ring and buffers of two."""
    run, results = emulator.run, []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        results.append(Product(200, 104, 136, **EVERYTHING).run(config=config).tobytes())
    assert len(set(results)) == 1


def test_the_next_tile_is_multiplied_while_this_one_is_written(b200: Any) -> None:
    """Clusters take the tiles of those that have not started."""
    Product(64, 128 * 8, 64).run(config="tcgen05:bn=64,ctas=1,cluster=1,stages=2,swap=true")
    assert 0 < b200.last_counters.extra["cancelled_clusters"] < 8


@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_no_bank_conflicts(out: str, b200: Any) -> None:
    Product(256, 128, 128, out=out).run(config="tcgen05:bn=128,stages=3")
    extra = b200.last_counters.extra
    assert b200.last_counters.shared_stores.conflicts == 0
    assert extra["tcgen05 shared wavefronts"] == extra["tcgen05 shared wavefronts ideal"]


@pytest.mark.parametrize(("size", "out"), [(2, "bf16"), (4, "f32")])
def test_transposed_tiles_leave_in_whole_sectors(size: int, out: str, b200: Any) -> None:
    Product(32, 256, 64, out=out).run(config=SWAPPED)
    assert b200.last_counters.global_stores.sectors == 32 * 256 * size // 32


# Anything


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(products())
def test_anything(product: Product) -> None:
    product.run()


# The choice


@pytest.mark.parametrize(("shape", "bn", "swap"), [
    ((8192, 8192, 8192), 256, False), ((3500, 43008, 5376), 256, False),
    ((16, 4096, 4096), 16, True), ((64, 14336, 4096), 64, True)], ids=str)
def test_what_is_chosen(shape: tuple[int, int, int], bn: int, swap: bool) -> None:
    """The second is a shape whose fastest tile on a B200 is public: 256 x 256."""
    config = choose(Problem(*shape), B200)
    assert isinstance(config, Tcgen05)
    assert (config.bn, config.swap) == (bn, swap)
    assert config.ctas == 2 or swap


def test_tiles_of_a_wave_are_near_a_square() -> None:
    """74 pairs of 256 x 256: eight rows by nine columns; of narrower tiles fewer rows."""
    found = {c.bn: c.group for c in tcgen05s(Problem(8192, 8192, 8192), B200)
             if (c.ctas, c.cluster, c.split) == (2, 2, 1)}
    assert (found[256], found[64]) == (8, 4)


def test_few_tiles_are_narrower_or_divide_k() -> None:
    small, long = (choose(Problem(*shape), B200) for shape in ((512, 512, 512), (64, 512, 16384)))
    assert isinstance(small, Tcgen05) and small.bn <= 64
    assert isinstance(long, Tcgen05) and long.split > 4


def test_one_row_is_read_by_the_kernels_for_vectors() -> None:
    assert choose(Problem(1, 4096, 4096), B200) == Vector()
    assert isinstance(choose(Problem(1, 4096, 4096, dtype="e4m3", sums="promoted"), B200), Tcgen05)


def test_what_tma_cannot_write_is_transposed() -> None:
    config = choose(Problem(4096, 4095, 4096, tma_c=False), B200)
    assert isinstance(config, Tcgen05) and config.swap


def test_more_sms_need_other_tiles() -> None:
    """The model asks the GPU for its number of SMs."""
    config = Tcgen05(256, stages=6)
    half = replace(B200, sm_count=74)
    times = [sm100_model.microseconds(config, Problem(8192, 8192, 8192), gpu)
             for gpu in (B200, half)]
    assert 1.8 < times[1] / times[0] < 2.1


@pytest.mark.parametrize(("config", "message"), [
    ("tcgen05:bn=24", "bn=24 is none of 16, 32"), ("tcgen05:bn=48", "no multiple of 32, as ctas=2"),
    ("tcgen05:bn=48,ctas=1,cluster=1", "bn=48 is no multiple of 32, as it is without swap"),
    ("tcgen05:bn=64,cluster=1", "cluster=1 is no multiple of ctas=2"),
    ("tcgen05:bn=32,cluster=4", None), ("tcgen05:bn=16,ctas=1,cluster=4,swap=true", "not 4 parts"),
    ("tcgen05:bn=64,split=3", "split=3 is not from 1 to the 2 steps of K"),
    ("tcgen05:bn=256,stages=9", "bytes of shared memory"), ("tcgen05:bn=64,group=0", "group=0"),
    ("gemm:bm=128,bn=64", "it needs sm_90a, this GPU is sm_100")])
def test_refusals(config: str, message: str | None) -> None:
    p = Product(40, 64, 72)
    if message is None:
        p.run(config=config)
        return
    with pytest.raises(ArgumentError, match=message):
        p.run(config=config)


def test_c_that_tma_cannot_write_needs_swap() -> None:
    with pytest.raises(ArgumentError, match="without swap rows of C"):
        Product(40, 63, 72).run(config=PAIR)
    with pytest.raises(ArgumentError, match="it needs sm_100a, this GPU is sm_90"):
        emulated.get("h100").use()
        Product(40, 64, 72).run(config=PAIR)


def test_tensor_memory_holds_sums_beside_factors() -> None:
    assert [specs.accumulators("bf16", bn) for bn in (64, 128, 192, 256)] == [4, 4, 2, 2]
    assert [specs.accumulators("mxe4m3", bn) for bn in (64, 128, 192, 256)] == [4, 3, 2, 1]
    assert [specs.accumulators("nve2m1", bn) for bn in (64, 128, 224, 256)] == [4, 3, 2, 1]


def test_a_configuration_is_its_text() -> None:
    assert str(Tcgen05(224, cluster=4, swap=True)) == "tcgen05:bn=224,ctas=2,cluster=4,swap=true"
