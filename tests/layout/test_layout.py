"""The layout algebra against words of the PTX ISA; banks against the emulator's counters."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpukit.emulator.aio.geometry import Geometry
from gpukit.emulator.tensormap import Encoded
from gpukit.layout import banks, fragments, shared, tma, tmem
from gpukit.layout.algebra import Layout, compose, swizzle, tile_to_shape


def test_a_layout_counts_the_first_mode_fastest() -> None:
    layout = Layout((2, (3, 2)), (10, (1, 100)))
    assert layout(np.arange(12)).tolist() == [0, 10, 1, 11, 2, 12, 100, 110, 101, 111, 102, 112]
    assert (layout.size, layout.cosize, str(layout)) == (12, 113, "(2,(3,2)):(10,(1,100))")
    assert layout.mode(1).table().tolist() == [[0, 100], [1, 101], [2, 102]]


def test_compose_applies_the_inner_one_first() -> None:
    assert compose(Layout(8, 3), Layout(4, 2))(3) == 18


def test_tiles_follow_the_order_asked_for() -> None:
    atom = Layout((2, 2), (1, 2))
    assert tile_to_shape(atom, (4, 4)).table()[2, 0] == 4
    assert tile_to_shape(atom, (4, 4), (1, 0)).table()[2, 0] == 8


@pytest.mark.parametrize("mode", list(shared.ATOMS))
def test_swizzles_undo_themselves_within_their_period(mode: str) -> None:
    at = np.arange(0, 2048)
    there = shared.swizzled(mode, at)
    assert (shared.swizzled(mode, there) == at).all()
    assert (there // 1024 == at // 1024).all()
    assert sorted(there) == at.tolist()


def test_the_128_byte_swizzle_is_the_one_of_the_isa() -> None:
    at = np.arange(0, 4096)
    assert (swizzle(3, 4, 3, at) == (at ^ (at >> 3 & 0x70))).all()


def formula_d(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ISA's words for D of wgmma: row and column by thread and register."""
    t, i = np.ogrid[:128, : n // 2]
    row = 16 * (t // 32) + t % 32 // 4 + 8 * (i // 2 % 2)
    return np.broadcast_arrays(row, 8 * (i // 4) + 2 * (t % 4) + i % 2)


@pytest.mark.parametrize("n", [8, 24, 256])
def test_d_of_wgmma(n: int) -> None:
    for got, want in zip(fragments.accumulator(64, n), formula_d(n), strict=True):
        assert (got == want).all()


@pytest.mark.parametrize("per", [1, 2, 4])
def test_a_of_wgmma_in_registers(per: int) -> None:
    t, v = np.ogrid[:128, : 4 * per]
    register, element = v // per, v % per
    row = 16 * (t // 32) + t % 32 // 4 + 8 * (register % 2)
    k = (t % 4) * per + element + 4 * per * (register // 2)
    got = fragments.operand_a(64, 8 * per, per)
    assert (got[0] == row).all() and (got[1] == np.broadcast_to(k, got[1].shape)).all()


@pytest.mark.parametrize("make", [
    lambda: fragments.accumulator(64, 40), lambda: fragments.operand_a(16, 32, 4),
    lambda: fragments.operand_b(16, 2), lambda: fragments.ldmatrix(4, True),
    lambda: tmem.loaded("32x32b", 8), lambda: tmem.loaded("16x64b", 4),
    lambda: tmem.loaded("16x128b", 2), lambda: tmem.loaded("16x256b", 2),
    lambda: tmem.loaded("16x32bx2", 4, 16)])
def test_every_place_is_held_once(make) -> None:  # type: ignore[no-untyped-def]
    places = list(zip(*(part.ravel().tolist() for part in make()), strict=True))
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(("mode", "k_major"), list(
    itertools.product(("none", "32", "64", "128"), (True, False))))
def test_tiles_and_descriptors_say_the_same(mode: str, k_major: bool) -> None:
    """Two ways to one operand of a wgmma: tiling an atom, and strides by LBO and SBO."""
    rows, size = 64, 2
    wide = 16 if mode == "none" or not k_major else int(mode) // size
    tile = shared.SharedTile(mode, k_major, rows, max(wide, 16), 16, 2048)
    lbo, sbo = tile.steps()
    want = shared.addresses(mode, k_major, rows, size, 2048, lbo, sbo)
    assert (tile.places()[0][:, :16] == want).all()
    assert tile.wgmma_descriptor() == shared.descriptor(mode, 2048, lbo, sbo)


@pytest.mark.parametrize("mode", ["32", "64", "128"])
def test_a_tma_box_is_the_tile_that_tensor_cores_read(mode: str) -> None:
    inner = int(mode) // 2
    tile = shared.SharedTile(mode, True, 32, inner, 16, 1024)
    assert (tma.box(inner, 32, 2, mode, 1024) == tile.places()[0]).all()


@pytest.mark.parametrize(("mode", "inner"), [("none", 48), ("128", 32), ("128", 80), ("64", 16)])
def test_rows_of_a_box_that_are_shorter_than_its_swizzle(mode: str, inner: int) -> None:
    """As the emulator has them, whose tensor copies were compared with an H200's."""
    name = mode if mode == "none" else f"{mode}B"
    encoded = Encoded("uint8", 0, (256, 16), (256,), (inner, 16), (1, 1), name, "zero")
    chunks = Geometry(encoded).places(0).reshape(16, -1)
    assert (tma.box(inner, 16, 1, mode)[:, ::16] == chunks * 16).all()


def test_a_box_may_not_be_wider_than_its_swizzle() -> None:
    with pytest.raises(ValueError, match="more than the 64 bytes"):
        tma.box(33, 8, 2, "64")


# Banks


def test_neighbouring_words_are_free_and_one_word_is_shared() -> None:
    lane = np.arange(32)
    assert banks.access(4 * lane, 4).wavefronts == 1
    assert banks.access(0 * lane, 4).wavefronts == 1
    assert banks.access(16 * lane, 16).wavefronts == banks.access(16 * lane, 16).ideal == 4


@pytest.mark.parametrize(("width", "ways"), list(itertools.product((4, 8, 16), (1, 2, 4, 8))))
def test_a_stride_of_n_accesses_is_an_n_way_conflict(width: int, ways: int) -> None:
    found = banks.access(np.arange(32) * width * ways, width)
    assert found.wavefronts == ways * found.ideal
    assert set(found.ways.tolist()) == {ways}


@pytest.mark.parametrize(("mode", "ways"), [("none", 8), ("128", 1)])
def test_the_swizzle_frees_eight_rows_of_128_bytes(mode: str, ways: int) -> None:
    at = shared.swizzled(mode, np.arange(8) * 128 + 48)
    assert banks.access(at, 16).wavefronts == ways
