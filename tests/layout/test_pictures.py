"""Pictures of layouts: what their cells say, and what files are made of them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpukit.layout import gallery
from gpukit.layout.draw import encoded
from gpukit.layout.picture import Picture
from gpukit.layout.pictures import memory, registers, tensor_memory

ALL = [
    registers.wgmma_d(16), registers.wgmma_d(16, "f16"), registers.wgmma_a("e4m3"),
    registers.mma_a(), registers.mma_b("tf32"), registers.mma_c(), registers.ldmatrix(2, True),
    memory.operand("A", 64), memory.operand("B", 8, "bf16", "64", "mn"),
    memory.operand("B", 16, "e4m3", "none"), memory.box(), memory.box(mode="none", access="row"),
    memory.warp_access(), memory.swizzle("32"), memory.swizzle("128/32"), memory.ldmatrix(),
    tensor_memory.loaded("16x256b", 2), tensor_memory.accumulator(64, 8),
]
SVG = "{http://www.w3.org/2000/svg}"
IDS = [picture.title for picture in ALL]


def texts(picture: Picture, row: int) -> list[str]:
    return [cell.text if cell else "" for cell in picture.cells[row]]


def test_d_of_wgmma_names_threads_and_registers() -> None:
    picture = registers.wgmma_d(8)
    assert texts(picture, 8) == ["T0 r2", "T0 r3", "T1 r2", "T1 r3", "T2 r2", "T2 r3", "T3 r2",
                                 "T3 r3"]
    assert texts(picture, 63)[-1] == "T127 r3"
    assert texts(registers.wgmma_d(8, "f16"), 0)[:2] == ["T0 r0.0", "T0 r0.1"]


def test_the_first_swizzled_lines() -> None:
    assert texts(memory.operand("B", 8), 1) == ["0x90", "0x80", "0xb0", "0xa0", "0xd0", "0xc0",
                                                "0xf0", "0xe0"]
    assert texts(memory.swizzle("32"), 1)[:4] == ["r4 c1", "r4 c0", "r5 c1", "r5 c0"]


@pytest.mark.parametrize(("mode", "ways"), [("none", 8), ("128", 0)])
def test_conflicts_show(mode: str, ways: int) -> None:
    picture = memory.box(mode=mode)
    assert picture.conflicts == ways
    records = list(picture.records())
    assert ("conflict" in records[0]) == bool(ways)
    assert ("red" in encoded(picture, Path("x.svg")).decode()) == bool(ways)


@pytest.mark.parametrize(("pattern", "row_bytes", "mode", "ways"), [
    ("fragment", 128, "none", 8), ("fragment", 128, "128", 0), ("fragment", 144, "none", 0),
    ("row", 128, "none", 0), ("column", 128, "none", 32), ("column", 132, "none", 0)])
def test_conflicts_of_a_warp(pattern: str, row_bytes: int, mode: str, ways: int) -> None:
    assert memory.warp_access(pattern, 4, row_bytes, mode).conflicts == ways


@pytest.mark.parametrize("picture", ALL, ids=IDS)
def test_an_svg_has_a_box_and_a_text_for_every_cell(picture: Picture) -> None:
    root = ElementTree.fromstring(encoded(picture, Path("x.svg")))
    groups = root.findall(f"{SVG}g")
    shown = ["".join(group.find(f"{SVG}text").itertext()) for group in groups]
    assert shown == [cell.text for line in picture.cells for cell in line if cell]
    right = max(float(r.get("x")) + float(r.get("width")) for r in root.iter(f"{SVG}rect")
                if r.get("x"))
    assert right <= float(root.get("width"))


@pytest.mark.parametrize("picture", ALL, ids=IDS)
def test_json_and_csv_hold_the_same_facts(picture: Picture) -> None:
    document = json.loads(encoded(picture, Path("x.json")))
    table = list(csv.DictReader(io.StringIO(encoded(picture, Path("x.csv")).decode())))
    assert table == [{k: str(v) for k, v in cell.items()} for cell in document["cells"]]
    assert len(table) == sum(cell is not None for line in picture.cells for cell in line)


def test_html_holds_the_svg() -> None:
    page = encoded(ALL[0], Path("x.html")).decode()
    assert page.startswith("<!doctype html>") and encoded(ALL[0], Path("x.SVG")).decode() in page


def test_png() -> None:
    pytest.importorskip("matplotlib")
    assert encoded(memory.swizzle("32"), Path("x.png")).startswith(b"\x89PNG")


def test_a_window_keeps_names_and_facts() -> None:
    part = registers.wgmma_d(16).window(slice(8, 10), slice(14, None))
    assert part.rows == ("8", "9") and part.columns == ("14", "15")
    assert texts(part, 0) == ["T3 r6", "T3 r7"]


@pytest.mark.parametrize("name", ["x.svg", "x.html", "x.json", "x.csv"])
def test_a_window_of_empty_cells_is_written_too(name: str) -> None:
    empty = tensor_memory.accumulator(64, 8).window(slice(16, 32), slice(None))
    assert encoded(empty, Path(name))


@pytest.mark.parametrize(("make", "words"), [
    (lambda: encoded(ALL[0], Path("x.pdf")), "x.pdf: the name must end in"),
    (lambda: memory.operand("B", 8, "tf32", major="mn"), "only 16-bit types"),
    (lambda: memory.box(inner=3), "a multiple of 16 bytes"),
    (lambda: memory.warp_access("row", 4, 64), "a row holds 32 accesses"),
    (lambda: memory.ldmatrix(24), "multiples of 16"),
    (lambda: memory.ldmatrix(16), "need 64 bytes"),
    (lambda: tensor_memory.loaded("16x256b", 64), "up to 128 registers"),
    (lambda: tensor_memory.loaded("32x32b", 3), "powers of two"),
    (lambda: tensor_memory.accumulator(32, 8), "has 64, 128"),
    (lambda: tensor_memory.accumulator(128, 8, 2, True), "has no shapes"),
    (lambda: tensor_memory.accumulator(128, 8, 2), "multiples of 16"),
    (lambda: tensor_memory.accumulator(64, 32, 1, True), "64, 128, 256 with .ws"),
    (lambda: tensor_memory.loaded("16x32bx2", 4, 2), "halves overlap"),
    (lambda: registers.wgmma_d(40, "s32"), "multiples of 16"),
    (lambda: memory.operand("B", 40, "s8"), "multiples of 16"),
])
def test_what_cannot_be_drawn(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        make()


def test_figures_of_the_documents_are_those_of_the_gallery(tmp_path: Path) -> None:
    gallery.write(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "layouts.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(generated/layouts/([\w-]+)\.svg\)", text))
    assert shown and shown <= {file.stem for file in tmp_path.iterdir()} == set(gallery.FIGURES)
