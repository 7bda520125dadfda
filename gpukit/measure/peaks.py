"""Datasheet ceilings per GPU, and the roofline they make.

Bandwidth in GB/s (1e9 bytes), arithmetic in dense TFLOPS: half of the "with sparsity" figure
where the datasheet prints that one. Where a part has two tensor rates, the one with float32
accumulation is given. These are marketing clocks: a boosting part can in principle pass them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES = ("f32", "tf32", "f16", "bf16", "fp8")


@dataclass(frozen=True)
class Peak:
    """One part. ``tflops`` has a key of `DTYPES` for each rate the part has."""

    name: str
    gbs: float
    tflops: Mapping[str, float]
    sms: int
    source: str


def _tflops(f32: float, tf32: float, half: float, fp8: float | None = None) -> Mapping[str, float]:
    """f16 and bf16 run at one rate on every part listed."""
    rates = {"f32": f32, "tf32": tf32, "f16": half, "bf16": half}
    return MappingProxyType(rates if fp8 is None else rates | {"fp8": fp8})


_HOPPER_SXM = _tflops(67, 494.5, 989.5, 1979)
_A100 = _tflops(19.5, 156, 312)

A10 = Peak("A10", 600, _tflops(31.2, 62.5, 125), 72, "NVIDIA A10 datasheet, 2021")
A100_40 = Peak("A100 40GB", 1555, _A100, 108, "NVIDIA A100 datasheet, 2021")
A100_80_PCIE = Peak("A100 80GB PCIe", 1935, _A100, 108, "NVIDIA A100 datasheet, 2022")
A100_80_SXM = Peak("A100 80GB SXM", 2039, _A100, 108, "NVIDIA A100 datasheet, 2022")
L4 = Peak(
    "L4", 300, _tflops(30.3, 60, 121, 242.5), 58,
    "NVIDIA L4 datasheet, 2023 (tensor rates halved: printed with sparsity)",
)  # fmt: skip
L40S = Peak("L40S", 864, _tflops(91.6, 183, 362.05, 733), 142, "NVIDIA L40S datasheet, 2023")
H100_SXM = Peak(
    "H100 SXM", 3350, _HOPPER_SXM, 132,
    "NVIDIA H100 datasheet, 2023 (tensor rates halved: printed with sparsity)",
)  # fmt: skip
H100_PCIE = Peak(
    "H100 PCIe", 2000, _tflops(51, 378, 756.5, 1513), 114,
    "NVIDIA H100 datasheet, 2023 (tensor rates halved: printed with sparsity)",
)  # fmt: skip
H200 = Peak(
    "H200", 4800, _HOPPER_SXM, 132,
    "NVIDIA H200 datasheet, 2024, SXM (tensor rates halved: printed with sparsity)",
)  # fmt: skip
B200 = Peak(
    "B200", 8000, _tflops(75, 1100, 2250, 4500), 148,
    "NVIDIA Blackwell datasheet, 2025, HGX B200 (tensor rates halved: printed with sparsity; "
    "bandwidth as announced, up to 8 TB/s: the table prints 7.7 TB/s for HGX)",
)  # fmt: skip
RTX_4090 = Peak(
    "RTX 4090", 1008, _tflops(82.6, 82.6, 165.2, 330.3), 128,
    "NVIDIA Ada GPU architecture whitepaper, 2022, appendix A",
)  # fmt: skip
RTX_5090 = Peak(
    "RTX 5090", 1792, _tflops(104.8, 104.8, 209.5, 419), 170,
    "NVIDIA RTX Blackwell GPU architecture whitepaper, 2025, appendix A",
)  # fmt: skip

# The names the driver gives these parts, normalised. Exact, because an "A10G", an
# "H100 NVL", a "4090 D" or a MIG slice is another part with other peaks.
_BY_NAME = {
    "a10": A10,
    "a100 sxm4 40gb": A100_40,
    "a100 pcie 40gb": A100_40,
    "a100 80gb pcie": A100_80_PCIE,
    "a100 sxm4 80gb": A100_80_SXM,
    "l4": L4,
    "l40s": L40S,
    "h100 80gb hbm3": H100_SXM,
    "h100 sxm5 80gb": H100_SXM,
    "h100 pcie": H100_PCIE,
    "h200": H200,
    "b200": B200,
    "rtx 4090": RTX_4090,
    "rtx 5090": RTX_5090,
}


def peak_for(device_name: str) -> Peak | None:
    """The peaks of the part with this driver name ("NVIDIA H200"), or None if not in the table."""
    words = re.split(r"[\s_-]+", device_name.strip().lower())
    return _BY_NAME.get(" ".join(word for word in words if word not in ("nvidia", "geforce")))


def attainable_tflops(peak: Peak, dtype: str, flops: float, bytes: float) -> float:
    """Roofline: the arithmetic peak, or what the bandwidth feeds at ``flops`` per ``bytes``.

    ``dtype`` is one of `DTYPES`; raises ArgumentError for a rate the part does not have.
    """
    if dtype not in peak.tflops:
        raise ArgumentError(f"dtype={dtype!r}: {peak.name} has peaks for {', '.join(peak.tflops)}")
    if bytes <= 0:
        return peak.tflops[dtype]
    return min(peak.tflops[dtype], peak.gbs * flops / bytes / 1e3)


def flag_impossible(rate: float, peak: float | None) -> bool:
    """Whether a rate (GB/s or TFLOPS) is above the peak of its kind: measured wrong, or cached."""
    return peak is not None and rate > peak
