"""Runs ring.cu three times: as it should be, without its proxy fence, and with a barrier that waits
for too many bytes. No GPU needed: `python examples/emulator/find_bugs.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpukit import emulator

SOURCE = Path(__file__).parent / "ring.cu"
ROWS, COLUMNS, TILES, CTAS, THREADS = 16, 64, 12, 2, 160
POLICIES = ("random", "early", "late", "starved")


def run_ring(*defines: str, policy: str = "random", **options) -> emulator.Result:
    """One launch of y = 2 x; raises a KernelFault for what the kernel does wrong."""
    x = np.random.default_rng(0).standard_normal((TILES * ROWS, COLUMNS)).astype(np.float32)
    y = np.zeros_like(x)
    maps = [emulator.TensorMap(array, box=(COLUMNS, ROWS)) for array in (x, y)]
    result = emulator.run(
        SOURCE, CTAS, THREADS, [*maps, np.float32(2), np.int32(TILES)], policy=policy,
        options=[f"-D{name}" for name in defines], **options,
    )  # fmt: skip
    if not (y == 2 * x).all():
        raise AssertionError("y is not 2 x")
    return result


def main() -> None:
    for defines in ((), ("MISSING_FENCE",), ("TOO_MANY_BYTES",)):
        print(f"ring.cu {' '.join(defines) or 'as it should be'}")
        for policy in POLICIES:
            try:
                counters = run_ring(*defines, policy=policy).counters
                print(f"  {policy}: right, {counters.warp_instructions} warp instructions")
            except emulator.KernelFault as fault:
                print(f"  {policy}: {type(fault).__name__}: {fault}\n")
                break  # the other schedules find it too


if __name__ == "__main__":
    main()
