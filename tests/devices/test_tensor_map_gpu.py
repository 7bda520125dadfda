"""TMA copies on a real GPU with tensor maps from `CudaDevice`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from copy_kernels import CLUSTER_SPEC, COPY_SPEC, write_all

from gpukit.devices import cuda
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import ArgumentError, LaunchError

pytestmark = pytest.mark.gpu


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cuda.CudaDevice:
    """A device object of its own whose sources are the test kernels."""
    if cuda.get(0).properties.capability < (9, 0):
        pytest.skip("TMA needs compute capability 9.0")
    write_all(tmp_path, monkeypatch)
    return cuda.CudaDevice(0)


def matrix(rows: int, columns: int, start: int = 0) -> Any:
    import cupy

    values = (start + np.arange(rows * columns).reshape(rows, columns)) % 251
    return cupy.asarray(values.astype(ml_dtypes.bfloat16))


def request_of(array: Any, **changes: Any) -> TensorMap:
    rows, columns = array.shape
    return TensorMap(**{"element": "bf16", "dims": (columns, rows),
                        "strides": (array.strides[0],), "box": (64, 16), **changes})


def bits(array: Any) -> Any:
    import cupy

    return cupy.asnumpy(array.view(cupy.uint16))


def launch_copy(device: cuda.CudaDevice, x: Any, out: Any, first: Any, **changes: Any) -> None:
    columns, rows = -(-x.shape[1] // 64), -(-x.shape[0] // 16)
    from_, to = (device.tensor_map(a, request_of(a, **changes)) for a in (x, out))
    device.compile(COPY_SPEC, {}).launch(
        (columns * rows,), (32,), (from_, columns, x, to, first))


@pytest.mark.parametrize("swizzle", [0, 128])
@pytest.mark.parametrize("l2_promotion", [0, 64, 128, 256])
def test_a_copy_with_tails(device: cuda.CudaDevice, swizzle: int, l2_promotion: int) -> None:
    import cupy

    x, out, first = matrix(37, 104, start=7), matrix(37, 104), cupy.zeros(1, cupy.uint16)
    launch_copy(device, x, out, first, swizzle=swizzle, l2_promotion=l2_promotion)
    np.testing.assert_array_equal(bits(out), bits(x))
    assert int(first[0]) == bits(x)[0, 0]


def test_a_bound_copy_of_views_leaves_their_surroundings(device: cuda.CudaDevice) -> None:
    import cupy

    whole, target = matrix(48, 200), matrix(48, 200, start=100)
    before = bits(target)
    x, out = whole[3:40, 8:112], target[1:38, 16:120]
    first = cupy.zeros(1, cupy.uint16)
    call: Callable[..., None] = device.compile(COPY_SPEC, {}).bind((2 * 3,), (32,))
    call(device.tensor_map(x, request_of(x)), 2, device.pointer(x),
         device.tensor_map(out, request_of(out)), device.pointer(first))
    before[1:38, 16:120] = bits(whole)[3:40, 8:112]
    np.testing.assert_array_equal(bits(target), before)


def test_offset_bytes_moves_the_base(device: cuda.CudaDevice) -> None:
    import cupy

    x, out, first = matrix(32, 64), matrix(16, 64), cupy.zeros(1, cupy.uint16)
    lower = device.tensor_map(x, request_of(x, dims=(64, 16)), 16 * x.strides[0])
    device.compile(COPY_SPEC, {}).launch(
        (1,), (32,), (lower, 1, x, device.tensor_map(out, request_of(out)), first))
    np.testing.assert_array_equal(bits(out), bits(x)[16:])


@pytest.mark.parametrize(("element", "itemsize"), [
    ("u8", 1), ("u16", 2), ("f16", 2), ("bf16", 2), ("u32", 4), ("i32", 4), ("f32", 4),
    ("tf32", 4), ("u64", 8), ("i64", 8), ("f64", 8)])
def test_the_driver_takes_every_element(device: cuda.CudaDevice, element: str,
                                        itemsize: int) -> None:
    array = device.empty((64, 256), "uint8")
    made = device.tensor_map(array, TensorMap(element, (256 // itemsize, 64), (256,),
                                              (128 // itemsize, 64)))
    assert len(made) == 128 and any(made)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_the_driver_takes_every_rank(device: cuda.CudaDevice, rank: int) -> None:
    array = device.empty((1 << 16,), "uint8")
    request = TensorMap("u8", (128, 4, 4, 4, 4)[:rank], (128, 512, 2048, 8192)[:rank - 1],
                        (128, 2, 2, 2, 2)[:rank])
    assert len(device.tensor_map(array, request)) == 128


def test_a_misaligned_base_is_refused_before_the_driver(device: cuda.CudaDevice) -> None:
    x = matrix(32, 64)
    with pytest.raises(ArgumentError, match="starts 8 bytes past a multiple of 16"):
        device.tensor_map(x[:, 4:], request_of(x, dims=(60, 32)))


def test_graphs_keep_the_maps_they_captured(device: cuda.CudaDevice) -> None:
    import cupy

    x, out, first = matrix(32, 64), matrix(32, 64, start=9), cupy.zeros(1, cupy.uint16)
    launch_copy(device, x, out, first)
    device.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        launch_copy(device, x, out, first)
        graph = stream.end_capture()
        launch_copy(device, out, x, first)  # overwrites the argument buffer
        stream.synchronize()
        x[...] = matrix(32, 64, start=50)
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(bits(out), bits(matrix(32, 64, start=50)))


def test_threads_do_not_mix_their_maps(device: cuda.CudaDevice) -> None:
    import cupy

    device.compile(COPY_SPEC, {})

    def work(start: int) -> bool:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            x, first = matrix(32, 64, start), cupy.zeros(1, cupy.uint16)
            outs = [cupy.zeros_like(x) for _ in range(50)]
            for out in outs:
                launch_copy(device, x, out, first)
            stream.synchronize()
            return all((bits(out) == bits(x)).all() for out in outs)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 17)))


def test_clusters_launch_and_a_grid_that_does_not_divide_is_refused(
        device: cuda.CudaDevice) -> None:
    import cupy

    out = cupy.full(6, -1, cupy.int32)
    kernel = device.compile(CLUSTER_SPEC, {})
    kernel.launch((6,), (32,), (out,))
    np.testing.assert_array_equal(cupy.asnumpy(out), [0, 1] * 3)
    with pytest.raises(LaunchError, match=r"test.rank with grid \(5,\)"):
        kernel.launch((5,), (32,), (out,))
