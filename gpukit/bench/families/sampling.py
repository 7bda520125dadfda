"""Token sampling: from logits to tokens, judged by how fast the logits are read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit import dtypes
from gpukit.bench.axes import Choices, DTypes, Integers, Shapes
from gpukit.bench.families.optional import AUTO, Auto
from gpukit.bench.families.sampling_case import PreparedSampling
from gpukit.bench.families.sampling_peers import PEERS
from gpukit.bench.families.yardstick import copy_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.sampling import CLUSTERS, STAGES, THREADS
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.sampling.explain import foresee
from gpukit.ops.sampling.ladder import RUNGS

KERNELS = ("sample", "resident", *RUNGS, "gumbel", "top_k", "softmax", "argmax")
_MOST_EMULATED = 1 << 14  # logits; some seconds per case
_LAUNCH_AXES = (
    Axis("cluster", (AUTO,), Auto(CLUSTERS), "CTAs that share a row; not of s1 to s5"),
    Axis("threads", (AUTO,), Auto(THREADS), "threads per CTA; streaming from 256 on"),
    Axis("stage", (AUTO,), Auto(STAGES), "KiB of a row per CTA; of resident"),
)


@dataclass(frozen=True)
class Reals:
    """Real numbers from `low` to `high`."""

    low: float
    high: float

    def __call__(self, text: str) -> tuple[float, ...]:
        return tuple(dict.fromkeys(self._one(item.strip()) for item in text.split(",")))

    def _one(self, item: str) -> float:
        try:
            value = float(item)
        except ValueError:
            value = float("nan")
        if not self.low <= value <= self.high:
            raise ArgumentError(f"{item!r} is not a number from {self.low} to {self.high}")
        return value


_SETTINGS = (
    Axis("temperature", (0.8,), Reals(0.0, 1e30), "divides the logits; not for argmax and top_k"),
    Axis("top_k", (50,), Integers(0), "tokens to keep, 0: all; of the samplers and top_k"),
    Axis("top_p", (0.9,), Reals(0.0, 1.0), "mass to keep, 1: all; of the samplers"),
    Axis("min_p", (0.0,), Reals(0.0, 1.0),
         "least probability, relative to the largest, 0: any; not of s1 to s5"),
)
_SAMPLER = ("temperature", "top_k", "top_p", "min_p")
_USED = {"argmax": (), "softmax": ("temperature",), "gumbel": ("temperature",),
         "top_k": ("top_k",), "sample": _SAMPLER, "resident": _SAMPLER,
         **dict.fromkeys(RUNGS, _SAMPLER[:3])}


def _launch_names(kernel: str) -> tuple[str, ...]:
    """The launch axes that a kernel has."""
    if kernel in RUNGS:
        return ("threads",)
    return ("cluster", "threads", *(("stage",) * (kernel == "resident")))


@dataclass(frozen=True)
class SamplingFamily:
    """`gpukit bench sampling`."""

    name: str = "sampling"
    summary: str = "logits to tokens: fused sampler, softmax, argmax beside torch and FlashInfer"
    peers: tuple[str, ...] = tuple(PEERS)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Kernel, shape, dtype, the sampler's settings, then how to launch."""
        return (
            Axis("kernel", ("sample",), Choices(KERNELS),
                 "what to run; sample streams rows, resident keeps them in shared memory, s1 to s5 "
                 "are the ladder",
                 metavar="KERNEL[,...]"),
            Axis("shape", ((64, 128256),), Shapes(("B", "V"), minimum=1), "rows and vocabulary",
                 metavar="BxV[,...]", emulated=((2, 1000),)),
            Axis("dtype", ("f32",), DTypes(("f32", "f16", "bf16")), "type of the logits",
                 metavar="DTYPE[,...]"),
            *_SETTINGS, *_LAUNCH_AXES)

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes that a kernel has."""
        found = []
        for kernel, dtype, (b, v) in itertools.product(
                *(selection[name] for name in ("kernel", "dtype", "shape"))):
            names = (*_USED[kernel], *_launch_names(kernel))
            for values in itertools.product(*(selection[name] for name in names)):
                chosen = {n: x for n, x in zip(names, values, strict=True) if x != AUTO}
                found.append(Case(self.name, f"sampling.{kernel}", dtype, {"b": b, "v": v}, chosen))
        return found

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        return open_target(device)

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        size = case.shape["b"] * case.shape["v"]
        if device.emulated and size > _MOST_EMULATED:
            raise UnsupportedError(f"{size} logits are too many to emulate; at most "
                                   f"{_MOST_EMULATED}")
        return PreparedSampling(case, device, peers)

    def variants(self, case: Case, device: Any) -> list[tuple[KernelSpec, dict[str, Value]]]:
        """What `prepare` will compile."""
        launch = {n: x for n, x in case.params.items() if n in ("cluster", "threads", "stage")}
        op, shape = case.kernel.removeprefix("sampling."), (case.shape["b"], case.shape["v"])
        return foresee(op, device, dtypes.parse(case.dtype), shape, case.params, launch)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What the runtime's device-to-device copy reaches; nothing is timed emulated."""
        return None if device.emulated else copy_ceiling(device)


FAMILY = SamplingFamily()
