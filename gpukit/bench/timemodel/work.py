"""What a CTA of a rung does, counted by running two small problems on the emulator.

Counters grow linearly with K: the difference of two runs is what steps along K do, the rest is what
is done once per tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ml_dtypes import bfloat16

from gpukit import devices, kernels
from gpukit.devices import emulated
from gpukit.emulator import Counters
from gpukit.kernels import KernelSpec
from gpukit.kernels.spec import Value

_STEPS = 4, 8  # of 64 along K
_BK = 64
_REGISTERS, _THREADS, _SHARED = 65536, 2048, 228 * 1024  # of an SM
_SYSTEM = 1024  # bytes of shared memory that each CTA takes beside its own


@dataclass(frozen=True)
class Work:
    """One step along K, or what is done once per tile, of one CTA.

    Attributes:
        flops: of MMA instructions.
        l2_bytes: from L2 to shared memory; a multicast counts for the CTA that asked.
        rows: of TMA boxes, the pieces in which they are fetched.
        lines: 128-byte lines of loads and stores by threads.
        instructions: of warps.
        stored_bytes: to global memory.
    """

    flops: float
    l2_bytes: float
    rows: float
    lines: float
    instructions: float
    stored_bytes: float


@dataclass(frozen=True)
class Rung:
    """A rung as the model sees it.

    Attributes:
        tile: rows and columns of C per CTA.
        step: work per step of 64 along K.
        once: work per tile.
        depth: steps in flight: 1 without a ring.
        resident: CTAs that an SM holds.
        pair: whether CTAs agree with another one in each step.
        rate: the share of the widest MMA's rate that this rung's instruction reaches.
        persistent: CTAs take one tile after another, writing one out under the next.
    """

    kernel: str
    tile: tuple[int, int]
    step: Work
    once: Work
    depth: int
    resident: int
    pair: bool
    rate: float
    persistent: bool


def measure(kernel: str, model: str, layout: str = "nt") -> Rung:
    """Count a rung's work on an emulated GPU ("h100", "b200"), and look up what it occupies.

    ``layout`` "nn" is B stored [K, N], which the naive kernel takes as well.
    """
    spec = kernels.get(kernel)
    tile, cluster = _tile(spec), int(spec.defaults.get("cluster", 1))
    shape = tile[0] * cluster, tile[1] * (2 if cluster == 1 else 1)
    ctas = shape[0] * shape[1] // (tile[0] * tile[1])
    few, many = (_per_cta(_run(kernel, model, layout, (*shape, steps * _BK)), ctas)
                 for steps in _STEPS)
    per_step = {name: (many[name] - few[name]) / (_STEPS[1] - _STEPS[0]) for name in few}
    once = {name: few[name] - _STEPS[0] * per_step[name] for name in few}
    number = int(kernel.rpartition("k")[2])
    return Rung(kernel, tile, Work(**per_step), Work(**once),
                depth=int(_defaults(spec).get("stages", 1)), resident=_resident(spec, model),
                pair=cluster > 1, rate=_rate(kernel, tile[0]), persistent=number == 8)


def _tile(spec: KernelSpec) -> tuple[int, int]:
    if spec.name == "matmul.k1":
        return 32, 32
    from gpukit.kernels import matmul_sm90, matmul_sm100

    number = int(spec.name.rpartition("k")[2])
    rows = matmul_sm100.rows(number) if "sm100" in spec.name else matmul_sm90.rows(number)
    return rows, int(spec.defaults["bn"])


def _defaults(spec: KernelSpec) -> dict[str, Value]:
    """The tunables that a plain call gets: as many stages as fit."""
    full = dict(spec.defaults)
    choices = next((t.choices for t in spec.tunables if t.name == "stages"), ())
    fitting = [c for c in choices if spec.shared_bytes({**full, "stages": c}) + _SYSTEM <= _SHARED]
    return {**full, "stages": max(fitting)} if fitting else full


def _rate(kernel: str, rows: int) -> float:
    """tcgen05.mma with 64 rows uses half of the data path (CUTLASS: layout F)."""
    return 0.5 if "sm100" in kernel and rows == 64 else 1.0


def _run(kernel: str, model: str, layout: str, shape: tuple[int, int, int]) -> Counters:
    from gpukit.ops.matmul import ladder

    m, n, k = shape
    random = np.random.default_rng(0)
    stored = (n, k) if layout == "nt" else (k, n)
    a, b = (random.standard_normal(size, np.float32).astype(bfloat16) for size in ((m, k), stored))
    ladder.launch(kernel, devices.get(f"emu:{model}"), a, b.T if layout == "nt" else b,
                  np.empty((m, n), bfloat16))
    counters = emulated.get(model).last_counters
    assert counters is not None
    return counters


def _per_cta(counters: Counters, ctas: int) -> dict[str, float]:
    extra, stores = counters.extra, counters.global_stores
    totals = {
        "flops": sum(count for name, count in extra.items() if name.startswith("flops ")),
        "l2_bytes": extra.get("l2_to_shared_bytes", 0),
        "rows": extra.get("tma_load_rows", 0),
        "lines": counters.global_loads.lines + stores.lines,
        "instructions": counters.warp_instructions,
        "stored_bytes": extra.get("bulk_store_bytes", 0) + stores.bytes,
    }
    return {name: total / ctas for name, total in totals.items()}


def _resident(spec: KernelSpec, model: str) -> int:
    """CTAs that fit an SM by registers, threads, shared memory and Tensor Memory."""
    from gpukit.devices import nvrtc

    device = emulated.get(model)
    threads = _threads(spec)
    built = nvrtc.resources(nvrtc.compile_kernel(spec, spec.defaults, device.model.arch))
    shared = spec.shared_bytes(_defaults(spec)) + _SYSTEM
    fits = [_THREADS // threads, _SHARED // shared,
            _REGISTERS // (threads * -(-built.registers // 8) * 8)]
    if "sm100" in spec.name:
        fits.append(512 // int(spec.defaults.get("columns", 512)))
    return max(1, min(fits))


def _threads(spec: KernelSpec) -> int:
    if spec.name == "matmul.k1":
        return 1024
    from gpukit.kernels import matmul_sm90, matmul_sm100

    number = int(spec.name.rpartition("k")[2])
    return matmul_sm100.threads(number) if "sm100" in spec.name else matmul_sm90.threads(number)
