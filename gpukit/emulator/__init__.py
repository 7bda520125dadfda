"""A PTX machine: runs the PTX that NVRTC makes, on the CPU, with checks and counters.

``run`` launches a kernel on NumPy arrays. How the machine works and how to add instructions, waits,
asynchronous operations and checks is described in ``docs/emulator.md``.
"""

from __future__ import annotations

from gpukit.emulator.api import Result, load, run
from gpukit.emulator.arguments import Uninitialized
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.check.rules import RULES
from gpukit.emulator.counters import Counters
from gpukit.emulator.errors import EmulatorError, KernelFault, LaunchError
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.tensormap import TensorMap
from gpukit.emulator.trace import Trace

__all__ = [
    "RULES",
    "Counters",
    "EmulatorError",
    "GlobalMemory",
    "KernelFault",
    "LaunchError",
    "Listener",
    "Result",
    "TensorMap",
    "Trace",
    "Uninitialized",
    "load",
    "run",
]
