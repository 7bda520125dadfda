"""Decoding: a few tokens of each sequence against its cache, judged by how fast that is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpukit.bench.axes import Choices, DTypes, Integers
from gpukit.bench.families.attention import Pairs
from gpukit.bench.families.attention_decode_case import PreparedDecode
from gpukit.bench.families.attention_decode_peers import PEERS
from gpukit.bench.families.optional import AUTO, Auto
from gpukit.bench.families.yardstick import copy_ceiling
from gpukit.bench.model import Axis, Case, Prepared, Target
from gpukit.bench.target import is_emulated, open_target
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.attention_decode import CLUSTERS, CUTS, STAGES
from gpukit.ops.attention.plan import KINDS

_MOST_EMULATED = 1 << 21  # elements of the caches; some seconds per case
_CUTS = (
    Axis("cut", (AUTO,), Auto(CUTS), "every KV head's keys in as many parts, or as many for all "
         "gangs of CTAs"),
    Axis("parts", (AUTO,), Auto(minimum=1), "splits of a sequence's keys that meet in memory; "
         "gangs of an even cut"),
    Axis("cluster", (AUTO,), Auto(CLUSTERS), "splits that meet in a cluster"),
    Axis("stages", (AUTO,), Auto(STAGES), "tiles of K and of V in a ring"),
)


@dataclass(frozen=True)
class DecodeFamily:
    """`gpukit bench attention-decode`."""

    name: str = "attention-decode"
    summary: str = "last tokens against caches, paged or not, beside cuDNN, torch, FA3, FlashInfer"
    peers: tuple[str, ...] = tuple(PEERS)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Kernel, sizes, where the cache lies, dtype, then how to cut."""
        return (
            Axis("kernel", (AUTO,), Choices((AUTO, *KINDS)), "auto (what gpukit.attention_decode "
                 "chooses), plain (queries on the MMA's M), transposed (keys there), warpgroup "
                 "(keys there, wgmma) or upright (queries there, wgmma)", metavar="KERNEL[,...]"),
            Axis("batch", (1, 16, 64), Integers(1), "sequences", emulated=(2,)),
            Axis("length", (1024, 8192), Integers(1), "keys of a sequence", emulated=(100,)),
            Axis("tokens", (1,), Integers(1), "queries of a sequence, its last tokens"),
            Axis("heads", ((32, 8),), Pairs("heads of q, or of q and kv as in 64/8", 1 << 16),
                 "of q, or of q/kv", metavar="H[/KV][,...]", emulated=((4, 2),)),
            Axis("dim", (128,), Integers(1, maximum=256), "columns of a head", emulated=(64,)),
            Axis("page", (0,), Integers(0, maximum=256), "rows of a page, a power of two; 0: no "
                 "pages", metavar="ROWS[,...]"),
            Axis("table", ("own",), Choices(("own", "shared")), "shared: all sequences have the "
                 "same pages, as of a common prompt"),
            Axis("layout", ("bshd",), Choices(("bshd", "bhsd")), "of a cache without pages"),
            Axis("lengths", ("equal",), Choices(("equal", "mixed")), "mixed: --length is the "
                 "longest's, most are much shorter"),
            Axis("dtype", ("bf16",), DTypes(("bf16", "f16")), "of q, k, v and out",
                 metavar="DTYPE[,...]"),
            Axis("cache", ("same",), Choices(("same", "e4m3")), "of k and v"),
            *_CUTS,
        )

    def cases(self, selection: Mapping[str, tuple[Any, ...]]) -> list[Case]:
        """The product of the axes, cuts and kernels innermost: a problem's rows stand together.

        Raises:
            ArgumentError: a shared page table without pages.
        """
        if "shared" in selection["table"] and not any(selection["page"]):
            raise ArgumentError("--table shared is for caches in pages: give --page too, 16 say")
        names = ("dtype", "cache", "dim", "heads", "tokens", "page", "table", "layout", "lengths",
                 "batch", "length")
        cuts = tuple(axis.name for axis in _CUTS)
        found = []
        for dtype, cache, d, (h, kv), t, page, table, layout, lengths, b, s in itertools.product(
                *(selection[name] for name in names)):
            lies = {} if page else {"layout": layout}
            lies |= {"table": table} if page and table != "own" else {}
            lies |= {"cache": cache} if cache != "same" else {}
            lies |= {"lengths": lengths} if lengths != "equal" else {}
            for kernel, *values in itertools.product(
                    *(selection[name] for name in ("kernel", *cuts))):
                cut = {n: x for n, x in zip(cuts, values, strict=True) if x != AUTO}
                found.append(Case(self.name, f"attention.decode.{kernel}", dtype,
                                  {"b": b, "s": s, "t": t, "h": h, "kv": kv, "d": d,
                                   "page": page},
                                  {**lies, **cut}))
        return list({case.key: case for case in found}.values())

    def target(self, device: str) -> Target:
        """A CUDA device or an emulated one."""
        return open_target(device)

    def emulated(self, device: str) -> bool:
        """Whether that device has no clock."""
        return is_emulated(device)

    def prepare(self, case: Case, device: Any, peers: tuple[str, ...]) -> Prepared:
        """Allocate, fill and compile one case."""
        b, s, kv, d = (case.shape[name] for name in ("b", "s", "kv", "d"))
        if device.emulated and 2 * b * s * kv * d > _MOST_EMULATED:
            raise UnsupportedError(f"caches of {2 * b * s * kv * d} elements are too large to "
                                   f"emulate; at most {_MOST_EMULATED}")
        return PreparedDecode(case, device, peers)

    def ceiling(self, device: Any, dtype: str) -> dict[str, Any] | None:
        """What the runtime's device-to-device copy reaches; nothing is timed emulated."""
        return None if device.emulated else copy_ceiling(device)


FAMILY = DecodeFamily()
