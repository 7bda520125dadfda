"""How many CTAs share a row, and how much of it each keeps in shared memory."""

from __future__ import annotations

from gpukit.errors import UnsupportedError
from gpukit.kernels.sampling import CLUSTERS, STAGES
from gpukit.kernels.spec import Value
from gpukit.ops.sampling.rows import Rows

_BIG = CLUSTERS[-1]


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

    CTAs of 256 threads, two per SM so that one row is finished while another is read, or three so
    that all clusters find room at once; larger CTAs where even a cluster per row leaves most SMs
    idle.
    """
    sms = rows.device.properties.sm_count
    cluster = max(c for c in CLUSTERS if c == 1 or c * rows.count <= 2 * sms)
    many = 2 * cluster * rows.count > sms
    blocks = (3 if cluster in (2, 4) else 2) if many else 1
    return {"dtype": rows.dtype.name, "vec": rows.vec, "cluster": cluster,
            "threads": 256 if many else 512, "blocks": blocks,
            "most": 128 if rows.width <= 128 * 1024 else 256}
