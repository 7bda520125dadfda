"""memcpy: the copy kernel over a range of sizes, beside the runtime's own copies."""

from __future__ import annotations

from gpukit.bench.families.elementwise import MIB, ElementwiseFamily

FAMILY = ElementwiseFamily(
    name="memcpy",
    summary="device-to-device copy from 1 MiB to 4 GiB: GB/s read + written",
    ops=("copy",),
    sizes=tuple(MIB << shift for shift in range(0, 13, 2)),
    dtypes=("f32",),
    emulated_sizes=(4096, 64 * 1024 + 4, MIB),
)
