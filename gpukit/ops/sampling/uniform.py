"""Random numbers as a function of a seed and a position."""

from __future__ import annotations

from typing import Any

from gpukit import devices, kernels
from gpukit.errors import ArgumentError
from gpukit.ops.sampling import rows

_THREADS = 256


def uniform(seed: Any, position: Any = 0, *, out: Any = None) -> Any:
    """One number of [0, 1) per seed: Philox4x32-10, the same on every GPU and in the emulator.

    Args:
        seed: uint64 [n].
        position: an integer, or int64 [n].
        out: float32 [n].

    Returns:
        float32 [n], multiples of 2^-24.
    """
    device, seed = devices.adopt("seed", seed, "uniform")
    if seed.ndim != 1:
        raise ArgumentError(f"uniform: seed has shape {seed.shape}; accepted: [n]")
    seed = rows.vector("uniform", "seed", seed, seed.shape, "uint64", device)
    n = seed.shape[0]
    pointer, number = rows.setting("uniform", "position", position, "int64", n, device)
    out = rows.output("uniform", "out", out, (n,), "float32", device)
    if n:
        kernel = device.compile(kernels.get("sampling.uniform"), {})
        kernel.launch((-(-n // _THREADS),), (_THREADS,), (seed, pointer, out, n, number))
    return out
