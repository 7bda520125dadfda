"""The figures of the documents: a name for each, and the picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpukit.layout.draw import encoded
from gpukit.layout.picture import Picture
from gpukit.layout.pictures import memory, registers, tensor_memory
from gpukit.layout.tmem import SHAPES

_WARP = slice(0, 16), slice(None)  # the rows of the first warp

FIGURES: dict[str, Callable[[], Picture]] = {
    "wgmma-d": lambda: registers.wgmma_d(16).window(slice(0, 24), slice(None)),
    "wgmma-a-registers": lambda: registers.wgmma_a().window(*_WARP),
    "wgmma-a-registers-e4m3": lambda: registers.wgmma_a("e4m3").window(*_WARP),
    **{f"wgmma-b-{mode}": partial(memory.operand, "B", 16, mode=mode)
       for mode in ("none", "32", "64", "128")},
    **{f"wgmma-b-mn-{mode}": partial(memory.operand, "B", 64, mode=mode, major="mn")
       for mode in ("none", "128")},
    **{f"swizzle-{mode}": partial(memory.swizzle, mode) for mode in ("32", "64", "128")},
    "tma-box-none": partial(memory.box, mode="none"),
    "tma-box-128": partial(memory.box, mode="128"),
    "ldmatrix-addresses": memory.ldmatrix,
    "ldmatrix-addresses-128": partial(memory.ldmatrix, mode="128"),
    "ldmatrix-padded": partial(memory.ldmatrix, 144),
    "ldmatrix": partial(registers.ldmatrix, 1),
    "ldmatrix-trans": partial(registers.ldmatrix, 1, True),
    "mma-a": registers.mma_a,
    "mma-b": registers.mma_b,
    "mma-c": registers.mma_c,
    **{f"tcgen05-ld-{shape}": partial(tensor_memory.loaded, shape, 2)
       for shape in SHAPES},
    "tmem-128": lambda: tensor_memory.accumulator(128, 8).window(slice(0, 36), slice(None)),
    "tmem-64": lambda: tensor_memory.accumulator(64, 8).window(slice(0, 36), slice(None)),
    "tmem-pair": lambda: tensor_memory.accumulator(128, 16, 2).window(slice(56, 72), slice(None)),
}


def write(folder: Path) -> None:
    """Write every figure as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURES.items():
        file = folder / f"{name}.svg"
        file.write_bytes(encoded(make(), file))
