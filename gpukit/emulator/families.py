"""Imports every instruction family, which registers its instructions."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "alu.arithmetic",
    "alu.bits",
    "alu.carries",
    "alu.compare",
    "alu.floats",
    "alu.integers",
    "alu.moves",
    "control",
    "mem.transfer",
    "sync.barriers",
    "sync.fences",
)


def load() -> None:
    """Make all instructions known."""
    for name in FAMILIES:
        import_module(f"gpukit.emulator.{name}")
