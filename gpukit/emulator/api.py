"""Running a kernel: the emulator's public entry point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpukit.emulator import families
from gpukit.emulator.architecture import check_target
from gpukit.emulator.assembler import assemble
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.check.rules import take_rules
from gpukit.emulator.configuration import MAX_STACK
from gpukit.emulator.counters import Counters
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.front import ptx_of
from gpukit.emulator.inputs import dim3, flag, instance, integer, items, refusal, shown
from gpukit.emulator.launch import Launch, Options
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.program import Program
from gpukit.emulator.ptx.ir import Module
from gpukit.emulator.ptx.parser import parse
from gpukit.emulator.signature import parameter_types

families.load()
DEFAULT_BUDGET = 200_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """What a launch left behind besides the arrays: counters and the text of device printf."""

    counters: Counters
    output: str


def run(
    ptx_or_cu: str | Path,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    kernel: str | None = None,
    arch: str | None = None,
    shared_bytes: int = 0,
    cluster: int | Sequence[int] | None = None,
    seed: int = 0,
    policy: str = "random",
    checks: bool = True,
    ignore: Sequence[str] = (),
    budget: int = DEFAULT_BUDGET,
    cooperative: bool = False,
    nonportable_cluster: bool = False,
    stack_bytes: int = 4096,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    memory: GlobalMemory | None = None,
) -> Result:
    """Run one kernel launch on the CPU.

    ``ptx_or_cu`` is PTX text, CUDA C++ text, or the path of a ``.ptx`` or ``.cu`` file.
    ``args`` are NumPy arrays (passed as pointers and modified in place; ``Uninitialized(array)``
    for outputs), NumPy scalars and structured scalars (by value), Python ints where the parameter
    is an integer (or an address) and floats where it is a float, ``bytes``, or None for a null
    pointer. ``kernel`` may be left out if the module has one. ``arch`` is what CUDA C++ is
    compiled for (``sm_90a`` by default) and, for PTX, what it must run on. ``shared_bytes`` is the
    dynamic shared memory of a CTA. ``checks`` switches on what is not always checked:
    uninitialised reads, data races, proxy fences, asynchronous operations not waited for (see
    docs/emulator.md); ``ignore`` names those of ``emulator.RULES`` to leave out. ``budget`` limits
    the warp instructions issued. ``cooperative`` keeps the whole grid resident,
    ``nonportable_cluster`` allows clusters of 9 to 16 CTAs. ``options`` and
    ``include_dirs`` are NVRTC's.

    Raises ``EmulatorError``: ``LaunchError`` for bad input (one line that names the argument),
    ``CompileError`` from NVRTC, ``KernelFault`` for what a kernel did.
    """
    chosen = Options(
        cluster=None if cluster is None else dim3("cluster", cluster),
        dynamic_shared=integer("shared_bytes", shared_bytes, 0),
        seed=integer("seed", seed, 0),
        policy=policy,
        checks=flag("checks", checks),
        ignore=take_rules(ignore),
        budget=integer("budget", budget, 1),
        cooperative=flag("cooperative", cooperative),
        nonportable_cluster=flag("nonportable_cluster", nonportable_cluster),
        stack_bytes=integer("stack_bytes", stack_bytes, 0, MAX_STACK),
        listeners=items("listeners", listeners, Listener, "objects of Listener's subclasses"),
    )
    size = dim3("grid", grid), dim3("block", block)
    given = items("args", args, object, "arguments, one for each parameter")
    held = GlobalMemory() if memory is None else memory
    instance("memory", held, GlobalMemory, "a GlobalMemory or None")
    ptx, text = ptx_of(ptx_or_cu, arch, options, include_dirs)
    program = load(ptx, kernel, arch)
    types = parameter_types(program.kernel.name, text, len(program.kernel.params))
    launch = Launch(program, *size, given, held, chosen, types)
    return Result(launch.run(), "".join(launch.output))


def load(ptx: str, kernel: str | None = None, arch: str | None = None) -> Program:
    """Parse PTX and decode one kernel of it, ready to launch. Cached."""
    if not isinstance(ptx, str):
        raise refusal("ptx", ptx, "the text of PTX")
    if kernel is not None and not isinstance(kernel, str):
        raise refusal("kernel", kernel, "the name of a kernel or None")
    module = _module(ptx)
    check_target(module.target, arch)
    return _program(ptx, _kernel_name(module, kernel))


@lru_cache(maxsize=32)
def _module(ptx: str) -> Module:
    return parse(ptx)


@lru_cache(maxsize=64)
def _program(ptx: str, kernel: str) -> Program:
    module = _module(ptx)
    return assemble(module, module.functions[kernel])


def _kernel_name(module: Module, kernel: str | None) -> str:
    entries = module.entries
    if not entries:
        raise LaunchError(
            "kernel: the source has none; accepted: a __global__ function, of templates an "
            "instantiation"
        )
    if kernel is None and len(entries) == 1:
        return entries[0]
    matches = [e for e in entries if e == kernel]
    matches = matches or [e for e in entries if kernel and f"{len(kernel)}{kernel}" in e]
    if len(matches) != 1:
        raise LaunchError(
            f"kernel: {shown(kernel)} does not name one kernel; the module has {', '.join(entries)}"
        )
    return matches[0]
