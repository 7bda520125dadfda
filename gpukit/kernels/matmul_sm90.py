"""Specs of the Hopper matmul ladder, rungs 2 to 8: the sources say what each one teaches."""

from __future__ import annotations

from collections.abc import Callable

from gpukit.dtypes import ALL
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

ROW = 128  # bytes of a row of an operand tile, 64 elements of K, and of a piece of C
BK = 64
_CONSUMERS = 2  # warpgroups, from rung 5 on

_INPUTS = ("bf16", "f16")
_OUTPUTS = ("bf16", "f16", "f32")


def rows(rung: int) -> int:
    """Rows of C per CTA."""
    return 64 if rung < 5 else 128


def threads(rung: int) -> int:
    """Threads per CTA: one warpgroup, two, or two and a producer."""
    return 128 if rung < 5 else 256 if rung < 6 else 384


def _stage_bytes(rung: int, tunables: Tunables) -> int:
    """One tile of A and one of B."""
    return (rows(rung) + int(tunables["bn"])) * ROW


def _c_bytes(rung: int, tunables: Tunables) -> int:
    """What C passes through: nothing, a whole tile, or two pieces of 64 rows per consumer."""
    if rung < 4:
        return 0
    if rung < 7:
        return rows(rung) * int(tunables["bn"]) * ALL[str(tunables["out"])].itemsize
    return _CONSUMERS * 2 * 64 * ROW


def shared_bytes(rung: int) -> Callable[[Tunables], int]:
    """A rung's dynamic shared memory: stages, C, and 8 bytes per mbarrier."""

    def of(tunables: Tunables) -> int:
        stages = int(tunables.get("stages", 1))
        barriers = 2 * stages if rung >= 6 else 1
        return stages * _stage_bytes(rung, tunables) + _c_bytes(rung, tunables) + 8 * barriers

    return of


_TYPES = (Tunable("dtype", _INPUTS, "bf16", "element type of A and B"),
          Tunable("out", _OUTPUTS, "bf16", "element type of C"))
_BN = Tunable("bn", (64, 128, 192, 256), 256, "columns of C per CTA")
_CLUSTER = Tunable("cluster", (1, 2), 2, "CTAs along M that share the tiles of B")


def _stages(default: int) -> Tunable:
    return Tunable("stages", (2, 3, 4, 5, 6), default, "tiles of A and B in flight")


_OPERANDS = (Param("A", "tensor_map", "[M, K]"), Param("B", "tensor_map", "[N, K]"))
_DIRECT = (Param("C", "pointer", "[M, N], row-major"),
           Param("M", "i32", ""), Param("N", "i32", ""), Param("K", "i32", ""))
_C_MAP = Param("C", "tensor_map", "[M, N]")
_OPERANDS_ALIGNED = "rows of A [M, K] and of B, stored [N, K], start at multiples of 16 bytes"
_ALL_ALIGNED = (_OPERANDS_ALIGNED, "rows of C start at multiples of 16 bytes")


def _variants(**axes: tuple[Value, ...]) -> tuple[dict[str, Value], ...]:
    """Every pair of types that is common, then one variant per other value of each axis."""
    types: list[dict[str, Value]] = [
        {"dtype": "bf16"}, {"dtype": "bf16", "out": "f32"},
        {"dtype": "f16", "out": "f16"}, {"dtype": "f16", "out": "f32"}]
    return (*types, *({name: value} for name, values in axes.items() for value in values))


def _fitting(variants: tuple[dict[str, Value], ...]) -> tuple[dict[str, Value], ...]:
    """Rung 6 has room for two stages beside a whole f32 tile of C."""
    return tuple({**v, "stages": 2} if v.get("out") == "f32" else v for v in variants)


_SINGLE = _variants(bn=(64, 128, 192))
_CLUSTERED = _variants(bn=(64, 128, 192), cluster=(1,))
_RINGED = _variants(bn=(64, 128, 192), cluster=(1,), stages=(2,))

K2 = KernelSpec(
    name="matmul.sm90.k2", source="matmul/sm90/k2_tma_wgmma.cu",
    entry="k2_tma_wgmma<{dtype}, {out}, {bn}>",
    summary="TMA, mbarrier and wgmma; 64 x 256 tiles, no swizzle, one buffer",
    archs=("sm_90a",), tunables=(*_TYPES, _BN), params=(*_OPERANDS, *_DIRECT),
    shared_bytes=shared_bytes(2), variants=_SINGLE, requires=(_OPERANDS_ALIGNED,),
)
K3 = KernelSpec(
    name="matmul.sm90.k3", source="matmul/sm90/k3_swizzle.cu",
    entry="k3_swizzle<{dtype}, {out}, {bn}>",
    summary="128-byte swizzle: whole rows per TMA request",
    archs=("sm_90a",), tunables=(*_TYPES, _BN), params=(*_OPERANDS, *_DIRECT),
    shared_bytes=shared_bytes(3), variants=_SINGLE, requires=(_OPERANDS_ALIGNED,),
)
K4 = KernelSpec(
    name="matmul.sm90.k4", source="matmul/sm90/k4_tma_store.cu",
    entry="k4_tma_store<{dtype}, {out}, {bn}>",
    summary="C by stmatrix and TMA store",
    archs=("sm_90a",), tunables=(*_TYPES, _BN),
    params=(*_OPERANDS, _C_MAP, Param("K", "i32", "")),
    shared_bytes=shared_bytes(4), variants=_SINGLE, requires=_ALL_ALIGNED,
)
K5 = KernelSpec(
    name="matmul.sm90.k5", source="matmul/sm90/k5_cluster.cu",
    entry="k5_cluster<{dtype}, {out}, {bn}, {cluster}>",
    summary="128 x 256 tiles by two warpgroups, clusters of 2 with multicast of B",
    archs=("sm_90a",), tunables=(*_TYPES, _BN, _CLUSTER),
    params=(*_OPERANDS, _C_MAP, Param("K", "i32", "")),
    shared_bytes=shared_bytes(5), variants=_CLUSTERED, requires=_ALL_ALIGNED,
)
K6 = KernelSpec(
    name="matmul.sm90.k6", source="matmul/sm90/k6_ring.cu",
    entry="k6_ring<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="ring of stages, producer warpgroup, one wgmma group in flight",
    archs=("sm_90a",), tunables=(*_TYPES, _BN, _stages(3), _CLUSTER),
    params=(*_OPERANDS, _C_MAP, Param("K", "i32", "")),
    shared_bytes=shared_bytes(6), variants=_fitting(_RINGED), requires=_ALL_ALIGNED,
)
K7 = KernelSpec(
    name="matmul.sm90.k7", source="matmul/sm90/k7_pieces.cu",
    entry="k7_pieces<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="C in pieces through two buffers: a fourth stage",
    archs=("sm_90a",), tunables=(*_TYPES, _BN, _stages(4), _CLUSTER),
    params=(*_OPERANDS, _C_MAP, Param("K", "i32", "")),
    shared_bytes=shared_bytes(7), variants=_RINGED, requires=_ALL_ALIGNED,
)
K8 = KernelSpec(
    name="matmul.sm90.k8", source="matmul/sm90/k8_persistent.cu",
    entry="k8_persistent<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="persistent CTAs, grouped tile order, write-out under the next tile's loads",
    archs=("sm_90a",), tunables=(*_TYPES, _BN, _stages(4), _CLUSTER),
    params=(*_OPERANDS, _C_MAP, Param("M", "i32", ""), Param("N", "i32", ""),
            Param("K", "i32", ""), Param("group", "i32", "cluster tile rows walked together")),
    shared_bytes=shared_bytes(8), variants=_RINGED, requires=_ALL_ALIGNED,
)

SPECS = (K2, K3, K4, K5, K6, K7, K8)
