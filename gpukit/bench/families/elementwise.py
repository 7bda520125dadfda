"""Elementwise ops: one launch over dense arrays, judged by bytes moved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes
from gpukit.bench.axes import Choices, DTypes, Sizes
from gpukit.bench.families.elementwise_case import PreparedElementwise
from gpukit.bench.families.elementwise_peers import PEERS
from gpukit.bench.families.optional import AUTO, Auto, Grids
from gpukit.bench.families.yardstick import copy_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import UnsupportedError
from gpukit.kernels.elementwise import BINARY, UNARY

OPS = (*UNARY, *BINARY)
MIB = 1 << 20
_MOST_EMULATED = 1 << 24  # elements; some seconds per case

_LAUNCH_AXES = (
    Axis("vec", (AUTO,), Auto((1, 2, 4, 8, 16, 32)),
         "elements per memory access; auto: the widest the alignment allows"),
    Axis("unroll", (AUTO,), Auto((1, 2, 4, 8)), "vectors in flight per thread"),
    Axis("block", (AUTO,), Auto((32, 64, 128, 256, 512, 1024)), "threads per CTA"),
    Axis("grid", (AUTO,), Grids(), "gs1 (one pass), gs2 (capped at --waves), or a number of CTAs",
         metavar="RULE[,...]"),
    Axis("waves", (AUTO,), Auto(minimum=1), "full waves of CTAs that gs2 allows"),
    Axis("index", (AUTO,), Auto(("u32", "u64")), "loop counter: u32 or u64"),
    Axis("cache", (AUTO,), Auto(("normal", "stream")), "cache policy of the accesses"),
)


@dataclass(frozen=True)
class ElementwiseFamily:
    """`gpukit bench elementwise`."""

    name: str = "elementwise"
    summary: str = "maps over dense arrays (copy, exp, erf, axpy, ...): GB/s read + written"
    ops: tuple[str, ...] = OPS
    sizes: tuple[int, ...] = (256 * MIB,)
    dtypes: tuple[str, ...] = ("f32", "bf16")
    emulated_sizes: tuple[int, ...] = (64 * 1024 + 4,)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Op (unless there is only one), size, dtype, then how to launch."""
        op = Axis("op", self.ops, Choices(self.ops), "function", metavar="OP[,...]")
        size = Axis("size", self.sizes, Sizes(), "bytes of each array", metavar="BYTES[,...]",
                    emulated=self.emulated_sizes)
        dtype = Axis("dtype", self.dtypes, DTypes(tuple(dtypes.ALL)),
                     "element type; fp8 (e4m3, e5m2) for copy", metavar="DTYPE[,...]")
        return (*((op,) if len(self.ops) > 1 else ()), size, dtype, *_LAUNCH_AXES)

    @property
    def peers(self) -> tuple[str, ...]:
        """See `elementwise_peers`."""
        return tuple(PEERS)

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes, ops outermost."""
        ops = selection.get("op", self.ops)
        names = [axis.name for axis in _LAUNCH_AXES]
        settings = [
            {name: value for name, value in zip(names, values, strict=True) if value != AUTO}
            for values in itertools.product(*(selection[name] for name in names))]
        return [
            Case(self.name, f"elementwise.{op}", dtype,
                 {"n": size // dtypes.parse(dtype).itemsize}, setting)
            for op in ops for dtype in selection["dtype"] for size in selection["size"]
            for setting in settings]

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        return open_target(device)

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        op = case.kernel.removeprefix("elementwise.")
        if op != "copy" and case.dtype in ("e4m3", "e5m2"):
            raise UnsupportedError(f"{op} is not defined for {case.dtype}; fp8 is for copy")
        if case.shape["n"] == 0:
            raise UnsupportedError("0 elements: nothing is launched, nothing to time")
        if device.emulated and case.shape["n"] > _MOST_EMULATED:
            raise UnsupportedError(f"{case.shape['n']} elements are too many to emulate; "
                                   f"at most {_MOST_EMULATED}")
        return PreparedElementwise(op, case, device, peers)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What the runtime's device-to-device copy reaches, cold; nothing is timed emulated."""
        return None if device.emulated else copy_ceiling(device)


FAMILY = ElementwiseFamily()
