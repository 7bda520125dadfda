"""Imports every instruction family, which registers its instructions."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "aio.bulk",
    "aio.clc",
    "aio.cp_async",
    "aio.remote",
    "aio.tensor_copy",
    "alu.approximate",
    "alu.arithmetic",
    "alu.bits",
    "alu.carries",
    "alu.compare",
    "alu.convert",
    "alu.floats",
    "alu.integers",
    "alu.moves",
    "alu.shifts",
    "control",
    "mem.atomics",
    "mem.hints",
    "mem.transfer",
    "mma.ldmatrix",
    "mma.mma_sync",
    "mma.wgmma",
    "sync.barriers",
    "sync.cluster",
    "sync.fences",
    "sync.griddep",
    "sync.mbarrier_ops",
    "sync.mbarrier_wait",
    "sync.setmaxnreg",
    "tcgen05.allocation",
    "tcgen05.commit",
    "tcgen05.cp",
    "tcgen05.mma",
    "tcgen05.transfer",
    "warp.shuffles",
    "warp.votes",
)


def load() -> None:
    """Make all instructions known."""
    for name in FAMILIES:
        import_module(f"gpukit.emulator.{name}")
