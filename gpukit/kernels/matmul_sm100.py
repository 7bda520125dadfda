"""Specs of the Blackwell matmul ladder, rungs 2 to 8: the sources say what each one teaches.

No hardware of ours has run them: they are emulator-verified.
"""

from __future__ import annotations

from collections.abc import Callable

from gpukit.dtypes import ALL
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

ROW = 128  # bytes of a row of an operand tile, 64 elements of K
BK = 64
PIECE_COLUMNS = 32  # of C on its way through a buffer, from rung 7 on

_INPUTS = ("bf16", "f16")
_OUTPUTS = ("bf16", "f16", "f32")
_ANSWERS = 2  # of cluster launch control, 16 bytes each
_TMEM_ADDRESS = 4


def rows(rung: int) -> int:
    """Rows of C per CTA."""
    return 64 if rung < 5 else 128


def threads(rung: int) -> int:
    """Threads per CTA: four warps; a loader and a multiplier; a scheduler."""
    return 128 if rung < 6 else 192 if rung < 8 else 224


def _stage_bytes(rung: int, tunables: Tunables) -> int:
    """One tile of A and one of B; from rung 5 on half of B, as two CTAs multiply together."""
    bn = int(tunables["bn"])
    return (rows(rung) + (bn if rung < 5 else bn // 2)) * ROW


def _c_bytes(rung: int, tunables: Tunables) -> int:
    """What C passes through: nothing, a whole tile, or two pieces of 32 columns."""
    if rung < 4:
        return 0
    columns = int(tunables["bn"]) if rung < 7 else 2 * PIECE_COLUMNS
    return rows(rung) * columns * ALL[str(tunables["out"])].itemsize


def accumulators(bn: int) -> int:
    """Tiles of `bn` columns that Tensor Memory holds beside each other."""
    return 512 // next(stride for stride in (64, 128, 256) if bn <= stride)


def _barriers(rung: int, tunables: Tunables) -> int:
    """mbarriers of a CTA."""
    ring = 2 * int(tunables.get("stages", 1))
    if rung < 8:
        return 2 if rung < 6 else ring + 1
    return ring + 2 * accumulators(int(tunables["bn"])) + 2 * _ANSWERS + 1


def shared_bytes(rung: int) -> Callable[[Tunables], int]:
    """A rung's dynamic shared memory: stages, C, answers, barriers, the address of its TMEM."""

    def of(tunables: Tunables) -> int:
        return (int(tunables.get("stages", 1)) * _stage_bytes(rung, tunables)
                + _c_bytes(rung, tunables) + (16 * _ANSWERS if rung == 8 else 0)
                + 8 * _barriers(rung, tunables) + _TMEM_ADDRESS)

    return of


_TYPES = (Tunable("dtype", _INPUTS, "bf16", "element type of A and B"),
          Tunable("out", _OUTPUTS, "bf16", "element type of C"))
_WHOLE = (64, 128, 192, 256)  # whole pieces of 128 bytes
_ANY = (64, 128, 192, 224, 256)
_COLUMNS = Tunable("columns", (256, 512), 512, "columns of Tensor Memory a CTA takes; with 256 two "
                   "CTAs may share an SM")
_CLUSTER = Tunable("cluster", (2, 4), 2, "CTAs along M that share the tiles of B, in pairs that "
                   "multiply together")


def _bn(choices: tuple[int, ...], default: int = 256) -> Tunable:
    return Tunable("bn", choices, default, "columns of C per CTA")


def _stages(default: int) -> Tunable:
    return Tunable("stages", tuple(range(2, 10)), default, "tiles of A and B in flight")


_OPERANDS = (Param("A", "tensor_map", "[M, K]"), Param("B", "tensor_map", "[N, K]"))
_SIZES = (Param("M", "i32", ""), Param("N", "i32", ""), Param("K", "i32", ""))
_DIRECT = (*_OPERANDS, Param("C", "pointer", "[M, N], row-major"), *_SIZES)
_MAPS = (*_OPERANDS, Param("C", "tensor_map", "[M, N]"))
_STAGED = (*_MAPS, Param("K", "i32", ""))
_OPERANDS_ALIGNED = "rows of A [M, K] and of B, stored [N, K], start at multiples of 16 bytes"
_ALL_ALIGNED = (_OPERANDS_ALIGNED, "rows of C start at multiples of 16 bytes")


def _variants(**axes: tuple[Value, ...]) -> tuple[dict[str, Value], ...]:
    """Every pair of types that is common, then one variant per other value of each axis."""
    types: list[dict[str, Value]] = [
        {"dtype": "bf16"}, {"dtype": "bf16", "out": "f32"},
        {"dtype": "f16", "out": "f16"}, {"dtype": "f16", "out": "f32"}]
    return (*types, *({name: value} for name, values in axes.items() for value in values))


def _fitting(variants: tuple[dict[str, Value], ...]) -> tuple[dict[str, Value], ...]:
    """Rung 6 has room for three stages beside a whole f32 tile of C."""
    return tuple({**v, "stages": 3} if v.get("out") == "f32" else v for v in variants)


K2 = KernelSpec(
    name="matmul.sm100.k2", source="matmul/sm100/k2_tma_tcgen05.cu",
    entry="k2_tma_tcgen05<{dtype}, {out}, {bn}, {columns}>",
    summary="TMA, mbarrier and tcgen05; 64 x 256 tiles, no swizzle, one buffer",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_ANY), _COLUMNS), params=_DIRECT,
    shared_bytes=shared_bytes(2), variants=_variants(bn=_ANY[:-1], columns=(256,)),
    requires=(_OPERANDS_ALIGNED,),
)
K3 = KernelSpec(
    name="matmul.sm100.k3", source="matmul/sm100/k3_swizzle.cu",
    entry="k3_swizzle<{dtype}, {out}, {bn}, {columns}>",
    summary="128-byte swizzle: whole rows per TMA request",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_ANY), _COLUMNS), params=_DIRECT,
    shared_bytes=shared_bytes(3), variants=_variants(bn=_ANY[:-1], columns=(256,)),
    requires=(_OPERANDS_ALIGNED,),
)
K4 = KernelSpec(
    name="matmul.sm100.k4", source="matmul/sm100/k4_tma_store.cu",
    entry="k4_tma_store<{dtype}, {out}, {bn}, {columns}>",
    summary="C by stmatrix and TMA store",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_WHOLE), _COLUMNS), params=_STAGED,
    shared_bytes=shared_bytes(4), variants=_variants(bn=_WHOLE[:-1], columns=(256,)),
    requires=_ALL_ALIGNED,
)
K5 = KernelSpec(
    name="matmul.sm100.k5", source="matmul/sm100/k5_two_sms.cu",
    entry="k5_two_sms<{dtype}, {out}, {bn}, {cluster}, {columns}>",
    summary="MMAs of 256 x 256 x 16 by two SMs, clusters that share B",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_WHOLE), _CLUSTER, _COLUMNS), params=_STAGED,
    shared_bytes=shared_bytes(5),
    variants=_variants(bn=_WHOLE[:-1], cluster=(4,), columns=(256,)), requires=_ALL_ALIGNED,
)
K6 = KernelSpec(
    name="matmul.sm100.k6", source="matmul/sm100/k6_ring.cu",
    entry="k6_ring<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="ring of five stages, a loading and a multiplying warp",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_WHOLE), _stages(5), _CLUSTER), params=_STAGED,
    shared_bytes=shared_bytes(6),
    variants=_fitting(_variants(bn=_WHOLE[:-1], cluster=(4,), stages=(2,))),
    requires=_ALL_ALIGNED,
)
K7 = KernelSpec(
    name="matmul.sm100.k7", source="matmul/sm100/k7_pieces.cu",
    entry="k7_pieces<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="C in pieces of 32 columns through two buffers: a sixth stage",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_ANY), _stages(6), _CLUSTER), params=_STAGED,
    shared_bytes=shared_bytes(7),
    variants=_variants(bn=_ANY[:-1], cluster=(4,), stages=(2,)), requires=_ALL_ALIGNED,
)
K8 = KernelSpec(
    name="matmul.sm100.k8", source="matmul/sm100/k8_clc.cu",
    entry="k8_clc<{dtype}, {out}, {bn}, {stages}, {cluster}>",
    summary="clusters steal tiles, MMAs of the next tile under this one's write-out",
    archs=("sm_100a",), tunables=(*_TYPES, _bn(_ANY, 128), _stages(8), _CLUSTER),
    params=(*_MAPS, *_SIZES, Param("group", "i32", "cluster tile rows walked together")),
    shared_bytes=shared_bytes(8),
    variants=(*_variants(bn=(64,), cluster=(4,), stages=(2,)), {"bn": 192, "stages": 6},
              {"bn": 224, "stages": 6}, {"bn": 256, "stages": 6}),
    requires=_ALL_ALIGNED,
)

SPECS = (K2, K3, K4, K5, K6, K7, K8)
