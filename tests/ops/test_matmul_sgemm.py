"""float32 without tensor cores: the same cases on the emulated H100 and on a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from products import Product

import gpukit
from gpukit import emulator
from gpukit.devices import emulated, nvrtc
from gpukit.devices.models import MODELS
from gpukit.devices.protocol import Properties
from gpukit.emulator.policies import POLICIES
from gpukit.kernels.matmul import SGEMM
from gpukit.ops.matmul import Problem, Sgemm, Vector, choose, limits
from gpukit.ops.matmul.candidates import sgemms
from gpukit.ops.matmul.model import microseconds

H100 = MODELS["h100"].properties
A100 = Properties("A100", "", (8, 0), 108, 2048, 163 << 10, 40 << 20, 40 << 30)
EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5, "scales": ("each", "each")}
ODD: dict[str, Any] = {"offsets": (1, 2, 3), "pads": (1, 3, 2)}

# Tails in every dimension; sizes below a tile; K below and just past a stage; slices of which the
# last is short; all stages of the ring in use; rows that do not start at multiples of 16 bytes.
CASES = [(Product(m, n, k, layout, "f32", **words), config)
         for layout in ("nt", "nn", "tn", "tt")
         for m, n, k, config, words in (
             (1, 1, 1, "sgemm:bm=64,bn=64", {}),
             (70, 66, 17, "sgemm:bm=64,bn=64", ODD | EVERYTHING),
             (19, 70, 40, "sgemm:bm=32,bn=128", {}), (40, 130, 36, "sgemm:bm=32,bn=128", ODD),
             (64, 132, 52, "sgemm:bm=64,bn=128,stages=2", EVERYTHING),
             (132, 60, 33, "sgemm:bm=128,bn=64,stages=4", {"out": "bf16"}),
             (131, 140, 20, "sgemm:bm=128,bn=128", ODD),
             (136, 128, 16, "sgemm:bm=128,bn=128", {"out": "f16", **EVERYTHING}),
             (33, 60, 100, "sgemm:bm=64,bn=64,split=3", EVERYTHING),
             (20, 24, 70, "sgemm:bm=64,bn=64,split=4", ODD | {"batch": (3,), "batch_b": (3,)}))]

# Every case in two layouts, with both operands along K and neither, or one and the other.
EMULATED = [case for i, case in enumerate(CASES) if (i + i // 10) % 2 == 0]


def name(value: Any) -> str:
    if isinstance(value, Product):
        return f"{value.m}x{value.n}x{value.k}-{value.layout}"
    return str(value)


@pytest.mark.parametrize(("product", "config"), EMULATED, ids=name)
def test_any_tile_layout_and_address(product: Product, config: str) -> None:
    emulated.get("h100").use()
    product.run(config=config)


@pytest.mark.gpu
@pytest.mark.parametrize(("product", "config"), CASES, ids=name)
def test_any_tile_layout_and_address_on_a_gpu(product: Product, config: str) -> None:
    import cupy

    product.run_gpu(cupy, config=config)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("words", [{}, ODD, EVERYTHING], ids=str)
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (1000, 777, 1531), (64, 3072, 3072),
                                   (12, 4096, 4096), (9, 5, 5000)], ids=str)
def test_what_is_chosen_on_a_gpu(shape: tuple[int, int, int], words: dict[str, Any],
                                 layout: str) -> None:
    import cupy

    Product(*shape, layout, "f32", **words).run_gpu(cupy)


@pytest.mark.gpu
def test_slices_of_k_in_a_graph_on_a_gpu() -> None:
    """Their workspace outlives the capture; calls that follow give the same bits."""
    import cupy

    a, b = (cupy.random.standard_normal(s, dtype="f4") for s in ((70, 999), (999, 130)))
    config = "sgemm:bm=64,bn=64,split=4"
    want = gpukit.matmul(a, b, config=config)
    out = cupy.zeros_like(want)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        gpukit.matmul(a, b, out=out, config=config)
        graph = stream.end_capture()
        garbage = [cupy.full((4, 70, 130), cupy.nan, "f4") for _ in range(8)]
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
    assert len(garbage) == 8
    assert (out == want).all() and (gpukit.matmul(a, b, config=config) == want).all()


def test_views_without_a_contiguous_dimension() -> None:
    emulated.get("h100").use()
    p = Product(40, 36, 21, "nn", "f32")
    a, b = (np.full((2 * x.shape[0], 3 * x.shape[1]), np.nan, "f4")[::-2, ::3] for x in (p.a, p.b))
    a[...], b[...] = p.a, p.b
    p.check(gpukit.matmul(a, b))


# Copies of 16 bytes where lines run along M / N and are aligned; of elements elsewhere.
@pytest.mark.parametrize(("layout", "offset", "copies"), [
    ("nt", 0, 256), ("nn", 0, 160), ("tn", 0, 64), ("tt", 0, 160), ("tn", 1, 256)])
def test_shared_memory_without_bank_conflicts(layout: str, offset: int, copies: int) -> None:
    device = emulated.get("h100")
    device.use()
    Product(128, 128, 32, layout, "f32", offsets=(offset, offset, 0)).run(config="sgemm")
    counters = device.last_counters
    assert counters is not None
    assert counters.shared_loads.conflicts == counters.shared_stores.conflicts == 0
    assert counters.shared_loads.requests >= 8 * 32 * 4  # four chunks for each warp and k
    assert counters.global_loads.requests == counters.shared_stores.requests == copies


@pytest.mark.parametrize("policy", POLICIES)
def test_every_schedule_gives_the_same_bits(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emulated.get("h100").use()
    run, results = emulator.run, []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        product = Product(66, 40, 50, "nt", "f32", **EVERYTHING)
        results.append(product.run(config="sgemm:bm=64,bn=64,stages=2,split=2").tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("gpu", [H100, A100], ids=lambda gpu: gpu.name)
def test_the_choice(gpu: Properties) -> None:
    def chosen(m: int, n: int, k: int, **words: Any) -> Any:
        return choose(Problem(m, n, k, dtype="f32", out="f32", **words), gpu)

    assert chosen(4096, 4096, 4096).split == 1
    assert chosen(16, 8192, 4096).bm == 32
    assert chosen(64, 3072, 3072).split > 1
    assert isinstance(chosen(8, 4096, 4096), Vector)
    assert isinstance(chosen(8, 4096, 4096, a="mn"), Sgemm)
    assert isinstance(chosen(512, 512, 512, batch=100000), Sgemm)


def test_the_model_is_no_faster_than_fmas() -> None:
    problem = Problem(4096, 4096, 4096, dtype="f32", out="f32")
    floor = 4096**3 / (H100.sm_count * 128 * 1755.0)
    for config in sgemms(problem, H100):
        assert floor < microseconds(config, problem, H100) < 3 * floor


@pytest.mark.parametrize(("config", "kind", "reason"), [
    (Sgemm(96, 128), {}, "bm=96 is none of 32, 64, 128"),
    (Sgemm(stages=5), {}, "stages=5 is none of"), (Sgemm(32, 64), {}, "has too few threads"),
    (Sgemm(split=0), {}, "split=0 is not from 1 to K / 16"),
    (Sgemm(split=9), {"k": 128}, "split=9 is not from 1"),
    (Sgemm(), {"dtype": "f16"}, "it multiplies f32, not f16"),
    (Sgemm(64, 64), {"m": 2**24, "n": 2**20}, "CTAs are more than 2147483647")], ids=str)
def test_rules(config: Sgemm, kind: dict[str, Any], reason: str) -> None:
    problem = Problem(**{"m": 64, "n": 64, "k": 256, "dtype": "f32", "out": "f32", **kind})
    assert reason in limits.refusal(config, problem, H100)


def test_slices_of_k_are_whole_tiles() -> None:
    problem = Problem(64, 64, 100, dtype="f32", out="f32")
    assert [limits.slice_of(Sgemm(split=s), problem) for s in (1, 2, 3, 4)] == [100, 64, 48, 32]
    assert limits.slice_of(Sgemm(split=6), problem) == 32  # four slices


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_no_variant_spills(arch: str) -> None:
    variants = [SGEMM.resolve(variant) for variant in SGEMM.variants]
    for compiled in nvrtc.compile_variants(SGEMM, variants, arch):
        resources = nvrtc.resources(compiled)
        assert resources.spill_bytes == 0 and resources.registers <= 128
