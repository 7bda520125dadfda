"""Matmul: the rungs of the ladder, judged by TFLOPS against cuBLAS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpukit.bench.axes import Choices, DTypes, Shapes
from gpukit.bench.families.matmul_case import PreparedMatmul
from gpukit.bench.families.matmul_kernels import AUTO, Kernels, full_name, spec_for
from gpukit.bench.families.matmul_peers import PEERS
from gpukit.bench.families.matmul_scales import MODES
from gpukit.bench.families.matmul_suites import SUITES
from gpukit.bench.families.matmul_types import KINDS
from gpukit.bench.families.yardstick import gemm_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import UnsupportedError

_FLOATS = ("f32", "f16", "bf16")  # of C
_MOST_EMULATED = 512**3  # some seconds per case
LAYOUTS = ("nt", "nn", "tn", "tt")
SUMS = ("exact", "fast")


@dataclass(frozen=True)
class MatmulFamily:
    """`gpukit bench matmul`."""

    name: str = "matmul"
    summary: str = "C = A B: gpukit.matmul or rungs of the ladder beside cuBLAS and others: TFLOPS"
    peers: tuple[str, ...] = PEERS

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Kernel, shape or suite of shapes, dtype, layout, output type, scales and sums."""
        suites = ", ".join(f"{name} ({len(set(shapes))})" for name, shapes in SUITES.items())
        return (
            Axis("kernel", (AUTO,), Kernels(), "auto (what gpukit.matmul chooses), rungs of the "
                 "ladder by number, all of them, or kernels by name such as sm90.k7; sm80: that "
                 "ladder", metavar="KERNEL[,...]", emulated=("1",)),
            Axis("shape", ((4096, 4096, 4096),), Shapes(("M", "N", "K")), "problem",
                 metavar="MxNxK[,...]", emulated=((128, 128, 64), (100, 56, 40))),
            Axis("suite", (), Choices(tuple(SUITES)), "sets of problems, beside those of --shape: "
                 f"{suites}", metavar="SUITE[,...]", instead_of="shape"),
            Axis("dtype", ("bf16",), DTypes(tuple(KINDS)), "type of A and B; tf32: f32 in memory, "
                 "10 bits of mantissa multiplied", metavar="DTYPE[,...]"),
            Axis("layout", ("nt",), Choices(LAYOUTS), "how A and B are stored: n as is, t "
                 "transposed; nt stores B as [N, K]", metavar="LAYOUT[,...]"),
            Axis("out_dtype", ("same",), Choices(("same", *_FLOATS)), "type of C; same: that of A "
                 "and B, bf16 for 8-bit ones", metavar="DTYPE[,...]"),
            Axis("scales", ("tensor",), Choices(MODES), "of 8-bit A and B: none, one for a tensor, "
                 "one for each row of A and column of B, or one for each 1 x 128 block of A and "
                 "128 x 128 of B", metavar="SCALES[,...]"),
            Axis("accumulate", ("exact",), Choices(SUMS), "of 8-bit products: exact (f32 takes "
                 "over after 128) or fast (the tensor cores alone); block scales are always exact",
                 metavar="SUMS[,...]"),
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes, kernels innermost: a problem's rungs stand together."""
        shapes = [*selection["shape"], *(s for name in selection["suite"] for s in SUITES[name])]
        points = itertools.product(dict.fromkeys(shapes), selection["dtype"], selection["layout"],
                                   selection["out_dtype"])
        return [
            Case(self.name, full_name(kernel), dtype, dict(zip("mnk", shape, strict=True)),
                 {"layout": layout, "out": KINDS[dtype].out if out == "same" else out, **words})
            for shape, dtype, layout, out in points for words in _eight_bit(dtype, selection)
            for kernel in selection["kernel"]]

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
        spec = spec_for(case.kernel, device.properties.capability)
        return PreparedMatmul(case, spec, device, peers)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What cuBLAS reaches on a large square problem; nothing is timed emulated."""
        return None if device.emulated else gemm_ceiling(device, dtype)


def _eight_bit(dtype: str, selection: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, str]]:
    """What is asked of 8-bit operands: scales and sums; other types have neither."""
    if not KINDS[dtype].eight_bit:
        yield {}
        return
    for scales in selection["scales"]:
        if scales == "block":
            yield {"scales": scales}  # its sums are always exact
        else:
            yield from ({"scales": scales, "accumulate": sums} for sums in selection["accumulate"])


FAMILY = MatmulFamily()
