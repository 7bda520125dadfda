"""Spec of 8-bit attention: the source says what it teaches."""

from __future__ import annotations

from gpukit.kernels import attention
from gpukit.kernels.attention import ROW, ROWS
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

COLUMNS = ROW  # of a slab
TRANSPOSED = 32  # columns of v that are transposed together: dv is a multiple, d of wgmma's k
KEPT = 128  # columns of which sums are put aside, lest they get too large for tensor cores
HEAD_DIMS = tuple(range(TRANSPOSED, 257, TRANSPOSED))


def _shared(tunables: Tunables) -> int:
    """Queries, stages of keys, values and transposed values, sums that are put aside, barriers; the
    next tile."""
    d, dv, n, wgs, stages = (int(tunables[x]) for x in ("d", "dv", "n", "wgs", "stages"))
    k_slabs, v_slabs = -(-d // COLUMNS), -(-dv // COLUMNS)
    v_stages = stages - 1 if stages > 2 else stages
    kept = 4 * dv if dv <= KEPT else 0
    return (wgs * ROWS * (k_slabs * ROW + kept)
            + n * (stages * (ROW * k_slabs + dv) + v_stages * ROW * v_slabs)
            + 8 * (2 * wgs + 4 * stages + 2 * v_stages + 4))


def _scales(name: str, *more: Param) -> tuple[Param, ...]:
    return (Param(f"{name}_scale", "pointer", f"null for 1, or f32 factors of {name}"),
            Param(f"{name}_scale_batch", "i32", "from sequence to sequence"),
            Param(f"{name}_scale_head", "i32", "from head to head"), *more)


_TUNABLES = {tunable.name: tunable for tunable in attention.K5.tunables}
_PARAMS = {param.name: param for param in attention.K5.params}


def _params(names: str) -> tuple[Param, ...]:
    """As of kernel 5."""
    return tuple(_PARAMS[name] for name in names.split())



K6 = KernelSpec(
    name="attention.sm90.k6", source="attention/sm90/k6_fp8.cu",
    entry="k6_fp8<{dtype}, {d}, {dv}, {n}, {wgs}, {stages}, attention::Mask::{mask}, "
          "attention::Keys::{keys}, {turns}>",
    summary="e4m3 operands: values are transposed in shared memory, weights rounded to 8 bits",
    archs=("sm_90a",),
    tunables=(
        Tunable("dtype", ("bf16", "f16"), "bf16", "element type of out"),
        Tunable("d", HEAD_DIMS, 128, "columns of a head of q and k"),
        Tunable("dv", HEAD_DIMS, 128, "columns of a head of v and out"),
        Tunable("n", HEAD_DIMS, 96, "keys per step"),
        Tunable("stages", (1, 2, 3, 4), 3, "blocks of keys in flight, and as many of values"),
        Tunable("wgs", (1, 2, 3), 3, "consumer warpgroups, of 64 queries each"),
        *(_TUNABLES[name] for name in ("mask", "keys")),
        Tunable("turns", (0, 1), 1, "whether warpgroups take turns at starting products")),
    params=(
        Param("q", "tensor_map", "[batch, heads / group, queries, group, d], bytes"),
        Param("k", "tensor_map", "[batch, heads, keys, 1, d], or rows by two coordinates"),
        Param("v", "tensor_map", "the same of v"),
        *_params("out out_token out_head out_batch lse lse_token lse_head lse_batch queries keys "
                 "m_tiles heads batch section group share scale top_left left right chunk sinks"),
        Param("v_factor", "f32", "of sums"),
        *_scales("q", Param("q_scale_share", "i32", "heads of q per factor")),
        *_scales("k"), *_scales("v"),
        *_params("q_offsets q_lengths k_offsets k_lengths table table_batch page page_box "
                 "counter")),
    shared_bytes=_shared,
    variants=(
        {}, {"mask": "causal", "dtype": "f16"}, {"mask": "window", "n": 128, "wgs": 2},
        {"d": 64, "dv": 64, "n": 128, "stages": 4},
        {"d": 256, "dv": 256, "n": 128, "wgs": 2, "stages": 2},
        {"mask": "causal", "keys": "spans"}, {"mask": "causal", "keys": "paged"},
    ),
    requires=("rows of q, k, v and out start at multiples of 16 bytes",
              "heads that share a tile divide 64"),
)

SPECS = (K6,)
