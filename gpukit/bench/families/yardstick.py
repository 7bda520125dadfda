"""Ceilings measured in the same run: what the vendor's own code reaches on this GPU now.

They are yardsticks, not upper bounds: one large memcpy and one large cuBLAS product. A kernel may
pass them; what the part could do at most is the datasheet's peak.
"""

from __future__ import annotations

from typing import Any

from gpukit.bench.families import cublas, cublaslt, matmul_types
from gpukit.bench.families.buffers import Launch, stream_pointer
from gpukit.bench.families.elementwise_peers import memcpy
from gpukit.bench.families.matmul_types import KINDS, Kind

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
    """cuBLAS on 8192^3 random values of this dtype: {"tflops", "what"}; None where it has none."""
    kind = KINDS[dtype]
    if dtype == "e5m2" or device.free_bytes() < 32 * _GEMM * _GEMM:
        return None
    time_us = _median_us("cublas", _large_gemm(kind), device)
    sums = ", fast sums" if kind.eight_bit else ""
    return {"tflops": 2 * _GEMM**3 / time_us / 1e6,
            "what": f"cuBLAS {_GEMM}^3 {dtype}, B stored [N, K]{sums}"}


def _large_copy() -> Launch:
    import cupy

    x = cupy.random.randint(0, 2**31, _COPY_BYTES // 4, dtype=cupy.int32)
    return memcpy([(x,)], [cupy.empty_like(x)])


def _large_gemm(kind: Kind) -> Launch:
    """The product by the algorithm that the library takes first."""
    import cupy

    rng = cupy.random.default_rng(1)
    a, b = (matmul_types.normal(cupy, rng, (_GEMM, _GEMM), 1.0, kind, False) for _ in range(2))
    out = cupy.empty((_GEMM, _GEMM), KINDS[kind.out].stored.numpy)
    form = cublas.ColumnMajor(_GEMM, _GEMM, _GEMM, "nt")
    types = cublas.DATA_TYPES[kind.name], cublas.DATA_TYPES[kind.out]
    return (_lt if kind.eight_bit else _gemm_ex)(form, types, kind, (b, a, out))


def _gemm_ex(form: cublas.ColumnMajor, types: tuple[int, int], kind: Kind,
             arrays: tuple[Any, Any, Any]) -> Launch:
    handle = cublas.handle()
    compute = cublas.COMPUTE_TF32 if kind.name == "tf32" else cublas.COMPUTE_32F

    def launch(slot: int) -> None:
        handle.use(stream_pointer())
        handle.gemm(form, types, _pointers(arrays), compute)

    return launch


def _lt(form: cublas.ColumnMajor, types: tuple[int, int], kind: Kind,
        arrays: tuple[Any, Any, Any]) -> Launch:
    import cupy

    fast = cublaslt.Extras(fast_accumulation=True)
    product = cublaslt.Product(cublaslt.handle(), form, types, fast)
    first = product.candidates(1)[0]
    workspace = cupy.empty(cublaslt.WORKSPACE_BYTES, cupy.uint8)
    return lambda slot: product.run(first, _pointers(arrays), workspace.data.ptr, stream_pointer())


def _pointers(arrays: tuple[Any, Any, Any]) -> tuple[int, int, int]:
    first, second, out = (int(array.data.ptr) for array in arrays)
    return first, second, out


def _median_us(name: str, launch: Launch, device: Any) -> float:
    """Time one launch; its buffers die with it, and their memory goes back."""
    from gpukit.measure import TimingOptions, Work, time_works

    try:
        return time_works([Work(name, launch)], TimingOptions(budget_s=0.5))[0].median_us
    finally:
        del launch
        device.release_memory()
