"""Elementwise ops on a GPU against float64 NumPy, SciPy and every value of the 16-bit types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.launch import Launch
from gpukit.reference import elementwise as ref
from gpukit.reference.tolerance import scaled_error

pytestmark = pytest.mark.gpu

MATH = ("sqrt", "rsqrt", "log", "sin", "tanh", "exp", "erf")
UNARY = (*MATH, "add_const", "scale")
FLOATS = ("f32", "f16", "bf16")
SCALAR = 1.7


def call(op: str, *inputs: Any, **options: Any) -> Any:
    function = getattr(gpukit, op)
    if op in ("add_const", "scale"):
        return function(inputs[0], SCALAR, **options)
    if op == "axpy":
        return function(SCALAR, *inputs, **options)
    return function(*inputs, **options)


def poisoned_like(x: Any) -> Any:
    import cupy

    out = cupy.empty_like(x)
    out.view(f"u{x.dtype.itemsize}").fill(0x7FC0 if x.dtype.itemsize == 2 else 0x7FC0DEAD)
    return out


def check(op: str, dtype: dtypes.DType, inputs: list[np.ndarray], **options: Any) -> float:
    """Scaled error of one call with a poisoned output."""
    import cupy

    device = [cupy.asarray(x) for x in inputs]
    got = call(op, *device, out=poisoned_like(device[0]), **options)
    want = ref.oracle(op, inputs, SCALAR, dtype)
    return scaled_error(cupy.asnumpy(got).astype(np.float64), want, ref.bound(op, dtype))


def random(dtype: dtypes.DType, n: int, seed: int = 0) -> np.ndarray:
    """Normal values times powers of two: many magnitudes, both signs."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(n) * np.exp2(rng.integers(-12, 5, n))
    return values.astype(dtype.numpy)


@pytest.mark.parametrize("op", [*UNARY, "add", "axpy"])
@pytest.mark.parametrize("name", FLOATS)
def test_random_values(op: str, name: str) -> None:
    dtype = dtypes.parse(name)
    inputs = [random(dtype, 100_003, seed) for seed in range(2 if op in ("add", "axpy") else 1)]
    assert check(op, dtype, inputs) <= 1


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_16_bit_value(op: str, name: str) -> None:
    dtype = dtypes.parse(name)
    everything = np.arange(65536, dtype=np.uint16).view(dtype.numpy)
    assert check(op, dtype, [everything]) <= 1


@pytest.mark.parametrize("op", UNARY)
def test_f32_over_all_exponents(op: str) -> None:
    bits = np.random.default_rng(5).integers(0, 2**32, 300_000, dtype=np.uint32)
    special_bits = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x807FFFFF,
                             0x7F7FFFFF, 0x00800000, 0x3F800000], dtype=np.uint32)
    values = np.concatenate([bits, special_bits]).view(np.float32)
    assert check(op, dtypes.F32, [values]) <= 1


def test_sqrt_is_correctly_rounded_for_every_significand() -> None:
    """[1, 4) holds every significand with an even and an odd exponent; the rest is scaling."""
    import cupy

    bits = np.arange(0x3F800000, 0x40800000, dtype=np.uint32)
    for scale in (0, -100 << 23, 126 << 23 >> 1):  # around 1, where x is scaled up, large
        x = (bits + np.uint32(scale % 2**32)).view(np.float32)
        np.testing.assert_array_equal(cupy.asnumpy(gpukit.sqrt(cupy.asarray(x))), np.sqrt(x))


def test_oracle_agrees_with_scipy() -> None:
    x = np.linspace(-6, 6, 1001).astype(np.float32)
    np.testing.assert_allclose(ref.oracle("erf", [x], 0, dtypes.F32),
                               special.erf(x.astype(np.float64)), rtol=1e-14)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 31, 32, 33, 255, 256, 257, 1023, 1025, 4099])
@pytest.mark.parametrize("name", FLOATS)
def test_sizes_and_tails(n: int, name: str) -> None:
    dtype = dtypes.parse(name)
    for op in ("exp", "add"):
        inputs = [random(dtype, n, seed) for seed in range(2 if op == "add" else 1)]
        assert check(op, dtype, inputs) <= 1


@pytest.mark.parametrize("vec", [1, 2, 4, 8])
@pytest.mark.parametrize("unroll", [1, 2, 4, 8])
@pytest.mark.parametrize("index", ["u32", "u64"])
@pytest.mark.parametrize("grid", ["gs1", "gs2", 1, 7])
def test_every_launch_shape(vec: int, unroll: int, index: str, grid: Any) -> None:
    launch = Launch(vec=vec, unroll=unroll, index=index, grid=grid, waves=1)
    for n in (1, 1000, 70_001):
        assert check("scale", dtypes.BF16, [random(dtypes.BF16, n)], launch=launch) <= 1


@pytest.mark.parametrize("block", [32, 64, 128, 256, 512, 1024])
@pytest.mark.parametrize("cache", ["normal", "stream"])
def test_blocks_and_cache_policies(block: int, cache: str) -> None:
    launch = Launch(block=block, cache=cache)
    inputs = [random(dtypes.F32, 50_001, seed) for seed in range(2)]
    assert check("axpy", dtypes.F32, inputs, launch=launch) <= 1


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "int32", "float32", "float64",
                                   "int64", "bool"])
def test_copy_moves_bits(dtype: str) -> None:
    import cupy

    for n in (0, 1, 17, 4096, 100_003):
        raw = np.random.default_rng(n).integers(0, 2 if dtype == "bool" else 256,
                                                n * np.dtype(dtype).itemsize, dtype=np.uint8)
        x = cupy.asarray(raw.view(dtype))
        out = gpukit.copy(x)
        assert out.dtype == x.dtype
        assert cupy.asnumpy(out).tobytes() == raw.tobytes()


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", FLOATS)
def test_misaligned_views_take_a_narrower_path(shift: int, name: str) -> None:
    import cupy

    dtype = dtypes.parse(name)
    base = random(dtype, 10_007)
    view = cupy.asarray(base)[shift:]
    want = ref.oracle("tanh", [base[shift:]], 0, dtype)
    got = cupy.asnumpy(gpukit.tanh(view)).astype(np.float64)
    assert scaled_error(got, want, ref.bound("tanh", dtype)) <= 1


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_copy_of_a_misaligned_view_and_refusal_elsewhere(shift: int) -> None:
    import cupy

    raw = cupy.random.default_rng(0).integers(0, 256, 4000 + shift, dtype=cupy.uint8)
    view = raw[shift:].view("f4")
    assert cupy.asnumpy(gpukit.copy(view)).tobytes() == cupy.asnumpy(raw)[shift:].tobytes()
    with pytest.raises(ArgumentError, match="x starts at an address"):
        gpukit.exp(view)


def test_in_place_shape_and_order() -> None:
    import cupy

    x = cupy.asfortranarray(cupy.asarray(random(dtypes.F32, 12_000).reshape(30, 400)))
    want = ref.oracle("scale", [cupy.asnumpy(x)], SCALAR, dtypes.F32)
    fresh = gpukit.scale(x, SCALAR)
    assert fresh.shape == (30, 400)
    assert fresh.flags.f_contiguous
    assert gpukit.scale(x, SCALAR, out=x) is x
    for got in (fresh, x):
        assert scaled_error(cupy.asnumpy(got).astype(np.float64), want,
                            ref.bound("scale", dtypes.F32)) <= 1


def test_more_than_two_to_the_31_elements() -> None:
    import cupy

    n = 2**31 + 12_345
    x = cupy.arange(n, dtype=cupy.uint8)
    for launch in (Launch(), Launch(vec=1), Launch(index="u64", grid="gs2", waves=1)):
        out = cupy.full(n, 0xAA, dtype=cupy.uint8)
        gpukit.copy(x, out=out, launch=launch)
        assert bool((out == x).all())


def test_runs_in_a_cuda_graph() -> None:
    import cupy

    x = cupy.asarray(random(dtypes.F32, 5000))
    out = cupy.zeros_like(x)
    gpukit.exp(x, out=out)  # compiles outside the capture
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        gpukit.exp(x, out=out)
        graph = stream.end_capture()
        x[:] = 2
        out[:] = 0
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_allclose(cupy.asnumpy(out), np.exp(np.float32(2)), rtol=1e-6)


def test_takes_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    import cupy

    x = torch.randn(1000, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    gpukit.exp(x, out=out)
    want = ref.oracle("exp", [cupy.asnumpy(cupy.from_dlpack(x))], 0, dtypes.BF16)
    assert scaled_error(out.double().cpu().numpy(), want, ref.bound("exp", dtypes.BF16)) <= 1


def refusals() -> list[tuple[str, Any, str]]:
    import cupy

    x = cupy.ones(8, cupy.float32)
    grid = cupy.ones((4, 8), cupy.float32)
    return [
        ("exp", lambda: gpukit.exp(cupy.ones(4, cupy.float64)), "x has dtype float64"),
        ("exp", lambda: gpukit.exp(cupy.ones(4, cupy.int32)), "x has dtype int32"),
        ("exp", lambda: gpukit.exp([1.0]), "x must be a CuPy array"),
        ("exp", lambda: gpukit.exp(grid[:, :4]), "x has gaps"),
        ("exp", lambda: gpukit.exp(x[::2]), "x has gaps"),
        ("exp", lambda: gpukit.exp(cupy.broadcast_to(x[:1], (8,))), "x has gaps"),
        ("exp", lambda: gpukit.exp(x, out=cupy.ones(9, cupy.float32)), "out has shape"),
        ("exp", lambda: gpukit.exp(x, out=cupy.ones(8, cupy.float16)), "out has dtype"),
        ("exp", lambda: gpukit.exp(x[:6], out=x[1:7]), "out overlaps x"),
        ("add", lambda: gpukit.add(x, x[:1]), "y has shape"),
        ("add", lambda: gpukit.add(x, x.astype("f2")), "y has dtype"),
        ("scale", lambda: gpukit.scale(x, "2"), "a must be a real number"),
        ("scale", lambda: gpukit.scale(x, 1e39), "does not fit in float32"),
        ("scale", lambda: gpukit.scale(x, 1j), "a must be a real number"),
        ("copy", lambda: gpukit.copy(cupy.ones(4, cupy.complex128)), "16 bytes"),
        ("exp", lambda: gpukit.exp(x[1:], launch=Launch(vec=4)), "needs 16-byte alignment"),
        ("exp", lambda: gpukit.exp(x, launch=Launch(vec=3)), "vec=3 is not accepted"),
    ]


def test_refusals_name_the_argument() -> None:
    for op, attempt, text in refusals():
        with pytest.raises(ArgumentError) as caught:
            attempt()
        assert text in str(caught.value)
        assert str(caught.value).startswith((op, "vec="))


def test_wide_accesses_need_blackwell() -> None:
    import cupy

    if cupy.cuda.Device().compute_capability >= "100":
        pytest.skip("this GPU has 32-byte accesses")
    with pytest.raises(UnsupportedError, match="at most 16"):
        gpukit.exp(cupy.ones(64, cupy.float16), launch=Launch(vec=16))
