from __future__ import annotations

import pytest

from gpukit.errors import ArgumentError
from gpukit.measure import attainable_tflops, flag_impossible, peak_for
from gpukit.measure.peaks import DTYPES


@pytest.mark.parametrize(
    ("device", "gbs", "bf16"),
    [
        ("NVIDIA A10", 600, 125),
        ("NVIDIA A100-SXM4-40GB", 1555, 312),
        ("NVIDIA A100-PCIE-40GB", 1555, 312),
        ("NVIDIA A100-SXM4-80GB", 2039, 312),
        ("NVIDIA A100 80GB PCIe", 1935, 312),
        ("NVIDIA L4", 300, 121),
        ("NVIDIA L40S", 864, 362.05),
        ("NVIDIA H100 80GB HBM3", 3350, 989.5),
        ("NVIDIA H100 PCIe", 2000, 756.5),
        ("NVIDIA H200", 4800, 989.5),
        ("NVIDIA B200", 8000, 2250),
        ("NVIDIA GeForce RTX 4090", 1008, 165.2),
        ("NVIDIA GeForce RTX 5090", 1792, 209.5),
    ],
)
def test_driver_names_find_their_part(device: str, gbs: float, bf16: float) -> None:
    peak = peak_for(device)
    assert peak is not None
    assert (peak.gbs, peak.tflops["bf16"]) == (gbs, bf16)
    assert "NVIDIA" in peak.source and set(peak.tflops) <= set(DTYPES)


@pytest.mark.parametrize(
    "device",
    ["NVIDIA A10G", "NVIDIA L40", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb",
     "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "", "emu:h100"],
)  # fmt: skip
def test_similar_names_are_other_parts(device: str) -> None:
    assert peak_for(device) is None


def test_ampere_has_no_fp8() -> None:
    peak = peak_for("NVIDIA A10")
    assert peak is not None
    with pytest.raises(ArgumentError, match="dtype='fp8': A10 has peaks for f32, tf32, f16, bf16"):
        attainable_tflops(peak, "fp8", 1, 1)


def test_roofline_bends_where_bandwidth_times_intensity_meets_the_peak() -> None:
    peak = peak_for("NVIDIA H200")
    assert peak is not None
    # 4800 GB/s at 1 FLOP per byte is 4.8 TFLOPS; at 1000 the tensor cores are the limit.
    assert attainable_tflops(peak, "bf16", 1e9, 1e9) == pytest.approx(4.8)
    assert attainable_tflops(peak, "bf16", 1e12, 1e9) == 989.5
    assert attainable_tflops(peak, "bf16", 1e9, 0) == 989.5


def test_only_rates_above_a_known_peak_are_impossible() -> None:
    assert flag_impossible(4801, 4800)
    assert not flag_impossible(4800, 4800)
    assert not flag_impossible(1e9, None)
