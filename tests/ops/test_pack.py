"""Packed copies: emulated for every way to lie in memory, larger ones on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

from gpukit import devices
from gpukit.errors import UnsupportedError
from gpukit.ops.pack import pack, pitch, plan

KINDS = ["u1", "u2", "u4"]


def matrix(rows: int, cols: int, kind: str) -> np.ndarray:
    """Random elements without a zero byte, which padding would be taken for."""
    itemsize = np.dtype(kind).itemsize
    values = np.random.default_rng(rows).integers(1, 256, (rows, cols * itemsize), np.uint8)
    return values.view(kind)


def check(src: Any, align: int = 16, device: str = "emu:h100") -> None:
    """Every element in place, zeros after each row, and no byte around dst touched."""
    rows, cols = src.shape
    where = devices.get(device)
    width = pitch(cols, src.dtype.itemsize, align)
    around = where.xp.full((rows + 2, width), 0xA5, "u1").astype(src.dtype)
    pack(where, src, around[1:-1])
    host, want = where.to_host(around), where.to_host(src)
    assert (host[1:-1, :cols] == want).all()
    assert not host[1:-1, cols:].any()
    assert (host[[0, -1]] == 0xA5).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 3), (3, 16), (70, 151), (2, 1029)])
@pytest.mark.parametrize("align", [16, 128])
def test_contiguous_rows(kind: str, rows: int, cols: int, align: int) -> None:
    check(matrix(rows, cols, kind), align)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_wider_matrix(kind: str) -> None:
    whole = matrix(41, 77, kind)
    check(whole[:, :30])
    check(whole[::2, 3:36])
    check(whole[::-1])
    check(whole[:, :1])
    check(np.broadcast_to(whole[:1], (9, 77)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [1, 2, 5, 11, 15])
def test_rows_that_start_at_any_address(kind: str, offset: int) -> None:
    flat = matrix(1, 700, kind)[0]
    for width in (1, 7, 33):
        check(flat[offset:offset + 20 * width].reshape(20, width))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols"), [(5, 3), (64, 40), (66, 130), (151, 70), (144, 129)])
def test_transposes(kind: str, rows: int, cols: int) -> None:
    """144 and 64 rows let columns be read 16 bytes at a time, 66 and 151 do not."""
    check(matrix(cols, rows, kind).T)
    check(matrix(cols, rows, kind).T, 128)


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_between_elements(kind: str) -> None:
    whole = matrix(40, 90, kind)
    check(whole[:, ::2])
    check(whole[::3, ::-1])
    check(whole.T[::2, 1:])
    check(whole.T[::-1, ::3])


@pytest.mark.parametrize("index", ["u32", "u64"])
@pytest.mark.parametrize("unroll", [1, 4])
def test_every_counter(index: str, unroll: int) -> None:
    from gpukit import kernels

    src, dst = matrix(37, 1029, "u1"), np.full((37, 1040), 0xA5, "u1")
    kernel = devices.get("emu:h100").compile(kernels.get("matmul.pack"),
                                             {"unroll": unroll, "index": index})
    chunks = 65
    ctas = -(-37 * chunks // (256 * unroll))
    kernel.launch((ctas,), (256,), (src, dst, 37, 1029, 1029, chunks, *divmod(256, chunks)))
    assert (dst[:, :1029] == src).all()
    assert not dst[:, 1029:].any()


def test_no_columns_are_all_padding() -> None:
    dst = np.full((3, 16), 0xA5, "u1")
    pack(devices.get("emu:h100"), np.zeros((3, 0), "u1"), dst)
    assert not dst.any()


def test_pitch_is_in_elements() -> None:
    assert [pitch(cols, 2) for cols in (0, 1, 8, 9)] == [0, 8, 8, 16]
    assert pitch(4111, 2) == 4112
    assert pitch(65, 1, 128) == 128
    assert pitch(5, 4) == 8


@pytest.mark.parametrize(("view", "name", "vec"), [
    (lambda x: x, "matmul.pack", None), (lambda x: x.T, "matmul.pack_tiled", 8),
    (lambda x: x[:, 2:].T, "matmul.pack_tiled", 2), (lambda x: x[:, :62].T, "matmul.pack_tiled", 2),
    (lambda x: x[:, 1:].T, "matmul.pack_tiled", 1), (lambda x: x[:, ::2], "matmul.pack_tiled", 1),
])
def test_the_kernel_and_the_width_of_its_loads(view: Any, name: str, vec: int | None) -> None:
    device = FakeDevice()
    src = view(device.array((32, 64), "u2"))
    pack(device, src, device.array((src.shape[0], pitch(src.shape[1], 2)), "u2"))
    launch = device.launches[0]
    assert (launch.name, launch.tunables.get("vec")) == (name, vec)


def test_rows_beyond_32_bits_are_refused() -> None:
    rows = np.broadcast_to(np.float16(0), (2, 2**30))
    long = np.lib.stride_tricks.as_strided(rows, rows.shape, (2, 2))
    with pytest.raises(UnsupportedError, match=r"^matmul: rows of 2147483648 bytes would have"):
        plan(FakeDevice(), long, 2**30)


def test_empty_matrices_launch_nothing() -> None:
    device = FakeDevice()
    pack(device, device.array((0, 5), "u2"), device.array((0, 8), "u2"))
    assert not device.launches


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "cols"), [(4097, 4111), (1, 100003), (100003, 1), (8192, 8192)])
def test_on_a_gpu(kind: str, rows: int, cols: int) -> None:
    import cupy

    src = cupy.asarray(matrix(rows, cols, kind))
    check(src, device="cuda:0")
    check(src.T, 128, device="cuda:0")
    check(src[:, 1:], device="cuda:0")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", range(1, 17))
def test_misaligned_views_on_a_gpu(kind: str, offset: int) -> None:
    import cupy

    flat = cupy.asarray(matrix(1, 50000, kind))[0]
    for width in (1, 7, 16, 33, 500):
        check(flat[offset:offset + 60 * width].reshape(60, width), device="cuda:0")
        check(flat[offset:offset + 60 * width].reshape(60, width).T, device="cuda:0")
