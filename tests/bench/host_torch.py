"""A torch and a deep_gemm on the host: what the benchmark calls of them, computed by NumPy.

Tensors are NumPy arrays underneath. Products check shapes, strides and types as the packages do,
so a scale in the wrong place or of the wrong layout is refused or gives a wrong product.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

BLOCK = 128
_NAMES = ("float32", "float16", "uint8")
_NARROW = {name: np.dtype(getattr(ml_dtypes, name))
           for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


class Tensor:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype))

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))

    def wide(self) -> np.ndarray:
        return self.array.astype(np.float32)


def install(monkeypatch: Any, copies: bool = False) -> SimpleNamespace:
    """`import torch` and `import deep_gemm` give these; returns the calls that they saw."""
    seen = SimpleNamespace(tf32=[], fast=[], aligned=0)
    monkeypatch.setitem(sys.modules, "torch", _torch(seen, copies))
    monkeypatch.setitem(sys.modules, "deep_gemm", _deep_gemm(seen))
    return seen


def _torch(seen: SimpleNamespace, copies: bool) -> Any:
    torch: Any = ModuleType("torch")
    for name in _NAMES:
        setattr(torch, name, np.dtype(name))
    for name, dtype in _NARROW.items():
        setattr(torch, name, dtype)
    torch.Tensor = Tensor
    torch.from_dlpack = lambda array: Tensor(array.copy() if copies else np.from_dlpack(array))
    settings = SimpleNamespace(allow_tf32=False)
    torch.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=settings))

    def matmul(a: Tensor, b: Tensor, out: Tensor) -> None:
        seen.tf32.append(settings.allow_tf32)
        out.array[...] = a.wide() @ b.wide()

    def scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, out_dtype: Any,
                  use_fast_accum: bool, out: Tensor) -> None:
        seen.fast.append(use_fast_accum)
        assert out_dtype == out.dtype and a.dtype in _NARROW.values() and a.dtype == b.dtype
        first, second = _factors(a, b, scale_a, scale_b)
        out.array[...] = (a.wide() * first) @ (b.wide() * second)

    torch.matmul, torch._scaled_mm = matmul, scaled_mm
    return torch


def _factors(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> tuple[Any, Any]:
    """The kind of scaling, told by shape and strides; then as large as the operands."""
    (m, k), n = a.shape, b.shape[1]
    if scale_a.array.size == scale_b.array.size == 1:
        return scale_a.array.reshape(()), scale_b.array.reshape(())
    if (scale_a.shape, scale_b.shape) == ((m, 1), (1, n)):
        return scale_a.array, scale_b.array
    assert scale_a.stride() == (1, m)
    assert scale_b.stride() == (1, -(-k // BLOCK // 4) * 4)
    return _rows(scale_a, k), _blocks(scale_b, k, n)


def _rows(scale: Tensor, k: int) -> np.ndarray:
    assert scale.shape[1] == -(-k // BLOCK)
    return np.repeat(scale.array, BLOCK, 1)[:, :k]


def _blocks(scale: Tensor, rows: int, columns: int) -> np.ndarray:
    assert scale.shape == (-(-rows // BLOCK), -(-columns // BLOCK))
    return np.repeat(np.repeat(scale.array, BLOCK, 0), BLOCK, 1)[:rows, :columns]


def _deep_gemm(seen: SimpleNamespace) -> Any:
    package: Any = ModuleType("deep_gemm")

    def aligned(scale: Tensor) -> Tensor:
        seen.aligned += 1
        assert scale.stride() == (1, -(-scale.shape[0] // 4) * 4)
        return scale

    def fp8_gemm_nt(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], out: Tensor) -> None:
        (m, k), n = a[0].shape, b[0].shape[0]
        assert a[0].dtype == b[0].dtype == _NARROW["float8_e4m3fn"]
        assert a[0].array.flags.c_contiguous and b[0].array.flags.c_contiguous
        assert a[1].stride() == (1, -(-m // 4) * 4) and b[1].array.flags.c_contiguous
        product = (a[0].wide() * _rows(a[1], k)) @ (b[0].wide() * _blocks(b[1], n, k)).T
        out.array[...] = product

    package.get_mn_major_tma_aligned_tensor, package.fp8_gemm_nt = aligned, fp8_gemm_nt
    return package
