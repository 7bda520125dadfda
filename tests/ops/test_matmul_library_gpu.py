"""gpukit.matmul on a GPU: layouts, types, epilogues, batches, configurations; graphs, streams,
threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products import Product

import gpukit
from gpukit.devices import cuda
from gpukit.errors import ArgumentError
from gpukit.ops.matmul import Problem, warm
from gpukit.ops.matmul.explain import allowed

pytestmark = pytest.mark.gpu

LAYOUTS = ("nt", "nn", "tn", "tt")
EVERYTHING: dict[str, Any] = {"bias": True, "residual": True, "activation": "gelu_tanh",
                              "alpha": 0.5, "scales": ("each", "each")}


@pytest.fixture
def cupy() -> Any:
    import cupy

    return cupy


@pytest.fixture
def hopper(cupy: Any) -> Any:
    device = cuda.get(0)
    if device.properties.capability != (9, 0):
        pytest.skip("needs a Hopper GPU")
    return device


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("shape", [(1024, 512, 2048), (1000, 520, 1032), (33, 4096, 1024),
                                   (2, 1000, 3000)], ids=str)
def test_layouts(cupy: Any, layout: str, dtype: str, shape: tuple[int, int, int]) -> None:
    Product(*shape, layout, dtype).run_gpu(cupy)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "words"), [
    ("e4m3", {}), ("e5m2", {}), ("e4m3", {"fast_accum": True}), ("f32", {"tf32": True}),
    ("e4m3", {"scales": ("each", "each")}), ("e4m3", {"scales": ("block", "block")})], ids=str)
def test_types_of_hopper(hopper: Any, cupy: Any, layout: str, dtype: str,
                         words: dict[str, Any]) -> None:
    Product(520, 392, 1200, layout, dtype, **words).run_gpu(cupy)
    Product(17, 1000, 640, layout, dtype, **words).run_gpu(cupy)


@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_types_of_c(cupy: Any, dtype: str, out: str) -> None:
    Product(300, 200, 256, dtype=dtype, out=out).run_gpu(cupy)


@pytest.mark.parametrize("m", [1, 5, 16, 40, 64, 128, 200, 700])
@pytest.mark.parametrize("words", [
    EVERYTHING, {"bias": True}, {"residual": True, "activation": "silu"}, {"activation": "relu"},
    {"scales": ("one", "number")}], ids=str)
def test_epilogues(cupy: Any, m: int, words: dict[str, Any]) -> None:
    Product(m, 1040, 520, **words).run_gpu(cupy)


@pytest.mark.parametrize(("offsets", "pads"), [
    ((1, 0, 0), (0, 0, 0)), ((0, 3, 0), (0, 1, 0)), ((0, 0, 1), (0, 0, 3)), ((1, 1, 1), (1, 1, 1)),
    ((0, 0, 0), (8, 8, 8))])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_at_any_address(cupy: Any, layout: str, offsets: tuple[int, int, int],
                             pads: tuple[int, int, int]) -> None:
    Product(257, 391, 511, layout, offsets=offsets, pads=pads, **EVERYTHING).run_gpu(cupy)
    Product(3, 391, 511, layout, offsets=offsets, pads=pads, bias=True).run_gpu(cupy)


@pytest.mark.parametrize("words", [
    {"batch": (7,), "batch_b": (7,)}, {"batch": (2, 3), "batch_b": (2, 3), "bias": True},
    {"batch": (5,), **EVERYTHING}, {"batch_b": (4,)}, {"batch": (3,), "pads": (8, 0, 8)},
    {"batch": (3,), "batch_b": (3,), "scales": ("each", "each"), "residual": True},
    {"batch": (3,), "batch_b": (3,), "offsets": (1, 1, 1)}], ids=str)
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_stacks(cupy: Any, layout: str, words: dict[str, Any]) -> None:
    Product(130, 264, 320, layout, **words).run_gpu(cupy)


def test_empty_and_without_k(cupy: Any) -> None:
    Product(300, 200, 0, **EVERYTHING).run_gpu(cupy)
    assert gpukit.matmul(cupy.ones((0, 5), "f2"), cupy.ones((5, 4), "f2")).shape == (0, 4)


@pytest.mark.parametrize("kind", [
    {}, {"a": "mn", "b": "mn"}, {"extras": True, "scales": True, "act": "gelu_tanh"},
    {"dtype": "e4m3", "sums": "promoted"}], ids=str)
@pytest.mark.parametrize("shape", [(24, 640, 1024), (700, 900, 1032)], ids=str)
def test_configurations(hopper: Any, cupy: Any, shape: tuple[int, int, int],
                        kind: dict[str, Any]) -> None:
    """The model's best forty, all different kernels."""
    m, n, k = shape
    n = n // 8 * 8
    words = EVERYTHING if kind.get("extras") else {}
    product = Product(m, n, k // 16 * 16, "tn" if kind.get("a") else "nt",
                      kind.get("dtype", "bf16"), **words)
    problem = Problem(m, n, product.k, **kind)
    for estimate in allowed(problem, hopper.properties, 40):
        product.run_gpu(cupy, config=estimate.config)


@st.composite
def products(draw: st.DrawFn) -> Product:
    dtype = draw(st.sampled_from(["bf16", "f16", "f32", "e4m3", "e5m2"]))
    size, small = st.integers(1, 700), st.integers(0, 9)
    scale = st.sampled_from([None, "number", "one", "each"])
    batch = draw(st.sampled_from([(), (), (3,), (2, 2)]))
    return Product(
        draw(size), draw(size), draw(st.integers(0, 1500)), draw(st.sampled_from(LAYOUTS)), dtype,
        draw(st.sampled_from([None, "bf16", "f16", "f32"])), batch,
        draw(st.sampled_from([(), batch])), (draw(small), draw(small), draw(small)),
        (draw(small), draw(small), draw(small)), draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from([None, "relu", "gelu", "gelu_tanh", "silu"])),
        draw(st.sampled_from([1.0, -0.25])), (draw(scale), draw(scale)), draw(st.booleans()),
        draw(st.booleans()))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 9, 63, 65, 130])
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_rows_that_end_within_16_bytes_of_an_aligned_out(cupy: Any, out: str, n: int) -> None:
    Product(70, n, 40, dtype="bf16", out=out, pads=(0, 0, -n % 8)).run_gpu(cupy)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(products())
def test_anything(product: Product) -> None:
    import cupy

    if product.dtype in ("e4m3", "e5m2") and cuda.get(0).properties.capability != (9, 0):
        return
    product.run_gpu(cupy)


# The short way


def operands(cupy: Any, m: int = 96, n: int = 256, k: int = 512) -> tuple[Any, Any]:
    rng = np.random.default_rng(m)
    a, b = (cupy.asarray(rng.standard_normal(s).astype(np.float16)) for s in ((m, k), (n, k)))
    return a, b.T


def close(cupy: Any, got: Any, a: Any, b: Any) -> bool:
    want = cupy.asnumpy(a).astype("f8") @ cupy.asnumpy(b).astype("f8")
    return bool(np.allclose(cupy.asnumpy(got).astype("f8"), want, rtol=2**-9, atol=0.05))


def test_a_repeated_call_takes_the_short_way(hopper: Any, cupy: Any) -> None:
    a, b = operands(cupy)
    first = gpukit.matmul(a, b)
    given = (a, b, None, None, None, None, 1.0, None, None, None, False, None, None, False, None)
    assert warm.call(*given) is not None
    again = gpukit.matmul(a, b)
    assert again is not first and (again == first).all()
    other, _ = operands(cupy, 96)
    other *= 2
    assert close(cupy, gpukit.matmul(other, b), other, b)


def test_bad_outputs_are_refused_on_the_short_way(hopper: Any, cupy: Any) -> None:
    a, b = operands(cupy, 256, 256, 256)
    for _ in range(2):
        gpukit.matmul(a, b, out=cupy.empty((256, 256), "f2"))
    with pytest.raises(ArgumentError, match="out overlaps a"):
        gpukit.matmul(a, b, out=a)
    with pytest.raises(ArgumentError, match="out has shape"):
        gpukit.matmul(a, b, out=cupy.empty((255, 256), "f2"))


@pytest.mark.parametrize("words", [{}, {"odd": True}, {"m": 3}], ids=str)
def test_graph_capture(cupy: Any, words: dict[str, Any]) -> None:
    """Also of calls that need a workspace, which must outlive the capture."""
    m, k = words.get("m", 96), 512 - words.get("odd", False)
    a, b = operands(cupy, m, 256, k)
    out = cupy.zeros((m, 256), "f2")
    gpukit.matmul(a, b, out=out)  # compiled
    out.fill(0)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        gpukit.matmul(a, b, out=out)
        graph = stream.end_capture()
        garbage = [cupy.full((m, 640), cupy.nan, "f2") for _ in range(8)]
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
    assert close(cupy, out, a, b)
    assert len(garbage) == 8


def test_streams_do_not_wait_for_each_other(cupy: Any) -> None:
    a, b = operands(cupy)
    gpukit.matmul(a, b)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    results = []
    for _ in range(5):
        for stream in streams:
            with stream:
                results.append(gpukit.matmul(a, b))
    for stream in streams:
        stream.synchronize()
    assert all(close(cupy, result, a, b) for result in results)


def test_threads(cupy: Any) -> None:
    """Many threads, each with its own operands, from the first call on."""
    warm.forget()
    wrong: list[int] = []

    def work(seed: int) -> None:
        with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
            a, b = operands(cupy, 64 + 8 * (seed % 3))
            a *= seed + 1
            for _ in range(50):
                got = gpukit.matmul(a, b, alpha=1 / (seed + 1))
            stream.synchronize()
            if not close(cupy, got, a / (seed + 1), b):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_torch_tensors(hopper: Any, cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(64, 256, device="cuda").to(torch.bfloat16)
    w = torch.randn(128, 256, device="cuda").to(torch.bfloat16)
    got = torch.from_dlpack(gpukit.matmul(a, w.t()))
    assert torch.allclose(got.float(), a.float() @ w.float().t(), rtol=2**-6, atol=0.1)
    x, y = a.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    got = torch.from_dlpack(gpukit.matmul(x, y.t(), scale_a=0.5, out_dtype="float32"))
    assert torch.allclose(got, 0.5 * x.float() @ y.float().t(), rtol=2**-6, atol=0.1)


def test_the_same_bits_every_time(cupy: Any) -> None:
    for shape in ((1, 4096, 4096), (64, 4096, 4096), (512, 512, 8192)):
        a, b = operands(cupy, *shape)
        results = [gpukit.matmul(a, b) for _ in range(5)]
        assert all((result == results[0]).all() for result in results)
