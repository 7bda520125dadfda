"""Special registers: rows of a wave, filled when CTAs take their slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.program import SCRATCH_START, SHARED_START

if TYPE_CHECKING:
    from gpukit.emulator.wave import Wave

_AXES = {"x": 0, "y": 1, "z": 2, "w": 3}
_SHARED_UNIT = 128  # shared memory is allocated in multiples of this many bytes


def special_row(wave: Wave, name: str) -> Any:
    """Values of ``%name`` for every lane of the wave, or one value for all."""
    base, _, axis = name.partition(".")
    if base in _VECTORS:
        if axis == "w":
            return 0
        return _VECTORS[base](wave, _AXES[axis or "x"])
    return _SCALARS[name](wave)


def is_constant(name: str) -> bool:
    """Whether the register keeps its value while a CTA runs."""
    return name in _SCALARS or name.partition(".")[0] in _VECTORS


def _thread(wave: Wave) -> Any:
    return np.arange(wave.lanes) % wave.lanes_per_cta


def _lane(wave: Wave) -> Any:
    return np.arange(wave.lanes) % 32


def _unravel(linear: Any, shape: tuple[int, int, int], axis: int) -> Any:
    before = int(np.prod(shape[:axis]))
    return linear // before % shape[axis]


def _per_cta(wave: Wave, values: list[int]) -> Any:
    return np.repeat(np.array(values), wave.lanes_per_cta)


def _cluster_position(wave: Wave, axis: int) -> Any:
    size = wave.launch.cluster[axis]
    return _per_cta(wave, [cta.position[axis] // size for cta in wave.ctas])


def _cluster_grid(wave: Wave, axis: int) -> int:
    return wave.launch.grid[axis] // wave.launch.cluster[axis]


def _user_shared(wave: Wave) -> int:
    """Static and dynamic shared memory of a CTA, as the hardware allocates it."""
    used = wave.launch.shared_end - SHARED_START
    return -(-used // _SHARED_UNIT) * _SHARED_UNIT


_VECTORS: dict[str, Callable[[Wave, int], Any]] = {
    "tid": lambda w, a: _unravel(_thread(w), w.launch.block, a),
    "ntid": lambda w, a: w.launch.block[a],
    "ctaid": lambda w, a: _per_cta(w, [cta.position[a] for cta in w.ctas]),
    "nctaid": lambda w, a: w.launch.grid[a],
    "clusterid": _cluster_position,
    "nclusterid": _cluster_grid,
    "cluster_ctaid": lambda w, a: _per_cta(
        w, [_unravel(cta.rank, w.launch.cluster, a) for cta in w.ctas]
    ),
    "cluster_nctaid": lambda w, a: w.launch.cluster[a],
}
_SCALARS: dict[str, Callable[[Wave], Any]] = {
    "laneid": _lane,
    "warpid": lambda w: _thread(w) // 32,
    "nwarpid": lambda w: w.lanes_per_cta // 32,
    "smid": lambda w: _per_cta(w, [cta.slot for cta in w.ctas]),
    "nsmid": lambda w: len(w.ctas),
    "gridid": lambda w: 1,
    "is_explicit_cluster": lambda w: int(w.launch.explicit_cluster),
    "cluster_ctarank": lambda w: _per_cta(w, [cta.rank for cta in w.ctas]),
    "cluster_nctarank": lambda w: w.cluster_size,
    "lanemask_eq": lambda w: 1 << _lane(w),
    "lanemask_lt": lambda w: (1 << _lane(w)) - 1,
    "lanemask_le": lambda w: (2 << _lane(w)) - 1,
    "lanemask_gt": lambda w: 0xFFFFFFFF & ~((2 << _lane(w)) - 1),
    "lanemask_ge": lambda w: 0xFFFFFFFF & ~((1 << _lane(w)) - 1),
    "dynamic_smem_size": lambda w: w.launch.dynamic_shared,
    "total_smem_size": _user_shared,
    "aggr_smem_size": lambda w: _user_shared(w) + SHARED_START,
    "reserved_smem_offset_begin": lambda w: 0,
    "reserved_smem_offset_end": lambda w: SHARED_START,
    "reserved_smem_offset_cap": lambda w: SHARED_START,
    "reserved_smem_offset_0": lambda w: 0,
    "reserved_smem_offset_1": lambda w: SCRATCH_START,
    "current_graph_exec": lambda w: 0,
    # The driver's environment: of its 32 words it only sets the grid barrier's address here.
    **{f"envreg{k}": lambda w: 0 for k in range(32)},
    "envreg1": lambda w: w.launch.grid_workspace >> 32,
    "envreg2": lambda w: w.launch.grid_workspace & 0xFFFFFFFF,
}
