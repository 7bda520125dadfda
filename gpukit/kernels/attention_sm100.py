"""Specs of the Blackwell attention rungs: the sources say what each one teaches.

No hardware of ours has run them: they are emulator-verified.
"""

from __future__ import annotations

from gpukit.kernels.attention import K5, ROW
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

ROWS = 128  # queries of a tile: the lanes of Tensor Memory
TILES = 2  # of a CTA of k4
THREADS = 512
K3_THREADS = 128
PIECE_ROWS, PIECE_COLUMNS = 32, 32  # of output on its way out
MAX_D, MAX_DV = 192, 128  # what Tensor Memory has room for

_D = Tunable("d", tuple(range(8, MAX_D + 1, 8)), 128, "columns of a head of q and k")
_DV = Tunable("dv", tuple(range(8, MAX_DV + 1, 8)), 128, "columns of a head of v and out")
_N = Tunable("n", (32, 64, 128), 128, "keys per step")
_STAGES = Tunable("stages", tuple(range(2, 13)), 4, "blocks of keys or values in flight")
_SLACK = Tunable("slack", (0, 8), 8, "sums are rescaled where a weight would pass 2^slack")
_POLY = Tunable("poly", (0, 1, 2, 3, 4), 2, "of 8 pairs of exponentials, those by polynomial")


_PARAMS = {param.name: param for param in K5.params}  # what both generations take
_TUNABLES = {tunable.name: tunable for tunable in K5.tunables}


def _like_k5(first: str, last: str) -> tuple[Param, ...]:
    """Parameters of the Hopper kernel, from one to another."""
    names = list(_PARAMS)
    return K5.params[names.index(first):names.index(last) + 1]


def _numbers(tunables: Tunables, *names: str) -> tuple[int, ...]:
    return tuple(int(tunables[name]) for name in names)


def stage_bytes(tunables: Tunables) -> int:
    """A block of keys or of values, whichever is wider."""
    d, dv, n = _numbers(tunables, "d", "dv", "n")
    return -(-max(d, dv) // 64) * n * ROW


def shared_bytes(tunables: Tunables) -> int:
    """Queries, stages, pieces of output, statistics of rows, answer and job, barriers, TMEM."""
    d, stages = _numbers(tunables, "d", "stages")
    queries = TILES * -(-d // 64) * ROWS * ROW
    pieces, statistics = 4 * 2 * PIECE_ROWS * PIECE_COLUMNS * 2, 3 * TILES * ROWS * 4
    barriers = 8 * (2 * stages + 8 * TILES + 3)
    return queries + stages * stage_bytes(tunables) + pieces + statistics + 32 + barriers + 4


def _k3_shared(tunables: Tunables) -> int:
    """Queries, a block of keys, one of values, five barriers, the address of TMEM."""
    d, dv, n = _numbers(tunables, "d", "dv", "n")
    return -(-d // 64) * (ROWS + n) * ROW + -(-dv // 64) * n * ROW + 8 * 5 + 4


K3 = KernelSpec(
    name="attention.sm100.k3", source="attention/sm100/k3_tensor_memory.cu",
    entry="k3_tensor_memory<{dtype}, {d}, {dv}, {n}, attention::Mask::{mask}>",
    summary="tcgen05: scores and sums in Tensor Memory, a row a thread, one step after the other",
    archs=("sm_100a",), tunables=(_TUNABLES["dtype"], _D, _DV, _N, _TUNABLES["mask"]),
    params=(*_like_k5("q", "keys"), Param("share", "i32", "heads of q per head of k"),
            *_like_k5("scale", "chunk")),
    shared_bytes=_k3_shared,
    variants=({}, {"d": 192, "mask": "window", "dtype": "f16"}),
    requires=("rows of q, k, v and out start at multiples of 16 bytes",),
)

K4 = KernelSpec(
    name="attention.sm100.k4", source="attention/sm100/k4_roles.cu",
    entry="k4_roles<{dtype}, {d}, {dv}, {n}, {stages}, attention::Mask::{mask}, "
          "attention::Keys::{keys}, {terms}, {slack}, {poly}>",
    summary="a role for each step, two tiles in turns: what gpukit.attention runs on Blackwell",
    archs=("sm_100a",),
    tunables=(_TUNABLES["dtype"], _D, _DV, _N, _STAGES, _TUNABLES["mask"], _TUNABLES["keys"],
              _TUNABLES["terms"], _SLACK, _POLY),
    params=(*_like_k5("q", "v"), Param("out", "tensor_map", "like q, or rows by two coordinates"),
            *_like_k5("lse", "page_box")),
    shared_bytes=shared_bytes,
    variants=({}, {"d": 64, "dv": 64, "stages": 8, "mask": "causal", "dtype": "f16"},
              {"d": 192, "stages": 2, "mask": "causal", "keys": "spans"},
              {"mask": "window", "keys": "paged"},
              {"mask": "window", "keys": "spans", "terms": 15}),
    requires=("rows of q, k, v and out start at multiples of 16 bytes",
              "heads that share a tile divide 32; one per tile where lengths vary"),
)

SPECS = (K3, K4)
