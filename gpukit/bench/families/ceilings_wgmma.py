"""One case of the tensor cores alone: tiles whose products cancel, so that the sums stay exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from gpukit import kernels
from gpukit.bench.families import ceilings_common as common
from gpukit.bench.model import Case, CheckResult
from gpukit.errors import UnsupportedError
from gpukit.kernels.ceilings import ROW, SUMS, fits, words
from gpukit.kernels.spec import Value
from gpukit.layout import fragments
from gpukit.layout.shared import SharedTile
from gpukit.measure import Work

STEPS = 4  # MMAs of a turn, 32 bytes of K each
_CLOCKS = 1 << 21  # that a launch takes about; on an emulated device two turns
_TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8}
_RESULTS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
# Largest numerator and denominator of values whose products and sums D holds exactly.
_VALUES = {"s8": (127, 1), "e4m3": (7, 1), "e5m2": (3, 1), "f16 f16": (7, 8)}
_FULL = (255, 256)


class PreparedWgmma(common.Prepared):
    """See `gpukit.bench.model.Prepared`."""

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, common.ctas(device))
        self.n, self.dtype = case.shape["n"], case.dtype
        self.acc = str(case.params["acc"])
        self.groups = int(case.params["warpgroups"])
        if reason := refusal(case):
            raise UnsupportedError(reason)
        self.turns = 2 if device.emulated else _CLOCKS // (2 * max(self.n, 32) * self.groups)
        a, b = operands(self.dtype, self.acc, self.n, case.params["data"] == "zeros")
        self._want = product(a, b, self.acc)
        self.facts = {"ctas": self.grid, "turns": self.turns}
        k = 32 // a.itemsize
        self.flops = 2 * 64 * self.n * k * self.grid * self.groups * (STEPS * self.turns + 1)
        self._bind(case, inputs(a, b))

    def _bind(self, case: Case, inputs: tuple[Any, ...]) -> None:
        kernel = self.device.compile(kernels.get(case.kernel), tunables(case))
        call = kernel.bind((self.grid,), (128 * self.groups,))
        count = words(self.n, self.acc)
        self.inputs = tuple(self.device.xp.asarray(x) for x in inputs)
        self.out = self.device.empty((self.grid * self.groups, count, 128), np.uint32)
        pointer = self.device.pointer
        arrays, laps, out = map(pointer, self.inputs), pointer(self.laps), pointer(self.out)
        a, fragment, b = arrays
        self.work = Work(case.kernel, lambda slot: call(a, fragment, b, self.turns, laps, out))

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Clocks of an SM for one MMA; 64 x N x 32 bytes take it N / 2 at best."""
        each = clocks / (STEPS * self.turns * self.groups)
        return {"clk/mma": round(each, 2), "%clk": round(100 * self.n / 2 / each, 1)}

    def poison(self) -> None:
        """No word of D is right."""
        self.out.fill(0x7FDBDEAD)

    def check(self, slot: int = 0) -> CheckResult:
        """Every warpgroup holds A1 B1, exactly."""
        held = np.ascontiguousarray(self.device.to_host(self.out[0]).T).view(_RESULTS[self.acc])
        row, column = fragments.accumulator(64, self.n)
        alike = bool((self.out == self.out[:1]).all())
        return common.verdict(alike and bool((held == self._want[row, column]).all()))


def tunables(case: Case) -> dict[str, Value]:
    """The variant of the kernel that a case runs."""
    return {"dtype": case.dtype, "acc": str(case.params["acc"]), "n": case.shape["n"],
            "registers": "true" if case.params["a"] == "registers" else "false",
            "warpgroups": int(case.params["warpgroups"])}


def refusal(case: Case) -> str:
    """Why a case cannot run; empty if it can."""
    n, acc, groups = case.shape["n"], str(case.params["acc"]), int(case.params["warpgroups"])
    if acc not in SUMS[case.dtype]:
        return f"{case.dtype} sums in {' or '.join(SUMS[case.dtype])}, not {acc}"
    if acc == "f16" and n % 16:
        return f"n={n}: with f16 sums, multiples of 16"
    if case.dtype == "s8" and n % 16 and n > 32:
        return f"n={n}: s8 takes multiples of 16 beyond 32"
    if not fits(n, acc, case.params["a"] == "registers", groups):
        return f"{groups} warpgroups of n={n} do not fit the registers of an SM"
    return ""


def operands(dtype: str, acc: str, n: int, zeros: bool) -> tuple[Any, Any]:
    """A [64, K] and B [N, 2 K]: A1, and B1 beside B2."""
    rng = np.random.default_rng(n)
    most, parts = _VALUES.get(f"{dtype} {acc}", _VALUES.get(dtype, _FULL))
    k = 32 // np.dtype(_TYPES[dtype]).itemsize
    a, b = (rng.integers(-most, most, shape, endpoint=True) * (not zeros) / parts
            for shape in ((64, k), (n, 2 * k)))
    return a.astype(_TYPES[dtype]), b.astype(_TYPES[dtype])


def product(a: Any, b: Any, acc: str) -> Any:
    """A1 B1 [64, N] as the tensor core has to hold it."""
    exact = a.astype(np.float64) @ b[:, : a.shape[1]].astype(np.float64).T
    return exact.astype(_RESULTS[acc])


def inputs(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Bytes of the tiles [A1 -A1 A1 -A1] and [B1 B1 B2 B2], and words of A1 and -A1."""
    k = a.shape[1]
    pair = (a, negative(a))
    tile_a = np.concatenate([*pair, *pair], axis=1)
    tile_b = np.concatenate([b[:, :k], b[:, :k], b[:, k:], b[:, k:]], axis=1)
    row, column = fragments.operand_a(64, k, 4 // a.itemsize)
    held = np.stack([registers(x, row, column) for x in pair])
    return _placed(tile_a), held, _placed(tile_b)


def negative(matrix: Any) -> Any:
    return (-matrix.astype(np.float64)).astype(matrix.dtype)


def registers(matrix: Any, row: Any, column: Any) -> Any:
    """Registers [thread, word] of a fragment."""
    return np.ascontiguousarray(matrix[row, column]).view(np.uint32)


def _placed(matrix: Any) -> Any:
    """Bytes of a K-major tile with the 128-byte swizzle."""
    size = matrix.itemsize
    tile = SharedTile("128", True, len(matrix), ROW // size, 8 * size, 0)
    image = np.zeros(len(matrix) * ROW // size, matrix.dtype)
    image[tile.places()[0] // size] = matrix
    return image.view(np.uint8)
