"""One case of TMA alone: boxes of a matrix that is one box wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukit import kernels
from gpukit.bench.families import buffers
from gpukit.bench.families import ceilings_common as common
from gpukit.bench.families.ceilings_memory import ODD
from gpukit.bench.model import Case, CheckResult
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import UnsupportedError
from gpukit.kernels.spec import Value
from gpukit.measure import Work

_BYTES = 1 << 24  # that an SM asks for, at least: some 200 us


class PreparedTma(common.Prepared):
    """See `gpukit.bench.model.Prepared`."""

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, common.ctas(device))
        self.inner, self.rows = case.shape["inner"], case.shape["rows"]
        self.stages, size = int(case.params["stages"]), case.shape["bytes"]
        self.box = self.inner * self.rows
        self.boxes = size // self.box
        if not 1 <= self.boxes < 1 << 24:
            raise UnsupportedError(f"set={size}: one box to 16 million boxes of {self.box} bytes")
        enough = max(-(-self.boxes // self.grid), _BYTES // self.box)
        self.steps = 3 * self.stages if device.emulated else max(3 * self.stages, enough)
        self.bytes_moved = self.footprint = self.grid * self.steps * self.box
        self.facts = {"ctas": self.grid, "steps": self.steps}
        buffers.slots_for(case.l2, size, device)
        self._bind(case, self.boxes * self.box)

    def _bind(self, case: Case, size: int) -> None:
        device, xp = self.device, self.device.xp
        self.source = xp.arange(size // 4, dtype=xp.uint32)
        self.source *= ODD
        self.out = device.empty((self.grid, 128), np.uint32)
        words, swizzle = self.inner // 4, self.inner if self.inner > 16 else 0
        request = TensorMap("u32", (words, self.boxes * self.rows), (self.inner,),
                            (words, self.rows), swizzle)
        matrix = device.tensor_map(self.source, request)
        call = device.compile(kernels.get(case.kernel), tunables(case)).bind((self.grid,), (128,))
        laps, out = map(device.pointer, (self.laps, self.out))
        sizes = self.boxes, self.steps
        self.work = Work(case.kernel, lambda slot: call(matrix, *sizes, laps, out))

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Bytes and rows of boxes per clock of one SM."""
        rate = self.steps * self.box / clocks
        return {"B/clk": round(rate, 2), "rows/clk": round(rate / self.inner, 3)}

    def poison(self) -> None:
        """No sum is right."""
        buffers.poison(self.out)

    def check(self, slot: int = 0) -> CheckResult:
        """The sums of the boxes that came last."""
        got = self.device.to_host(self.out).sum(axis=1, dtype=np.uint64) % 2**32
        last = np.arange(self.steps - self.stages, self.steps)
        which = (np.arange(self.grid)[:, None] + last * self.grid) % self.boxes
        first = which.ravel().astype(np.int64) * (self.box // 4)
        words = first[:, None] + np.arange(self.box // 4)
        values = (words.astype(np.uint32) * ODD).sum(axis=1, dtype=np.uint64)
        want = values.reshape(which.shape).sum(axis=1) % 2**32
        return common.verdict(bool((got == want).all()))


def tunables(case: Case) -> dict[str, Value]:
    """The variant of the kernel that a case runs."""
    return {"inner": case.shape["inner"], "rows": case.shape["rows"],
            "stages": int(case.params["stages"])}
