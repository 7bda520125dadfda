"""A PTX machine: runs the PTX that NVRTC makes, on the CPU, with checks and counters."""

from __future__ import annotations

from gpukit.emulator.api import Result, load, run
from gpukit.emulator.arguments import Uninitialized
from gpukit.emulator.counters import Counters
from gpukit.emulator.errors import EmulatorError, KernelFault, LaunchError
from gpukit.emulator.mem.allocations import GlobalMemory

__all__ = [
    "Counters",
    "EmulatorError",
    "GlobalMemory",
    "KernelFault",
    "LaunchError",
    "Result",
    "Uninitialized",
    "load",
    "run",
]
