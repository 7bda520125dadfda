"""What the parts of a GPU do at best: tensor cores, shared memory, L2, DRAM, one access."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import kernels
from gpukit.bench.axes import Choices, Integers, Sizes
from gpukit.bench.families import ceilings_memory, ceilings_mma, ceilings_tma, ceilings_wgmma
from gpukit.bench.families.ceilings_memory import PreparedChase, PreparedShared, PreparedStream
from gpukit.bench.families.ceilings_mma import PreparedMma
from gpukit.bench.families.ceilings_tma import PreparedTma
from gpukit.bench.families.ceilings_wgmma import PreparedWgmma
from gpukit.bench.families.optional import AUTO, Auto
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import GpuTarget, is_emulated, open_target
from gpukit.errors import UnsupportedError
from gpukit.kernels.ceilings import BOX_ROWS, CHAINS, COLUMNS, INNER, STAGES, SUMS, WARPS
from gpukit.kernels.spec import KernelSpec, Value

_USUAL = ("bf16", "f16", "tf32", "e4m3", "s8")
PARTS = ("wgmma", "mma", "shared", "l2", "dram", "tma", "latency")
_AXES = {"wgmma": ("dtype", "acc", "n", "a", "warpgroups", "data"),
         "mma": ("dtype", "warps", "chains", "data"), "shared": ("width", "ways"),
         "l2": ("op", "set"), "dram": ("op", "set"), "tma": ("inner", "rows", "stages", "set"),
         "latency": ("level", "set")}
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_SETS = {"l2": 16 * _MIB, "dram": 4 * _GIB, "tma": 16 * _MIB}
_LEVELS = {"l1": 64 * _KIB, "l2": 4 * _MIB, "dram": 2 * _GIB}
_EMULATED_SET = 128 * _KIB
_MOST_EMULATED = 16 * _MIB  # some seconds
_RING = 192 * _KIB  # of boxes
_PREPARED = {"wgmma": PreparedWgmma, "mma": PreparedMma, "shared": PreparedShared,
             "l2": PreparedStream, "dram": PreparedStream, "tma": PreparedTma,
             "latency": PreparedChase}


class CeilingTarget(GpuTarget):
    """A GPU whose datasheet speaks of DRAM and tensor cores only."""

    def peaks(self, dtype: str) -> Mapping[str, float]:
        """None for rows of caches, whose dtype is an access width; s8 runs at the rate of fp8."""
        return {} if dtype.startswith("b") and dtype[1:].isdigit() else \
            super().peaks("e4m3" if dtype == "s8" else dtype)


@dataclass(frozen=True)
class CeilingsFamily:
    """`gpukit bench ceilings`."""

    name: str = "ceilings"
    summary: str = "the parts by themselves: tensor cores, shared memory, L2, DRAM, latencies"
    peers: tuple[str, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The part, then what each part can be asked for."""
        return (
            Axis("part", PARTS, Choices(PARTS), "what is measured", metavar="PART[,...]"),
            Axis("dtype", _USUAL, Choices(tuple(SUMS)), "of wgmma; mma has the 16-bit ones",
                 metavar="DTYPE[,...]"),
            Axis("acc", (AUTO,), Auto(("f32", "f16", "i32")), "type of wgmma's sums"),
            Axis("n", (8, 16, 32, 64, 128, 256), Integers(allowed=COLUMNS), "columns of a wgmma",
                 metavar="N[,...]", emulated=(16,)),
            Axis("a", ("shared", "registers"), Choices(("shared", "registers")),
                 "where wgmma takes A from"),
            Axis("warpgroups", (1,), Integers(allowed=(1, 2, 3, 4)), "per SM, of wgmma"),
            Axis("data", ("random",), Choices(("random", "zeros")), "what wgmma and mma multiply"),
            Axis("chains", (1, 4), Integers(allowed=CHAINS), "accumulators of a warp, of mma",
                 emulated=(2,)),
            Axis("warps", (1, 4, 8, 16), Integers(allowed=WARPS), "per SM, of mma", emulated=(4,)),
            Axis("width", (4, 8, 16), Integers(allowed=(4, 8, 16)), "bytes per lane, of shared"),
            Axis("ways", (1, 2, 4, 8), Integers(allowed=(1, 2, 4, 8)),
                 "lanes per bank and pass, of shared", emulated=(1, 2)),
            Axis("op", ("read", "write", "copy"), Choices(("read", "write", "copy")),
                 "of l2 and dram"),
            Axis("inner", (32, 64, 128), Integers(allowed=INNER),
                 "bytes of a row of a box, of tma"),
            Axis("rows", (64, 128, 256), Integers(allowed=BOX_ROWS), "of a box, of tma",
                 emulated=(64,)),
            Axis("stages", (4, 8), Integers(allowed=STAGES), "boxes in flight, of tma",
                 emulated=(2,)),
            Axis("level", tuple(_LEVELS), Choices(tuple(_LEVELS)), "of latency"),
            Axis("set", (), Sizes(4096), "bytes that l2, dram, tma and latency go over",
                 metavar="BYTES[,...]", emulated=(_EMULATED_SET,)),
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """Part after part, the product of its axes."""
        return [case for part in selection["part"] for case in _CASES[part](selection)]

    def count(self, selection: Mapping[str, tuple[Any, ...]]) -> int:
        """Each part has axes of its own."""
        return sum(math.prod(max(1, len(selection[name])) for name in _AXES[part])
                   for part in selection["part"])

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        opened = open_target(device)
        return CeilingTarget(opened.device) if isinstance(opened, GpuTarget) else opened

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        if case.l2 == "rotate":
            raise UnsupportedError("a ceiling has one set of buffers: use --l2 flush or hot")
        if device.emulated and (size := case.shape.get("bytes", 0)) > _MOST_EMULATED:
            raise UnsupportedError(f"set={size} is too large to emulate; at most {_MOST_EMULATED}")
        return _PREPARED[case.kernel.removeprefix("ceilings.")](case, device)

    def variants(self, case: Case, device: Any) -> list[tuple[KernelSpec, dict[str, Value]]]:
        """What `prepare` will compile."""
        if case.kernel in _TUNABLES:
            return [(kernels.get(case.kernel), _TUNABLES[case.kernel](case))]
        if case.kernel != "ceilings.wgmma":
            return ceilings_memory.variants(case)
        return [] if ceilings_wgmma.refusal(case) else [
            (kernels.get(case.kernel), ceilings_wgmma.tunables(case))]

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """These are the ceilings."""
        return None


def _product(selection: Mapping[str, tuple[Any, ...]], *names: str) -> Any:
    return itertools.product(*(selection[name] for name in names))


def _wgmma(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
    found = []
    for dtype, acc, n, a, groups, data in _product(selection, *_AXES["wgmma"]):
        for sums in SUMS[dtype] if acc == AUTO else (acc,):
            params = {"acc": sums, "a": a, "warpgroups": groups, "data": data}
            if acc != AUTO or sums != "f16" or n % 16 == 0:
                found.append(Case("ceilings", "ceilings.wgmma", dtype, {"n": n}, params))
    return found


def _mma(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
    return [Case("ceilings", "ceilings.mma", dtype, {"warps": warps, "chains": chains},
                 {"data": data})
            for dtype, warps, chains, data in _product(selection, *_AXES["mma"])
            if dtype in ("bf16", "f16")]


def _shared(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
    return [Case("ceilings", "ceilings.shared", f"b{8 * width}", {"width": width, "ways": ways})
            for width, ways in _product(selection, *_AXES["shared"])]


def _stream(part: str, dtype: str) -> Any:
    def cases(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        sizes = selection["set"] or (_SETS[part],)
        return [Case("ceilings", f"ceilings.{part}", dtype, {"bytes": size}, {"op": op})
                for op in selection["op"] for size in sizes]

    return cases


def _tma(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
    sizes = selection["set"] or (_SETS["tma"],)
    return [Case("ceilings", "ceilings.tma", "b128",
                 {"inner": inner, "rows": rows, "bytes": size}, {"stages": stages})
            for size in sizes
            for inner, rows, stages in _product(selection, "inner", "rows", "stages")
            if inner * rows * stages <= _RING]


def _latency(selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
    return [Case("ceilings", "ceilings.latency", "b32", {"bytes": size}, {"level": level})
            for level in selection["level"] for size in selection["set"] or (_LEVELS[level],)]


_CASES = {"wgmma": _wgmma, "mma": _mma, "shared": _shared, "l2": _stream("l2", "b128"),
          "dram": _stream("dram", "f32"), "tma": _tma,
          "latency": _latency}
_TUNABLES = {"ceilings.mma": ceilings_mma.tunables, "ceilings.tma": ceilings_tma.tunables}
FAMILY = CeilingsFamily()
