"""Matmul: the rungs of the ladder, judged by TFLOPS against cuBLAS."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes, kernels
from gpukit.bench.axes import Choices, DTypes, Shapes
from gpukit.bench.families.matmul_case import PEERS, PreparedMatmul
from gpukit.bench.families.yardstick import gemm_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import UnsupportedError

_FLOATS = ("f32", "f16", "bf16")
_MOST_EMULATED = 512**3  # some seconds per case
LAYOUTS = ("nt", "nn", "tn", "tt")


def rungs() -> tuple[str, ...]:
    """The ladder's rungs by number or name: "1" for matmul.k1."""
    return tuple(name.removeprefix("matmul.k") for name in kernels.names()
                 if name.startswith("matmul.k"))


@dataclass(frozen=True)
class MatmulFamily:
    """`gpukit bench matmul`."""

    name: str = "matmul"
    summary: str = "C = A B, the ladder's rungs and cuBLAS: TFLOPS"
    peers: tuple[str, ...] = tuple(PEERS)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Rung, shape, dtype, layout, output type."""
        return (
            Axis("kernel", rungs(), Choices(rungs()), "rung of the ladder", metavar="N[,...]"),
            Axis("shape", ((4096, 4096, 4096),), Shapes(("M", "N", "K")), "problem",
                 metavar="MxNxK[,...]", emulated=((128, 128, 64), (100, 60, 33))),
            Axis("dtype", ("bf16",), DTypes(_FLOATS), "type of A and B", metavar="DTYPE[,...]"),
            Axis("layout", ("nt",), Choices(LAYOUTS), "how A and B are stored: n as is, t "
                 "transposed; nt stores B as [N, K]", metavar="LAYOUT[,...]"),
            Axis("out_dtype", ("same",), Choices(("same", *_FLOATS)), "type of C",
                 metavar="DTYPE[,...]"),
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes, rungs innermost: a problem's rungs stand together."""
        points = itertools.product(selection["shape"], selection["dtype"], selection["layout"],
                                   selection["out_dtype"], selection["kernel"])
        return [
            Case(self.name, f"matmul.k{rung}", dtype, dict(zip("mnk", shape, strict=True)),
                 {"layout": layout, "out": dtype if out == "same" else out})
            for shape, dtype, layout, out, rung in points]

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        return open_target(device)

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        if 0 in case.shape.values():
            raise UnsupportedError("a dimension is 0: no FLOPs to time")
        m, n, k = (case.shape[name] for name in "mnk")
        if device.emulated and m * n * k > _MOST_EMULATED:
            raise UnsupportedError(f"{m} x {n} x {k} is too large to emulate; M N K may be at "
                                   f"most {_MOST_EMULATED} (512^3)")
        kernels.get(case.kernel).arch_for(device.properties.capability)
        return PreparedMatmul(case, dtypes.parse(case.dtype), device, peers)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What cuBLAS reaches on a large square problem; nothing is timed emulated."""
        return None if device.emulated else gemm_ceiling(device, dtype)


FAMILY = MatmulFamily()
