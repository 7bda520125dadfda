"""Attention, forward: gpukit.attention or rungs of its ladder, judged by TFLOPS."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit.bench.axes import Choices, DTypes, Integers
from gpukit.bench.families.attention_case import PreparedAttention
from gpukit.bench.families.attention_peers import PEERS
from gpukit.bench.families.optional import AUTO
from gpukit.bench.families.yardstick import gemm_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.attention.run import KERNELS, KERNELS_8

MASKS = ("null", "causal", "sliding_causal")
_WIDTHS = (1024,), (40,)  # of windows, by default: on a GPU and emulated
_MOST_EMULATED = 1 << 18  # scores; some seconds per case


@dataclass(frozen=True)
class Pairs:
    """Two numbers such as ``64/8``, or one that stands for both."""

    what: str
    most: int

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        return tuple(dict.fromkeys(self._one(item.strip()) for item in text.split(",")))

    def _one(self, item: str) -> tuple[int, int]:
        parts = item.split("/")
        if not (1 <= len(parts) <= 2 and all(part.isdecimal() for part in parts)):
            raise ArgumentError(f"{item!r} is not {self.what}")
        first, last = int(parts[0]), int(parts[-1])
        if not (1 <= first <= self.most and 1 <= last <= self.most):
            raise ArgumentError(f"{item!r} is not {self.what}, each from 1 to {self.most}")
        return first, last


@dataclass(frozen=True)
class AttentionFamily:
    """`gpukit bench attention`."""

    name: str = "attention"
    summary: str = "softmax(q k') v: gpukit.attention or its ladder beside cuDNN, torch and FA3"
    peers: tuple[str, ...] = tuple(PEERS)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Kernel, lengths, heads, mask, dtype."""
        return (
            Axis("kernel", (AUTO,), Choices((AUTO, *KERNELS, *KERNELS_8)),
                 "auto (what gpukit.attention chooses) or rungs of the ladder",
                 metavar="KERNEL[,...]"),
            Axis("length", (512, 1024, 2048, 4096, 8192, 16384), Integers(1), "tokens of a "
                 "sequence, of queries and of keys", emulated=(96,)),
            Axis("tokens", (16384,), Integers(1), "of all sequences; at least one is run",
                 emulated=(192,)),
            Axis("heads", ((16, 16),), Pairs("heads of q, or of q and kv as in 64/8", 1 << 16),
                 "of q, or of q/kv", metavar="H[/KV][,...]", emulated=((2, 1),)),
            Axis("dim", ((128, 128),), Pairs("columns of a head, or those of q and v as in "
                 "192/128", 256), "columns of a head, or those of q/v", metavar="D[/DV][,...]",
                 emulated=((64, 64),)),
            Axis("mask", ("null", "causal"), Choices(MASKS), "what a query sees",
                 metavar="MASK[,...]"),
            Axis("window", _WIDTHS[0], Integers(1), "keys that sliding_causal leaves",
                 emulated=_WIDTHS[1]),
            Axis("dtype", ("bf16",), DTypes(("bf16", "f16", "e4m3")), "of q, k, v and out "
                 "(bf16 for e4m3)",
                 metavar="DTYPE[,...]"),
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes, kernels innermost: a problem's rungs stand together."""
        if "sliding_causal" not in selection["mask"] and selection["window"] not in _WIDTHS:
            raise ArgumentError("--window is for --mask sliding_causal")
        names = ("dtype", "dim", "heads", "tokens", "length", "mask")
        return [
            Case(self.name, f"attention.{kernel}", dtype, _shape(dim, heads, tokens, length),
                 {"mask": mask, **window})
            for dtype, dim, heads, tokens, length, mask in itertools.product(
                *(selection[name] for name in names))
            for window in _windows(mask, selection["window"]) for kernel in selection["kernel"]]

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        return open_target(device)

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        shape = case.shape
        if shape["h"] % shape["kv"]:
            raise UnsupportedError(f"{shape['h']} heads of q are no multiple of {shape['kv']}")
        scores = shape["b"] * shape["h"] * shape["s"] ** 2
        if device.emulated and scores > _MOST_EMULATED:
            raise UnsupportedError(f"{scores} scores are too many to emulate; at most "
                                   f"{_MOST_EMULATED}")
        return PreparedAttention(case, device, peers)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What cuBLAS reaches on a large square problem; nothing is timed emulated."""
        return None if device.emulated else gemm_ceiling(device, dtype)


def _shape(dim: tuple[int, int], heads: tuple[int, int], tokens: int,
           length: int) -> dict[str, int]:
    return {"b": max(1, tokens // length), "s": length, "h": heads[0], "kv": heads[1],
            "d": dim[0], "dv": dim[1]}


def _windows(mask: str, widths: tuple[int, ...]) -> list[dict[str, int]]:
    return [{"window": width} for width in widths] if mask == "sliding_causal" else [{}]


FAMILY = AttentionFamily()
