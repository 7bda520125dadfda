"""How many CTAs share a row, and how much of it each keeps in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from gpukit.errors import UnsupportedError
from gpukit.kernels.sampling import CLUSTERS, STAGES, STREAM
from gpukit.kernels.spec import Value
from gpukit.ops.sampling.rows import Rows

_BIG = CLUSTERS[-1]


# The share of an H200's SMs that clusters of each size reach, with one CTA per SM: a cluster lies
# in one GPC, whose SMs are no multiple of 4.
REACHED = {1: 1.0, 2: 1.0, 4: 0.91, 7: 0.85, 8: 0.91}
MOST_RESIDENT = 256 * STAGES[-1] * _BIG  # tokens of a row that a cluster's shared memory holds


def part_bytes(width: int, cluster: int) -> int:
    """Bytes of a CTA's part of a row, kept as f32: whole groups of 32 tokens."""
    share = (width + cluster - 1) // cluster
    return (share + 31) // 32 * 32 * 4


def stage_for(width: int, cluster: int) -> int:
    """The smallest stage (KiB) that holds a part of a row; 0 if none does."""
    return next((kib for kib in STAGES if 1024 * kib >= part_bytes(width, cluster)), 0)


def staged(function: str, rows: Rows) -> dict[str, Value]:
    """Tunables of the kernels that keep a row in a cluster's shared memory.

    Few rows: as many SMs a row as a cluster has. Many: parts of up to 64 KiB, so that three CTAs
    share an SM and one loads while others compute.

    Raises:
        UnsupportedError: the row is too long for any cluster.
    """
    few = rows.count * _BIG <= 2 * rows.device.properties.sm_count
    fitting = [c for c in CLUSTERS if 0 < stage_for(rows.width, c) <= 64]
    cluster = fitting[0] if fitting and not few else _BIG
    stage = stage_for(rows.width, cluster)
    if not stage:
        raise UnsupportedError(f"{function}: rows of {rows.width} tokens do not fit a cluster's "
                               f"shared memory; at most {MOST_RESIDENT}")
    threads, blocks = (256, 3) if stage <= 64 else (256, 2) if stage <= 100 else (512, 1)
    return {"dtype": rows.dtype.name, "vec": rows.vec, "cluster": cluster, "stage": stage,
            "threads": threads, "blocks": blocks}


def streamed(rows: Rows) -> dict[str, Value]:
    """Tunables of the sampler that streams rows.

    Few rows: the largest cluster with which all are read at once by a CTA of 512 threads per SM,
    but no more than four warps per block of 1024. Many: a CTA of 256 threads per row, several
    per SM, so that one row is finished while others are read.
    """
    sms, blocks = rows.device.properties.sm_count, -(-rows.width // 1024)
    fitting = [c for c in CLUSTERS if c * rows.count <= REACHED[c] * sms and 4 * c <= blocks]
    most = 128 if blocks <= 128 else 256
    many = rows.count > sms
    # Registers of four CTAs suffice on Hopper, for aligned f32; shared memory does for short rows.
    hopper = rows.device.properties.capability < (10, 0)
    four = hopper and most == 128 and rows.dtype.name == "f32" and rows.vec == 4
    return {"dtype": rows.dtype.name, "vec": rows.vec, "cluster": max(fitting, default=1),
            "threads": 256 if many else 512, "blocks": (4 if four else 3) if many else 1,
            "most": most}


def sampled(rows: Rows, settings: Mapping[str, Any]) -> dict[str, Value]:
    """Tunables of the sampler for these settings, as given to it: numbers or arrays.

    Where top-p is known to be the only filter, and shared memory of the clusters holds the rows,
    their nuclei are found there.
    """
    chosen = streamed(rows)
    held = _nucleus(settings, rows.width) and _holds(chosen, rows)
    return {**chosen, "held": 1} if held else chosen


def _holds(chosen: dict[str, Value], rows: Rows) -> bool:
    """Whether every warp of a cluster takes at most a block of the row, and all of it has room."""
    cluster, warps = int(chosen["cluster"]), int(chosen["threads"]) // 32
    room = rows.device.properties.shared_per_cta
    return cluster > 1 and rows.width <= 1024 * cluster * warps and (
        STREAM.shared_bytes({**chosen, "held": 1}) <= room)


def _nucleus(settings: Mapping[str, Any], width: int) -> bool:
    """Whether top-p alone filters, as far as numbers tell."""
    top_k, min_p, top_p = (settings.get(name, off) for name, off in _OFF)
    unfiltered = isinstance(top_k, Real) and not 0 < float(top_k) < width
    return bool(unfiltered and isinstance(min_p, Real) and min_p == 0 and (
        not isinstance(top_p, Real) or float(top_p) < 1))


_OFF = (("top_k", 0), ("min_p", 0.0), ("top_p", 1.0))
