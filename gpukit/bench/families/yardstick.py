"""Ceilings measured in the same run: what the vendor's own code reaches on this GPU now.

They are yardsticks, not upper bounds: one large memcpy and one large cuBLAS product. A kernel may
pass them; what the part could do at most is the datasheet's peak.
"""

from __future__ import annotations

from typing import Any

from gpukit import dtypes
from gpukit.bench.families.buffers import Launch
from gpukit.bench.families.elementwise_peers import memcpy

_COPY_BYTES = 1 << 30
_GEMM = 8192


def copy_ceiling(device: Any) -> dict[str, Any] | None:
    """The runtime's device-to-device memcpy of 1 GiB, cold: {"gbs", "what"}."""
    if device.free_bytes() < 3 * _COPY_BYTES:
        return None
    time_us = _median_us("memcpy", _large_copy(), device)
    return {"gbs": 2 * _COPY_BYTES / time_us / 1e3,
            "what": "device-to-device memcpy of 1 GiB, L2 flushed"}


def gemm_ceiling(device: Any, dtype: str) -> dict[str, Any] | None:
    """cuBLAS on 8192^3 random values of this dtype: {"tflops", "what"}."""
    kind = dtypes.parse(dtype)
    if device.free_bytes() < 8 * _GEMM * _GEMM * kind.itemsize:
        return None
    time_us = _median_us("cublas", _large_gemm(kind), device)
    return {"tflops": 2 * _GEMM**3 / time_us / 1e6,
            "what": f"cuBLAS {_GEMM}^3 {dtype}, B stored [N, K]"}


def _large_copy() -> Launch:
    import cupy

    x = cupy.random.randint(0, 2**31, _COPY_BYTES // 4, dtype=cupy.int32)
    return memcpy([(x,)], [cupy.empty_like(x)])


def _large_gemm(kind: dtypes.DType) -> Launch:
    import cupy

    a, b = (cupy.random.standard_normal((_GEMM, _GEMM), dtype="f4").astype(kind.numpy)
            for _ in range(2))
    out = cupy.empty((_GEMM, _GEMM), kind.numpy)
    return lambda slot: cupy.matmul(a, b.T, out=out)


def _median_us(name: str, launch: Launch, device: Any) -> float:
    """Time one launch; its buffers die with it, and their memory goes back."""
    from gpukit.measure import TimingOptions, Work, time_works

    try:
        return time_works([Work(name, launch)], TimingOptions(budget_s=0.5))[0].median_us
    finally:
        del launch
        device.release_memory()
