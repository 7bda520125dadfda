"""The wgmma demos: every case, by the emulator and by a GPU; and a wrong prediction shows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpukit import demo
from gpukit.demo import pictures
from gpukit.demo.cases import CASES
from gpukit.demo.images import BASE, digits, numbers
from gpukit.errors import ArgumentError, UnsupportedError

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_emulator_does_what_the_algebra_says(case: demo.Case) -> None:
    found = demo.wgmma(case, "emu:h100")[0]
    assert found.ok, pictures.differences(found)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hopper_does_what_the_algebra_says(case: demo.Case) -> None:
    try:
        found = demo.wgmma(case, "cuda:0")[0]
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    assert found.ok, pictures.differences(found)


@pytest.mark.parametrize("change", [{"swizzle": "64"}, {"step": 1}])
def test_another_layout_is_told_apart(change: dict[str, object]) -> None:
    """The places found are the device's own: of another case they are others."""
    ours = demo.wgmma("n64-128", "emu:h100")[0]
    other = demo.wgmma(dataclasses.replace(ours.case, **change), "emu:h100")[0]
    assert other.ok
    assert not np.array_equal(ours.b.found, other.b.found)
    mixed = dataclasses.replace(ours, b=demo.Map(ours.b.found, other.b.expected))
    assert not mixed.ok
    assert pictures.differences(mixed)[0].startswith("B[")


def test_pictures_show_what_was_found() -> None:
    d, a, b = pictures.pictures(demo.wgmma("registers", "emu:h100")[0])
    assert d.cells[8][0].text == "T0 r2"
    assert a.cells[0][8].text == "T0 r2.0"
    assert [cell.text for cell in b.cells[1]] == ["0x10", "0x90"]


@pytest.mark.parametrize("dtype", sorted(BASE))
def test_digits_name_every_place(dtype: str) -> None:
    read = digits(dtype, 4096)
    assert numbers(dtype, read).tolist() == list(range(4096))
    assert all((one.astype(np.float64) == np.rint(one.astype(np.float64))).all() for one in read)
    read[0][7] = 0
    assert numbers(dtype, read)[7] == -1


def test_an_unknown_case_lists_the_known() -> None:
    with pytest.raises(ArgumentError, match="known: all, plain"):
        demo.wgmma("nope")


@pytest.mark.parametrize(("change", "words"), [
    ({"dtype": "f64"}, "dtype='f64' is not one of"), ({"swizzle": "256"}, "swizzle='256'"),
    ({"dtype": "s8"}, "acc='f32' is not one of i32"), ({"dtype": "tf32", "b": "mn"}, "16-bit"),
    ({"swizzle": "64", "step": 2}, "from 0 to 1"), ({"step": -1}, "from 0 to 7"),
    ({"dtype": "f16", "acc": "f16"}, "multiples of 16")])
def test_what_wgmma_has_not_is_no_case(change: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        demo.Case("odd", **change)  # type: ignore[arg-type]
