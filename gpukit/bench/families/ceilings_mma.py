"""One case of tensor cores that single warps feed: mma.sync, A and -A in turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukit import kernels
from gpukit.bench.families import ceilings_common as common
from gpukit.bench.families.ceilings_wgmma import negative, operands, product, registers
from gpukit.bench.model import Case, CheckResult
from gpukit.kernels.spec import Value
from gpukit.layout import fragments
from gpukit.measure import Work


class PreparedMma(common.Prepared):
    """mma.sync by single warps; see `gpukit.bench.model.Prepared`."""

    _FLOPS = 2 * 16 * 8 * 16
    _TURNS = 1 << 15  # by how much one warp does with one accumulator

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, common.ctas(device))
        self.chains = case.shape["chains"]
        self.each = case.shape["warps"] * self.chains  # accumulators of a CTA
        self.turns = 2 if device.emulated else max(self._TURNS // self.each, 1 << 10)
        a, b = (x[:rows] for x, rows in zip(
            operands(case.dtype, "f32", 8, case.params["data"] == "zeros"), (16, 8), strict=True))
        self._want = product(a, b, "f32")
        self.flops = self._FLOPS * self.grid * self.each * (2 * self.turns + 1)
        self.facts = {"ctas": self.grid, "turns": self.turns}
        held = [np.stack([registers(x, *fragments.operand_a(16, 16, 2)) for x in (a, negative(a))]),
                registers(b, *fragments.operand_b(16, 2))]
        self.inputs = tuple(device.xp.asarray(x) for x in held)
        self.out = device.empty((self.grid * self.each, 4, 32), np.float32)
        kernel = device.compile(kernels.get(case.kernel), tunables(case))
        call = kernel.bind((self.grid,), (32 * case.shape["warps"],))
        left, right, laps, out = map(device.pointer, (*self.inputs, self.laps, self.out))
        self.work = Work(case.kernel, lambda slot: call(left, right, self.turns, laps, out))

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Clocks of an SM for one MMA, and its FLOP per clock."""
        each = clocks / (2 * self.turns * self.each)
        return {"clk/mma": round(each, 2), "FLOP/clk": round(self._FLOPS / each)}

    def poison(self) -> None:
        """No element of D is right."""
        self.out.fill(float("nan"))

    def check(self, slot: int = 0) -> CheckResult:
        """Every accumulator holds A B plus the chain's number, exactly."""
        row, column = fragments.accumulator(16, 8)
        chains = self.device.xp.arange(self.chains, dtype=np.float32)
        want = self.device.xp.asarray(self._want[row, column].T)[None] + chains[:, None, None]
        return common.verdict(bool((self.out.reshape(-1, self.chains, 4, 32) == want).all()))


def tunables(case: Case) -> dict[str, Value]:
    """The variant of the kernel that a case of mma.sync runs."""
    return {"dtype": case.dtype, **case.shape}
