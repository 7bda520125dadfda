"""The argument buffer holds what the driver would read for parameters of these C types."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpukit.devices.arguments import LATER, ArgumentBuffer, filled

CTYPE: dict[str, Any] = {
    "pointer": ctypes.c_uint64, "i32": ctypes.c_int32, "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64, "u64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double,
    "tensor_map": ctypes.c_char * 128}
VALUE = {
    "pointer": st.integers(0, 2**64 - 1), "u64": st.integers(0, 2**64 - 1),
    "i32": st.integers(-2**31, 2**31 - 1), "u32": st.integers(0, 2**32 - 1),
    "i64": st.integers(-2**63, 2**63 - 1), "f32": st.floats(width=32), "f64": st.floats(),
    "tensor_map": st.binary(min_size=128, max_size=128),
}
CASES = st.lists(st.sampled_from(sorted(VALUE)).flatmap(
    lambda kind: st.tuples(st.just(kind), VALUE[kind])), max_size=12)


def read(address: int, kinds: list[str]) -> list[int | float | bytes]:
    """What a driver finds that follows the pointers and reads each parameter's own type."""
    pointers = (ctypes.c_void_p * len(kinds)).from_address(address)
    values = [CTYPE[kind].from_address(pointers[i]) for i, kind in enumerate(kinds)]
    return [value.raw if isinstance(value, ctypes.Array) else value.value for value in values]


def same(a: list[int | float | bytes], b: list[int | float | bytes]) -> bool:
    return len(a) == len(b) and all(x == y or (x != x and y != y)  # NaN
                                    for x, y in zip(a, b, strict=True))


@given(CASES)
def test_the_driver_reads_what_was_written(case: list[tuple[str, int | float | bytes]]) -> None:
    kinds, values = [kind for kind, _ in case], [value for _, value in case]
    buffer = ArgumentBuffer(tuple(kinds))
    assert same(read(buffer.write(values), kinds), values)


@given(st.lists(st.sampled_from(sorted(VALUE)), max_size=12))
def test_tensor_maps_are_aligned_and_nothing_overlaps(kinds: list[str]) -> None:
    buffer = ArgumentBuffer(tuple(kinds))
    pointers = (ctypes.c_void_p * len(kinds)).from_address(
        buffer.write([bytes(128) if kind == "tensor_map" else 0 for kind in kinds]))
    end = 0
    for kind, start in zip(kinds, pointers, strict=True):
        assert start >= end and start % (64 if kind == "tensor_map" else 8) == 0
        end = start + ctypes.sizeof(CTYPE[kind])


@pytest.mark.parametrize("value", [0, 1.5, None, "x" * 128])
def test_a_tensor_map_is_bytes(value: object) -> None:
    with pytest.raises(struct.error):
        ArgumentBuffer(("tensor_map",)).write([value])  # type: ignore[list-item]


def test_writing_again_replaces_the_values_in_place() -> None:
    kinds = ["pointer", "f32", "i64"]
    buffer = ArgumentBuffer(tuple(kinds))
    first = buffer.write([1, 2.0, 3])
    assert buffer.write([4, 5.0, -6]) == first
    assert read(first, kinds) == [4, 5.0, -6]


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [1.5, 2], [1, "2"], [None, 1], [-1, 1],
                                    [2**64, 1], [1, 2**31]])
def test_wrong_counts_kinds_and_ranges_are_refused(values: list[object]) -> None:
    with pytest.raises(struct.error):
        ArgumentBuffer(("pointer", "i32")).write(values)  # type: ignore[arg-type]


def test_values_too_large_for_f32_are_refused() -> None:
    with pytest.raises(OverflowError):
        ArgumentBuffer(("f32",)).write([1e39])


def test_an_int_for_a_float_parameter_becomes_a_float() -> None:
    buffer = ArgumentBuffer(("f32",))
    assert read(buffer.write([3]), ["f32"]) == [3.0]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError, match="bool"):
        ArgumentBuffer(("bool",))


def test_no_parameters() -> None:
    assert ArgumentBuffer(()).write([]) != 0


def test_buffers_do_not_share_storage() -> None:
    buffers = [ArgumentBuffer(("i64",)) for _ in range(8)]

    def hammer(i: int) -> None:
        for _ in range(2000):
            assert read(buffers[i].write([i]), ["i64"]) == [i]

    threads = [threading.Thread(target=hammer, args=(i,)) for i in range(len(buffers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [read(b.write([i]), ["i64"])[0] for i, b in enumerate(buffers)] == list(range(8))


def test_compiling_leaves_pythons_own_bytes_alone() -> None:
    """NVRTC writes its log into a bytes object; an empty log must not land in the shared b' '."""
    from gpukit import kernels
    from gpukit.devices import nvrtc

    nvrtc.compile_kernel(kernels.get("timing.spin"), {}, "compute_90")
    assert bytes([32]) == b"\x20"
    assert bytes([32]).decode() == chr(32)


@given(CASES, st.integers(0, 12), st.data())
def test_fixed_values_are_written_once(case: list[tuple[str, Any]], count: int,
                                       data: st.DataObject) -> None:
    kinds, values = [kind for kind, _ in case], [value for _, value in case]
    first = max(0, len(case) - count)
    fixed = [data.draw(st.sampled_from([value, LATER])) for value in values[first:]]
    brought = values[:first] + [value for value, held in zip(values[first:], fixed, strict=True)
                                if held is LATER]
    assert same(list(filled(brought, fixed)), values)
    buffer = ArgumentBuffer(tuple(kinds), fixed)
    for _ in range(2):
        assert same(read(buffer.write(brought), kinds), values)
