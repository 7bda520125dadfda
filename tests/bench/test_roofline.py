"""Roofs from measured ceilings, and what is drawn under them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpukit.bench.roofline import Roofs, intensity, plot_roofline
from gpukit.bench.rows import Row
from gpukit.errors import ArgumentError


def row(kernel: str, dtype: str = "f32", device: str = "GPU", **facts: Any) -> Row:
    params = facts.pop("params", {})
    return Row(kernel.split(".")[0], kernel, device, "sm_90", dtype, {}, params, "flush", "events",
               status="ok", time_us=1.0, **facts)


CEILINGS = [
    row("ceilings.dram", gbs=4000.0, params={"op": "read"}),
    row("ceilings.dram", gbs=4400.0, params={"op": "write"}),
    row("ceilings.l2", "b128", gbs=6000.0, params={"op": "read"}),
    row("ceilings.shared", "b128", gbs=30000.0),
    row("ceilings.wgmma", "bf16", tflops=700.0, params={"data": "random"}),
    row("ceilings.wgmma", "bf16", tflops=650.0, params={"data": "random"}),
    row("ceilings.wgmma", "bf16", tflops=900.0, params={"data": "zeros"}),
    row("ceilings.wgmma", "e4m3", tflops=1300.0, params={"data": "random"})]
POINTS = [row("matmul.a", "bf16", gbs=100.0, tflops=600.0),
          row("matmul.b", "bf16", gbs=3000.0, tflops=9.0)]


def test_roofs_are_the_best_reads_and_products_of_random_data() -> None:
    roofs = Roofs.of(CEILINGS)
    assert roofs == Roofs("GPU", {"DRAM": 4000.0, "L2": 6000.0}, {"bf16": 700.0, "e4m3": 1300.0})
    assert roofs.attainable("bf16", 1e6) == 700
    assert roofs.attainable("bf16", 10) == 40
    with pytest.raises(ArgumentError, match="measured ceilings for bf16, e4m3"):
        roofs.attainable("tf32", 1)


def test_intensity_is_the_ratio_of_the_rates() -> None:
    assert [intensity(point) for point in POINTS] == [6000, 3]


@pytest.mark.parametrize(("ceilings", "words"), [
    (POINTS, "found none"), ([*CEILINGS, row("ceilings.dram", device="B")], "found B, GPU")])
def test_ceilings_are_of_one_gpu(ceilings: list[Row], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Roofs.of(ceilings)


def test_points_and_roofs_belong_to_one_gpu(tmp_path: Path) -> None:
    other = [row("matmul.a", "bf16", device="B", gbs=1.0, tflops=1.0)]
    with pytest.raises(ArgumentError, match="the ceilings are of GPU, the rows of B"):
        plot_roofline(other, CEILINGS, tmp_path / "x.png")
    with pytest.raises(ArgumentError, match="no row has both"):
        plot_roofline([row("memcpy", gbs=1.0)], CEILINGS, tmp_path / "x.png")


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "x.svg"
    plot_roofline(POINTS, CEILINGS, file)
    assert "<svg" in file.read_text()
