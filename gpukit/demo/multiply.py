"""One product by one warpgroup: `cuda_src/wgmma/multiply.cu` on arrays of one's own."""

from __future__ import annotations

from typing import Any

from gpukit import devices, kernels
from gpukit.errors import ArgumentError
from gpukit.kernels.ceilings import COLUMNS
from gpukit.kernels.wgmma_demo import MAJORS

_DTYPES = {"bfloat16": "bf16", "float16": "f16"}
_SPANS = {"none": 16, "32": 32, "64": 64, "128": 128}
_ROWS = 64


def multiply(
    a: Any, b: Any, *, swizzle: str = "none", a_layout: str = "k", b_layout: str = "k"
) -> Any:
    """Multiply A [64, K] by B, given as [N, K], with wgmma: D [64, N] in float32.

    ``swizzle`` is "none", "32", "64" or "128" (bytes), for K of 16, 16, 32 or 64. ``a_layout`` is
    how A gets to the tensor core: along K ("k") or along M ("mn") in shared memory, or from
    "registers"; ``b_layout`` is "k" or "mn".

    Args:
        a, b: contiguous bfloat16 or float16 arrays, CuPy for a GPU, NumPy for the emulator.

    Raises:
        ArgumentError: another shape, dtype or layout.
    """
    device, a = devices.adopt("a", a, "multiply")
    b = devices.adopt("b", b, "multiply")[1]
    _one_of("swizzle", swizzle, tuple(_SPANS))
    _one_of("a_layout", a_layout, (*MAJORS, "registers"))
    _one_of("b_layout", b_layout, MAJORS)
    n, span = b.shape[0] if b.ndim == 2 else 0, _SPANS[swizzle]
    _check(a, b, n, max(span, 32) // 2)
    tunables = {"dtype": _DTYPES[a.dtype.name], "n": n, "span": span,
                "a": "k" if a_layout == "registers" else a_layout, "b": b_layout,
                "registers": "true" if a_layout == "registers" else "false"}
    d = device.empty((_ROWS, n), "float32")
    device.compile(kernels.get("wgmma.multiply"), tunables).launch((1,), (128,), (a, b, d))
    return d


def _check(a: Any, b: Any, n: int, k: int) -> None:
    if a.dtype != b.dtype or a.dtype.name not in _DTYPES:
        raise ArgumentError(f"a, b: bfloat16 or float16, both alike; got {a.dtype} and {b.dtype}")
    if a.shape != (_ROWS, k):
        raise ArgumentError(f"a: [{_ROWS}, {k}] with this swizzle, got {list(a.shape)}")
    if b.shape != (n, k) or n not in COLUMNS:
        raise ArgumentError(f"b: [N, {k}] with N of {', '.join(map(str, COLUMNS))}, "
                            f"got {list(b.shape)}")
    if not (a.flags.c_contiguous and b.flags.c_contiguous):
        raise ArgumentError("a, b: contiguous arrays, rows first")


def _one_of(name: str, given: str, accepted: tuple[str, ...]) -> None:
    if given not in accepted:
        raise ArgumentError(f"{name}={given!r} is not one of {', '.join(accepted)}")
