"""Tensor maps: the rules, what reaches the driver's encoder, and TMA copies on the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from copy_kernels import CLUSTER_SPEC, COPY_SPEC, VECTOR_SPEC, write_all
from hypothesis import given
from hypothesis import strategies as st

from gpukit import devices, emulator
from gpukit.devices import cuda_tensor_map
from gpukit.devices.emulated import EmulatedDevice
from gpukit.devices.tensor_map import ELEMENTS, L2_PROMOTIONS, SWIZZLES, Element, TensorMap
from gpukit.emulator import tensormap
from gpukit.errors import ArgumentError, LaunchError, UnsupportedError

GOOD: dict[str, Any] = {"element": "bf16", "dims": (96, 40), "strides": (192,), "box": (64, 16)}
BAD = [
    ({"element": "fp8"}, "element is 'fp8'; accepted: u8, u16, u32"),
    ({"dims": ()}, r"dims is \(\); accepted: 1 to 5 dimensions"),
    ({"dims": (16,) * 6}, "accepted: 1 to 5 dimensions"),
    ({"dims": (96, 0)}, r"dims\[1\] is 0; accepted: 1 to 2\^32"),
    ({"dims": (96, 2**32 + 1)}, r"dims\[1\] is 4294967297"),
    ({"strides": ()}, r"strides is \(\); accepted: 1 entries"),
    ({"strides": (200,)}, r"strides\[0\] is 200 bytes; accepted: multiples of 16 below 2\^40"),
    ({"strides": (-16,)}, r"strides\[0\] is -16 bytes"),
    ({"strides": (2**40,)}, r"strides\[0\] is 1099511627776 bytes"),
    ({"box": (64,)}, r"box is \(64,\); accepted: 2 entries"),
    ({"box": (64, 257)}, r"box\[1\] is 257; accepted: 1 to 256"),
    ({"box": (64, 0)}, r"box\[1\] is 0"),
    ({"box": (4, 16)}, r"box\[0\] is 4 elements of bf16, 8 bytes; accepted: multiples of 16"),
    ({"box": (72, 16)}, r"144 bytes; accepted: at most 128 bytes with swizzle=128"),
    ({"swizzle": 32}, r"box\[0\] is 64 elements of bf16, 128 bytes; accepted: at most 32"),
    ({"swizzle": 16}, "swizzle is 16; accepted: 0, 32, 64, 128"),
    ({"l2_promotion": 32}, "l2_promotion is 32; accepted: 0, 64, 128, 256"),
]


def encode_like_the_driver(out: int, element: int, rank: int, address: int | None, dims: int,
                           strides: int, box: int, steps: int, interleave: int, swizzle: int,
                           promotion: int, fill: int) -> int:
    """cuTensorMapEncodeTiled's C interface in front of the emulator's encoder."""
    def read(ctype: Any, start: int, count: int) -> list[int]:
        return list((ctype * count).from_address(start))

    raw = tensormap.encode(
        list(tensormap.DATA_TYPES)[element], address or 0,
        read(ctypes.c_uint64, dims, rank), read(ctypes.c_uint64, strides, rank - 1),
        read(ctypes.c_uint32, box, rank), read(ctypes.c_uint32, steps, rank),
        tensormap.INTERLEAVES[interleave], list(tensormap.SWIZZLES)[swizzle],
        tensormap.L2_PROMOTIONS[promotion], tensormap.OOB_FILLS[fill])
    assert out % 128 == 0
    ctypes.memmove(out, raw, len(raw))
    return 0


DRIVER = ctypes.PYFUNCTYPE(ctypes.c_int, *cuda_tensor_map.ARGUMENT_TYPES)(encode_like_the_driver)


@pytest.mark.parametrize(("change", "message"), BAD)
def test_rules_are_checked_by_both_devices(change: dict[str, Any], message: str) -> None:
    request = TensorMap(**{**GOOD, **change})
    with pytest.raises(ArgumentError, match=message) as emulated:
        devices.get("emu").tensor_map(np.zeros((40, 96), ml_dtypes.bfloat16), request)
    with pytest.raises(ArgumentError, match=message):
        cuda_tensor_map.encode(4096, request, DRIVER)
    assert "\n" not in str(emulated.value) and str(emulated.value).startswith("tensor_map: ")


def test_a_base_off_alignment_is_refused_by_both_devices() -> None:
    array = np.zeros((40, 96), ml_dtypes.bfloat16)
    request = TensorMap("bf16", (96, 39), (192,), (64, 16))
    message = "starts 8 bytes past a multiple of 16"
    for start, offset in ((array, 8), (array[:, 4:], 0), (array[:, 2:], 4)):
        with pytest.raises(ArgumentError, match=message):
            devices.get("emu").tensor_map(start, request, offset)
    with pytest.raises(ArgumentError, match=message):
        cuda_tensor_map.encode(4096 + 8, request, DRIVER)
    devices.get("emu").tensor_map(array[:, 4:], request, 8)


@st.composite
def requests(draw: st.DrawFn) -> TensorMap:
    """Any request that keeps the rules."""
    element = draw(st.sampled_from(sorted(ELEMENTS)))
    rank, swizzle = draw(st.integers(1, 5)), draw(st.sampled_from(SWIZZLES))
    size = ELEMENTS[element].itemsize
    inner = draw(st.integers(1, min(256 * size, swizzle or 2048) // 16)) * 16 // size
    def times(values: st.SearchStrategy[int], count: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=count, max_size=count)))

    return TensorMap(element, times(st.integers(1, 2**32), rank),
                     times(st.integers(0, 2**36 - 1).map(lambda n: n * 16), rank - 1),
                     (inner, *times(st.integers(1, 256), rank - 1)), swizzle,
                     draw(st.sampled_from(L2_PROMOTIONS)))


@given(requests(), st.integers(0, 2**43).map(lambda n: n * 16))
def test_the_driver_is_handed_every_field(request: TensorMap, address: int) -> None:
    """The C call, decoded by the emulator's encoder, says what the request says."""
    named = ELEMENTS[request.element].long_name
    raw = cuda_tensor_map.encode(address, request, DRIVER)
    swizzle, promotion = (f"{n}B" if n else "none" for n in (request.swizzle, request.l2_promotion))
    assert raw == tensormap.encode(named, address, request.dims, request.strides, request.box,
                                   swizzle=swizzle, l2_promotion=promotion)
    fields = tensormap.decode(raw)
    assert fields is not None
    assert (fields.data_type, fields.address, fields.dims, fields.strides, fields.box,
            fields.swizzle) == (named, address, request.dims, request.strides, request.box, swizzle)


@given(requests(), st.integers(0, 64))
def test_the_emulated_device_encodes_the_same(request: TensorMap, sixteens: int) -> None:
    array = np.zeros(4096, np.uint8)
    made: Any = devices.get("emu").tensor_map(array, request, 16 * sixteens)
    assert made.encode(1 << 20) == cuda_tensor_map.encode(
        (1 << 20) + 16 * sixteens, request, DRIVER)


def test_packed_elements_are_for_models_of_sm_100(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request has them yet; the encoder follows the model's architecture."""
    monkeypatch.setitem(ELEMENTS, "u4", Element(1, 13, "16u4_align8b"))
    request = TensorMap("u4", (128, 8), (64,), (128, 8))
    array = np.zeros((8, 64), np.uint8)
    b200, h100 = (devices.get(name).tensor_map(array, request)
                  for name in ("emu:b200", "emu:h100"))
    found = tensormap.decode(b200.encode(1 << 20))
    assert found is not None
    assert (found.data_type, found.dims) == ("16u4_align8b", (128, 8))
    with pytest.raises(emulator.LaunchError, match="needs compute capability"):
        h100.encode(1 << 20)


def test_element_numbers_are_the_drivers() -> None:
    names = pytest.importorskip("cuda.bindings.driver").CUtensorMapDataType
    for element in ELEMENTS.values():
        suffix = element.long_name.upper()
        assert element.driver == getattr(names, f"CU_TENSOR_MAP_DATA_TYPE_{suffix}")
        assert list(tensormap.DATA_TYPES).index(element.long_name) == element.driver
        assert tensormap.DATA_TYPES[element.long_name][0] == element.itemsize


def test_a_refusal_of_the_drivers_own_is_reported() -> None:
    refuse = ctypes.PYFUNCTYPE(ctypes.c_int, *cuda_tensor_map.ARGUMENT_TYPES)(lambda *_: 1)
    with pytest.raises(ArgumentError, match=r"driver refused TensorMap.* with CUDA error 1"):
        cuda_tensor_map.encode(4096, TensorMap(**GOOD), refuse)


@pytest.mark.parametrize("error", [OSError("no such file"), AttributeError("no such symbol")])
def test_no_driver_is_said_in_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise error

    monkeypatch.setattr(ctypes, "PyDLL", load)
    with pytest.raises(UnsupportedError, match="need an NVIDIA driver for CUDA 12 or later"):
        cuda_tensor_map.encode_tiled.__wrapped__()


@pytest.fixture(params=["h100", "b200"])
def device(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """A fresh emulated device whose sources are the test kernels."""
    pytest.importorskip("cuda.bindings.nvrtc")
    write_all(tmp_path, monkeypatch)
    known: Any = devices.get(f"emu:{request.param}")
    return EmulatedDevice(request.param, known.model)


def matrix(rows: int, columns: int) -> Any:
    values = np.arange(rows * columns).reshape(rows, columns) % 251
    return values.astype(ml_dtypes.bfloat16)


def request_of(array: Any, **changes: Any) -> TensorMap:
    rows, columns = array.shape
    return TensorMap(**{"element": "bf16", "dims": (columns, rows),
                        "strides": (array.strides[0],), "box": (64, 16), **changes})


def copy(device: EmulatedDevice, x: Any, out: Any, first: Any, **changes: Any) -> None:
    """Launch the copy, each way once."""
    kernel = device.compile(COPY_SPEC, {})
    columns, rows = -(-x.shape[1] // 64), -(-x.shape[0] // 16)
    maps = [device.tensor_map(a, request_of(a, **changes)) for a in (x, out)]
    launchers: tuple[Callable[..., None], ...] = (
        kernel.bind((columns * rows,), (32,)),
        lambda *args: kernel.launch((columns * rows,), (32,), args))
    for launch in launchers:
        out.fill(0)
        launch(maps[0], columns, x, maps[1], first)


@pytest.mark.parametrize("swizzle", [0, 128])
def test_a_copy_with_tails(device: EmulatedDevice, swizzle: int) -> None:
    x, out, first = matrix(37, 104), matrix(37, 104), np.zeros(1, ml_dtypes.bfloat16)
    x[0, 0] = 7
    copy(device, x, out, first, swizzle=swizzle)
    np.testing.assert_array_equal(out, x)
    assert first[0] == 7
    assert device.last_counters is not None


def test_a_copy_of_views_leaves_their_surroundings(device: EmulatedDevice) -> None:
    whole, target = matrix(48, 200), matrix(48, 200) * 0 - 1
    x, out = whole[3:40, 8:112], target[1:38, 16:120]
    copy(device, x, out, np.zeros(1, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(out, x)
    target[1:38, 16:120] = -1
    assert (target == -1).all()


def test_offset_bytes_moves_the_base(device: EmulatedDevice) -> None:
    x, out, first = matrix(32, 64), matrix(16, 64), np.zeros(1, ml_dtypes.bfloat16)
    half = request_of(x, dims=(64, 16))
    kernel = device.compile(COPY_SPEC, {})
    kernel.launch((1,), (32,), (device.tensor_map(x, half, 16 * x.strides[0]), 1, x,
                                device.tensor_map(out, request_of(out)), first))
    np.testing.assert_array_equal(out, x[16:])


@pytest.mark.parametrize("part_is_map", [True, False])
def test_pointer_and_map_of_one_array_are_one_memory(device: EmulatedDevice,
                                                     part_is_map: bool) -> None:
    """CTA 1 stores through the pointer where CTA 0 stores a box: a race, if memory is shared."""
    x, out = matrix(32, 64), matrix(32, 64)
    mapped, pointed = (out[:16], out) if part_is_map else (out, out[:16])
    args = (device.tensor_map(x, request_of(x)), 1, x,
            device.tensor_map(mapped, request_of(mapped)), pointed)
    with pytest.raises(LaunchError, match=r"writes global memory.*tma_store|race"):
        device.compile(COPY_SPEC, {}).launch((2,), (32,), args)


def test_what_lies_past_the_array_is_out_of_bounds(device: EmulatedDevice) -> None:
    x, out, first = matrix(16, 64), matrix(16, 64), np.zeros(1, ml_dtypes.bfloat16)
    longer = device.tensor_map(x, request_of(x, dims=(64, 17), box=(64, 16)))
    kernel = device.compile(COPY_SPEC, {})
    with pytest.raises(LaunchError, match=r"past the end of from"):
        kernel.launch((2,), (32,), (longer, 1, first, device.tensor_map(out, request_of(out)),
                                    first))


def test_arrays_and_maps_cannot_be_mixed_up(device: EmulatedDevice) -> None:
    x, first = matrix(16, 64), np.zeros(1, ml_dtypes.bfloat16)
    good = device.tensor_map(x, request_of(x))
    kernel = device.compile(COPY_SPEC, {})
    with pytest.raises(LaunchError, match=r"args\[0\] of copy: .* has 8 bytes, the parameter 128"):
        kernel.launch((1,), (32,), (x, 1, x, good, first))
    with pytest.raises(LaunchError, match=r"args\[2\] of copy: .* has 128 bytes, the parameter 8"):
        kernel.launch((1,), (32,), (good, 1, good, good, first))


def test_clusters_launch_and_a_grid_that_does_not_divide_is_refused(device: EmulatedDevice) -> None:
    out = np.full(6, -1, np.int32)
    kernel = device.compile(CLUSTER_SPEC, {})
    kernel.bind((6,), (32,))(out)
    np.testing.assert_array_equal(out, [0, 1] * 3)
    out.fill(-1)
    with pytest.raises(LaunchError, match=r"test.rank: grid: \(5, 1, 1\) is not a multiple of the "
                                          r"cluster \(2, 1, 1\)"):
        kernel.bind((5,), (32,))(out)
    assert (out == -1).all()


def test_a_misaligned_view_faults_as_on_a_gpu(device: EmulatedDevice) -> None:
    x, out = np.arange(16, dtype=np.int32), np.zeros(1, np.int32)
    kernel = device.compile(VECTOR_SPEC, {})
    kernel.launch((1,), (1,), (x[4:], out))
    assert out[0] == 4 + 5 + 6 + 7
    with pytest.raises(LaunchError, match="not a multiple of the access size, 16 bytes"):
        kernel.launch((1,), (1,), (x[5:], out))
