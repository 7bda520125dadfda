"""One matmul case on a GPU: operands in the asked layout, the launch, peers and the check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import gpukit
from gpukit import dtypes
from gpukit.bench.families import buffers
from gpukit.bench.families.buffers import Launch
from gpukit.bench.model import Case, CheckResult
from gpukit.measure import Work
from gpukit.reference import matmul as reference
from gpukit.reference.tolerance import Array, Bound

# Rows of C that are compared with float64: enough to meet every tile column and both edges.
_CHECKED_ROWS = 96


class PreparedMatmul:
    """See `gpukit.bench.model.Prepared`. Normal values, A scaled by 1/sqrt(K)."""

    def __init__(self, case: Case, dtype: dtypes.DType, device: Any,
                 peers: tuple[str, ...]) -> None:
        m, n, k = (case.shape[name] for name in "mnk")
        self.out_dtype = dtypes.parse(str(case.params["out"]))
        self.footprint = (m * k + k * n) * dtype.itemsize + m * n * self.out_dtype.itemsize
        self.bytes_moved, self.flops = self.footprint, 2 * m * n * k
        slots = buffers.slots_for(case.l2, self.footprint, device, 4 * max(m * k, k * n))
        layout = str(case.params["layout"])
        self.device = device
        self.a = _operands(device.xp, (m, k), k**-0.5, dtype, layout[0] == "t", slots)
        self.b = _operands(device.xp, (k, n), 1.0, dtype, layout[1] == "t", slots)
        self.out = [device.empty((m, n), self.out_dtype.numpy) for _ in range(slots)]
        self._rows = _rows(m)
        self._want = {slot: self._expected(slot) for slot in {0, slots - 1}}
        rung = case.kernel.removeprefix("matmul.k")
        self.launch = {"kernel": case.kernel}
        self.work = Work(case.kernel, self._ours(rung), slots)
        makers = {name: partial(PEERS[name], self) for name in peers}
        self.peers, self.notes = buffers.peer_works(makers, slots, device)

    def _ours(self, rung: str) -> Launch:
        return lambda slot: gpukit.matmul(self.a[slot], self.b[slot], out=self.out[slot],
                                          kernel=rung)

    def poison(self) -> None:
        """Outputs of every buffer set hold a NaN no instruction makes."""
        for out in self.out:
            buffers.poison(out)

    def _expected(self, slot: int) -> tuple[Array, Bound]:
        """What the chosen rows must become, from operands that no launch has touched yet."""
        a, b = self.device.to_host(self.a[slot])[self._rows], self.device.to_host(self.b[slot])
        return reference.oracle(a, b), reference.bound(a, b, self.out_dtype)

    def check(self, slot: int = 0) -> CheckResult:
        """A sample of rows against float64, and no poison left anywhere."""
        out, (want, bound) = self.out[slot], self._want[slot]
        got = self.device.to_host(out)[self._rows].astype(np.float64)
        return buffers.judge(got, want, bound, complete=not buffers.poisoned(out))

    def close(self) -> None:
        """Let the buffers go."""
        self.a, self.b, self.out, self.peers = [], [], [], ()
        del self.work
        self.device.release_memory()


def _operands(xp: Any, shape: tuple[int, int], factor: float, dtype: dtypes.DType,
              transposed: bool, slots: int) -> list[Any]:
    """One random matrix per slot, no two alike; stored transposed if asked."""
    rng = xp.random.default_rng(shape[0] * 31 + shape[1])
    stored = shape[::-1] if transposed else shape
    matrices = [_normal(xp, rng, stored, factor, dtype) for _ in range(slots)]
    return [matrix.T if transposed else matrix for matrix in matrices]


def _normal(xp: Any, rng: Any, shape: tuple[int, int], factor: float, dtype: dtypes.DType) -> Any:
    values = rng.standard_normal(shape, dtype=xp.float32)
    values *= factor
    return values.astype(dtype.numpy, copy=False)


def _rows(m: int) -> Any:
    if m <= _CHECKED_ROWS:
        return np.arange(m)
    return np.unique(np.concatenate([
        [0, m - 1], np.random.default_rng(m).integers(0, m, _CHECKED_ROWS - 2)]))


def _cublas(case: PreparedMatmul) -> Launch:
    """cuBLAS by way of cupy.matmul (bf16 and f16 accumulate in f32; f32 is not TF32)."""
    import cupy

    return lambda slot: cupy.matmul(case.a[slot], case.b[slot], out=case.out[slot])


def _torch(case: PreparedMatmul) -> Launch:
    import torch

    a, b, out = ([buffers.as_torch(x) for x in xs] for xs in (case.a, case.b, case.out))

    def launch(slot: int) -> None:
        with buffers.torch_stream():
            torch.matmul(a[slot], b[slot], out=out[slot])

    return launch


PEERS: dict[str, Callable[[PreparedMatmul], Launch]] = {"cublas": _cublas, "torch": _torch}
