"""The kernels themselves without a GPU: NumPy arrays run the PTX that a Hopper would get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpukit
from gpukit import dtypes
from gpukit.errors import ArgumentError
from gpukit.ops.launch import Launch
from gpukit.reference import elementwise as ref
from gpukit.reference.tolerance import scaled_error

UNARY = ("sqrt", "rsqrt", "log", "sin", "tanh", "exp", "erf", "add_const", "scale")
SCALAR = 1.7
SPECIAL = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x807FFFFF, 0x7F7FFFFF,
                    0x00800000, 0x3F800000, 0x0D000000, 0x46FFFFFF, 0x47000001], dtype=np.uint32)


def call(op: str, x: Any, **options: Any) -> Any:
    function = getattr(gpukit, op)
    return function(x, SCALAR, **options) if op in ("add_const", "scale") else function(
        x, **options)


def error(op: str, x: np.ndarray, **options: Any) -> float:
    dtype = dtypes.of(x.dtype)
    assert dtype is not None
    out = np.empty_like(x)
    out.view(f"u{x.dtype.itemsize}").fill(0x7FDB)
    got = call(op, x, out=out, **options)
    assert got is out
    with np.errstate(invalid="ignore"):
        return scaled_error(got.astype(np.float64), ref.oracle(op, [x], SCALAR, dtype),
                            ref.bound(op, dtype))


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_every_16_bit_value(op: str, name: str) -> None:
    everything = np.arange(65536, dtype=np.uint16).view(dtypes.parse(name).numpy)
    assert error(op, everything) <= 1


@pytest.mark.parametrize("op", UNARY)
def test_f32_over_all_exponents(op: str) -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 20_000, dtype=np.uint32)
    assert error(op, np.concatenate([bits, SPECIAL]).view(np.float32)) <= 1


def test_zeros_keep_their_sign() -> None:
    for name in ("f32", "f16", "bf16"):
        zeros = np.array([0.0, -0.0], dtypes.parse(name).numpy)
        for op in ("sqrt", "sin", "tanh", "erf"):
            assert list(np.signbit(call(op, zeros).astype(np.float64))) == [False, True], (op, name)


@pytest.mark.parametrize("grid", ["gs1", "gs2", 1, 3])
@pytest.mark.parametrize(("vec", "unroll", "index"), [
    (1, 1, "u32"), (4, 1, "u32"), (4, 4, "u32"), (2, 8, "u64"), (4, 2, "u64")])
def test_every_grid_covers_every_element(grid: Any, vec: int, unroll: int, index: str) -> None:
    launch = Launch(vec=vec, unroll=unroll, index=index, grid=grid, waves=1, block=64)
    for n in (1, 63, 64 * 4 * 3 + 3, 9001):
        assert error("scale", np.random.default_rng(n).standard_normal(n, np.float32),
                     launch=launch) <= 1


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 31, 33, 127, 1025])
def test_binary_ops(n: int) -> None:
    rng = np.random.default_rng(n)
    for name in ("f32", "f16", "bf16"):
        dtype = dtypes.parse(name)
        x, y = (rng.standard_normal(n).astype(dtype.numpy) for _ in range(2))
        for op, got in (("add", gpukit.add(x, y)), ("axpy", gpukit.axpy(SCALAR, x, y))):
            want = ref.oracle(op, [x, y], SCALAR, dtype)
            assert scaled_error(got.astype(np.float64), want, ref.bound(op, dtype)) <= 1


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 8])
def test_copy_at_every_misalignment(itemsize: int, shift: int) -> None:
    raw = np.random.default_rng(shift).integers(0, 256, 1000 * itemsize + shift, dtype=np.uint8)
    x = raw[shift:].view(f"u{itemsize}")
    assert gpukit.copy(x).tobytes() == x.tobytes()


def misaligned(n: int, dtype: str = "f4") -> np.ndarray:
    return np.zeros(n * np.dtype(dtype).itemsize + 1, np.uint8)[1:].view(dtype)


READ_ONLY = np.zeros(4, np.float32)
READ_ONLY.flags.writeable = False
ONES = np.ones(4, np.float32)


@pytest.mark.parametrize(("attempt", "words"), [
    (lambda: gpukit.copy(np.array([object()] * 4, dtype=object)), "copy: x has dtype object"),
    (lambda: gpukit.exp(np.ones(4, ">f4")), "x has dtype >f4"),
    (lambda: gpukit.exp(misaligned(4)), "x starts at an address"),
    (lambda: gpukit.exp(ONES, out=misaligned(4)), "out starts at an address"),
    (lambda: gpukit.exp(ONES, out=READ_ONLY), "out is read-only"),
    (lambda: gpukit.exp(np.ma.masked_array(ONES, [0, 1, 0, 0])), "got MaskedArray"),
    (lambda: gpukit.scale(ONES, 10**400), "does not fit in float32"),
    (lambda: gpukit.exp(ONES, launch={"vec": 1}), "launch must be a gpukit.ops.launch.Launch"),
    (lambda: Launch(vec=0), "vec=0 is not accepted"),
    (lambda: Launch(vec=True), "vec=True is not accepted"),
    (lambda: Launch(unroll=2.0), "unroll=2.0 is not accepted"),
    (lambda: Launch(index=""), "index='' is not accepted"),
    (lambda: gpukit.matmul(np.ones((2, 2), ">f4"), np.ones((2, 2), ">f4")), "a has dtype >f4"),
    (lambda: gpukit.matmul(np.ones((2, 2), "f4"), np.ones((2, 2), "f4"), out_dtype="x"),
     "out_dtype is x"),
])
def test_refusals_name_the_argument(attempt: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        attempt()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layouts_that_differ_only_where_nothing_is_are_equal() -> None:
    x = np.zeros((4, 8), np.float32)[::2][:1]
    assert gpukit.exp(x, out=np.empty((1, 8), np.float32)).shape == (1, 8)
    column = np.ones((8, 1), np.float32)
    np.testing.assert_array_equal(gpukit.add(column, np.ones((1, 8), np.float32).T), 2)
    empty = np.ones((3, 4), np.float32)[:, :0]
    assert gpukit.add(empty, np.ones((3, 0), np.float32)).shape == (3, 0)
