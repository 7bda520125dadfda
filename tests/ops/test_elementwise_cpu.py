"""Argument checks of the elementwise ops, without a GPU."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

import gpukit
from gpukit.errors import ArgumentError
from gpukit.ops.launch import Launch


@pytest.mark.parametrize(("given", "kind"), [
    ([1.0], "list"), (1.0, "float"), (None, "NoneType"), (np.float32(1), "float32")])
def test_other_objects_are_refused_by_type(given: Any, kind: str) -> None:
    with pytest.raises(ArgumentError, match=f"add: x must be .* got {kind}"):
        gpukit.add(given, given)


def test_a_second_operand_is_named(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match="add: y must be"):
        gpukit.add(fake.array(4), [1.0])
    with pytest.raises(ArgumentError, match="exp: out must be"):
        gpukit.exp(fake.array(4), out=np.empty(4, np.float32))


@pytest.mark.parametrize(("a", "message"), [
    ("1", "a must be a real number, got str"),
    (True, "a must be a real number, got bool"),
    (np.True_, "a must be a real number, got bool"),
    (1j, "a must be a real number, got complex"),
    (None, "a must be a real number, got NoneType"),
    (1e39, r"a=1e\+39 does not fit in float32"),
    (-1e39, r"a=-1e\+39 does not fit in float32"),
])
def test_scalars_that_are_refused(fake: FakeDevice, a: Any, message: str) -> None:
    x = fake.array(4)
    for call in (lambda: gpukit.scale(x, a), lambda: gpukit.add_const(x, a),
                 lambda: gpukit.axpy(a, x, x)):
        with pytest.raises(ArgumentError, match=message):
            call()
    assert not fake.launches


@pytest.mark.parametrize("a", [2, np.float64(2), np.float16(2), Fraction(2), np.int8(2)])
def test_real_scalars_arrive_as_floats(fake: FakeDevice, a: Any) -> None:
    gpukit.scale(fake.array(4), a)
    value = fake.launches[0].args[-1]
    assert type(value) is float and value == 2.0


@pytest.mark.parametrize("a", [float("nan"), float("inf"), -float("inf"), 3.4028234e38])
def test_special_scalars_are_accepted(fake: FakeDevice, a: float) -> None:
    gpukit.scale(fake.array(4), a)
    assert np.array_equal(fake.launches[0].args[-1], a, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8", "bool", "complex64"])
def test_dtypes_that_are_refused(fake: FakeDevice, dtype: str) -> None:
    with pytest.raises(ArgumentError, match=f"exp: x has dtype {dtype}; accepted: float32, "
                                            "float16, bfloat16"):
        gpukit.exp(fake.array(4, dtype))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex64", "bool"])
def test_copy_takes_any_element_of_up_to_8_bytes(fake: FakeDevice, dtype: str) -> None:
    gpukit.copy(fake.array(8, dtype))
    assert fake.launches[0].tunables["dtype"] == f"u{8 * np.dtype(dtype).itemsize}"


def test_copy_refuses_wider_elements(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match="copy: x has dtype complex128 of 16 bytes"):
        gpukit.copy(fake.array(4, "complex128"))


@pytest.mark.parametrize(("y", "message"), [
    ({"shape": (4, 3)}, r"add: y has shape \(4, 3\), the first input \(3, 4\)"),
    ({"shape": 12}, r"add: y has shape \(12,\), the first input \(3, 4\)"),
    ({"shape": (3, 4), "dtype": "float16"}, "add: y has dtype float16, the first input float32"),
])
def test_operands_that_do_not_match(fake: FakeDevice, y: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gpukit.add(fake.array((3, 4)), fake.array(**y))
    with pytest.raises(ArgumentError, match=message.replace("add: y", "exp: out")):
        gpukit.exp(fake.array((3, 4)), out=fake.array(**y))


def test_operands_of_another_memory_order_are_refused(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match=r"add: y has strides .* same memory order"):
        gpukit.add(fake.array((3, 3)), fake.array((3, 3)).T)


def test_gaps_are_refused(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match=r"exp: x has gaps \(shape \(3, 2\)"):
        gpukit.exp(fake.array((3, 4))[:, :2])
    with pytest.raises(ArgumentError, match="exp: x has gaps"):
        gpukit.exp(fake.array(8)[::-1])


def test_fortran_order_is_kept(fake: FakeDevice) -> None:
    y = gpukit.exp(fake.array((3, 4)).T)
    assert y.shape == (4, 3) and y.flags.f_contiguous


def test_another_device_is_refused(fake: FakeDevice) -> None:
    other = FakeDevice(name="fake:1")
    with pytest.raises(ArgumentError, match="add: y is on fake:1, the first input on fake:0"):
        gpukit.add(fake.array(4), other.array(4))


def test_partial_overlap_is_refused_and_identity_is_not(fake: FakeDevice) -> None:
    memory = fake.array(12)
    with pytest.raises(ArgumentError, match="exp: out overlaps x in memory"):
        gpukit.exp(memory[:8], out=memory[4:])
    with pytest.raises(ArgumentError, match="add: out overlaps y in memory"):
        gpukit.add(fake.array(8), memory[:8], out=memory[1:9])
    assert gpukit.exp(memory, out=memory) is memory
    assert gpukit.exp(memory[:6], out=memory[6:]).size == 6
    assert len(fake.launches) == 2


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_empty_arrays_launch_nothing(fake: FakeDevice, shape: tuple[int, ...]) -> None:
    assert gpukit.exp(fake.array(shape)).shape == shape
    assert not fake.launches


def test_scalars_of_zero_dimensions_launch_one_element(fake: FakeDevice) -> None:
    assert gpukit.exp(fake.array(())).shape == ()
    assert fake.launches[0].args[2] == 1


@pytest.mark.parametrize(("offset", "vec"), [(0, 4), (16, 4), (8, 2), (4, 1)])
def test_any_misaligned_operand_narrows_the_access(fake: FakeDevice, offset: int,
                                                   vec: int) -> None:
    good, shifted = fake.array(64), fake.array(64, offset=offset)
    for call in (lambda: gpukit.exp(shifted, out=good), lambda: gpukit.exp(good, out=shifted),
                 lambda: gpukit.add(good, shifted, out=good)):
        call()
        assert fake.launches[-1].tunables["vec"] == vec


def test_arguments_arrive_in_the_order_of_the_spec(fake: FakeDevice) -> None:
    x, y, out = (fake.array(100) for _ in range(3))
    gpukit.axpy(2.5, x, y, out=out, launch=Launch(block=64))
    launch = fake.launches[0]
    assert launch.name == "elementwise.axpy"
    assert all(got is sent for got, sent in zip(launch.args, (x, y, out), strict=False))
    assert launch.args[3:] == (100, 2.5)
    assert launch.block == (64,)
