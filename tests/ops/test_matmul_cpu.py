"""Argument checks and launch geometry of the first rung, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

import gpukit
from gpukit.errors import ArgumentError, UnknownKernelError


def test_other_objects_are_refused_by_name(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match="matmul: a must be"):
        gpukit.matmul([[1.0]], fake.array((1, 1)))
    with pytest.raises(ArgumentError, match="matmul: b must be"):
        gpukit.matmul(fake.array((1, 1)), [[1.0]])


def test_an_unknown_rung_lists_the_known() -> None:
    with pytest.raises(UnknownKernelError, match=r"unknown kernel 'matmul\.k99'; .*matmul\.k1"):
        gpukit.matmul(None, None, kernel=99)


@pytest.mark.parametrize(("a", "b", "message"), [
    (((2, 3), "float32"), ((4, 5), "float32"), r"a is \(2, 3\) and b is \(4, 5\)"),
    (((3,), "float32"), ((3, 5), "float32"), r"a has shape \(3,\); accepted: two dimensions"),
    (((2, 3), "float32"), ((1, 3, 5), "float32"), r"b has shape \(1, 3, 5\); accepted with kern"),
    (((2, 3), "float64"), ((3, 5), "float64"), "a has dtype float64; accepted: float32"),
    (((2, 3), "float32"), ((3, 5), "float16"), "b has dtype float16, a has float32"),
])
def test_operands_that_are_refused(fake: FakeDevice, a: Any, b: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"matmul: {message}"):
        gpukit.matmul(fake.array(*a), fake.array(*b), kernel=1)
    assert not fake.launches


@pytest.mark.parametrize(("out", "message"), [
    (((2, 4), "float32"), r"out has shape \(2, 4\), the product has \(2, 5\)"),
    (((2, 5), "float64"), "out has dtype float64; accepted"),
])
def test_outputs_that_are_refused(fake: FakeDevice, out: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"matmul: {message}"):
        gpukit.matmul(fake.array((2, 3)), fake.array((3, 5)), out=fake.array(*out))


def test_output_layout_dtype_and_overlap(fake: FakeDevice) -> None:
    a, b = fake.array((4, 4)), fake.array((4, 4))
    with pytest.raises(ArgumentError, match="out is not C-contiguous"):
        gpukit.matmul(a, b, out=fake.array((4, 4)).T)
    with pytest.raises(ArgumentError, match="out overlaps a in memory"):
        gpukit.matmul(a, b, out=a)
    with pytest.raises(ArgumentError, match="out_dtype is int32; accepted"):
        gpukit.matmul(a, b, out_dtype="int32")
    with pytest.raises(ArgumentError, match="out has dtype float32 but out_dtype is float16"):
        gpukit.matmul(a, b, out=fake.array((4, 4)), out_dtype="float16")


def test_another_device_is_refused(fake: FakeDevice) -> None:
    other = FakeDevice(name="fake:1")
    with pytest.raises(ArgumentError, match="matmul: b is on fake:1"):
        gpukit.matmul(fake.array((2, 2)), other.array((2, 2)))


def test_strides_go_to_the_kernel_in_elements(fake: FakeDevice) -> None:
    a, b = fake.array((5, 7), "float16").T, fake.array((5, 18), "float16")[:, ::2]
    c = gpukit.matmul(a, b, kernel=1)
    launch = fake.launches[0]
    assert all(got is sent for got, sent in zip(launch.args, (a, b, c), strict=False))
    assert launch.args[3:] == (7, 9, 5, 1, 7, 18, 2)
    assert launch.tunables == {"dtype": "f16", "out": "f16", "tile": 32}
    assert c.shape == (7, 9) and c.dtype == np.float16


def test_the_grid_covers_every_tile(fake: FakeDevice) -> None:
    gpukit.matmul(fake.array((33, 8)), fake.array((8, 65)), kernel=1)
    assert (fake.launches[0].grid, fake.launches[0].block) == ((2 * 3,), (32, 32))


def test_out_dtype_chooses_the_variant(fake: FakeDevice) -> None:
    c = gpukit.matmul(fake.array((4, 4), "float16"), fake.array((4, 4), "float16"),
                      out_dtype=np.float32, kernel=1)
    assert c.dtype == np.float32
    assert fake.launches[0].tunables["out"] == "f32"


def test_k_zero_still_writes_zeros(fake: FakeDevice) -> None:
    gpukit.matmul(fake.array((4, 0)), fake.array((0, 4)), kernel=1)
    assert fake.launches[0].args[3:6] == (4, 4, 0)


@pytest.mark.parametrize(("m", "n"), [(0, 4), (4, 0), (0, 0)])
def test_an_empty_result_launches_nothing(fake: FakeDevice, m: int, n: int) -> None:
    assert gpukit.matmul(fake.array((m, 3)), fake.array((3, n))).shape == (m, n)
    assert not fake.launches
