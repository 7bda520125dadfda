"""Running a kernel: the emulator's public entry point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from pathlib import Path
from typing import Any

from gpukit.emulator import families
from gpukit.emulator.assembler import assemble
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.counters import Counters
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.launch import Dim3, Launch, Options
from gpukit.emulator.mem.allocations import GlobalMemory
from gpukit.emulator.nvrtc import compile_ptx
from gpukit.emulator.program import Program
from gpukit.emulator.ptx.ir import Module
from gpukit.emulator.ptx.parser import parse

families.load()
DEFAULT_ARCH = "sm_90a"
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
    cluster: Sequence[int] | None = None,
    seed: int = 0,
    policy: str = "random",
    checks: bool = True,
    budget: int = DEFAULT_BUDGET,
    cooperative: bool = False,
    stack_bytes: int = 4096,
    include_dirs: Sequence[str] = (),
    options: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    memory: GlobalMemory | None = None,
) -> Result:
    """Run one kernel launch on the CPU.

    ``ptx_or_cu`` is PTX text, CUDA C++ text, or the path of a ``.ptx`` or ``.cu`` file.
    ``args`` are NumPy arrays (passed as pointers and modified in place; ``Uninitialized(array)``
    for outputs), NumPy scalars and structured scalars (by value), Python ints where the parameter
    is an integer, ``bytes``, or None for a null pointer. ``kernel`` may be left out if the module
    has one. ``arch`` is what CUDA C++ is compiled for (``sm_90a`` by default) and, for PTX, what
    it must run on. ``shared_bytes`` is the dynamic shared memory of a CTA. ``checks`` switches on
    what is not always checked: uninitialised reads, data races, proxy fences, asynchronous
    operations not waited for (see docs/emulator.md). ``budget`` limits the warp instructions
    issued. ``cooperative`` keeps the whole grid resident.

    Raises ``EmulatorError``: ``LaunchError`` for bad input, ``KernelFault`` for what a kernel did.
    """
    ptx = _ptx(ptx_or_cu, arch, tuple(options), tuple(include_dirs))
    chosen = Options(
        cluster=_dim3("cluster", cluster) if cluster is not None else None,
        dynamic_shared=shared_bytes,
        seed=seed,
        policy=policy,
        checks=checks,
        budget=budget,
        cooperative=cooperative,
        stack_bytes=stack_bytes,
        listeners=listeners,
    )
    launch = Launch(
        load(ptx, kernel, arch),
        _dim3("grid", grid),
        _dim3("block", block),
        args,
        GlobalMemory() if memory is None else memory,
        chosen,
    )
    counters = launch.run()
    return Result(counters, "".join(launch.output))


def _ptx(
    source: str | Path, arch: str | None, options: tuple[str, ...], include_dirs: tuple[str, ...]
) -> str:
    """PTX text of whatever ``run`` was given."""
    text, path = _text(source)
    if _is_ptx(text):
        return text
    if path is not None:
        include_dirs = (*include_dirs, str(path.parent))
    return compile_ptx(
        text,
        arch=arch or DEFAULT_ARCH,
        name=str(path) if path else "kernel.cu",
        options=options,
        include_dirs=include_dirs,
    )


@lru_cache(maxsize=64)
def load(ptx: str, kernel: str | None = None, arch: str | None = None) -> Program:
    """Parse PTX and decode one kernel of it, ready to launch. Cached."""
    module = _module(ptx)
    _check_target(module.target, arch)
    return _program(ptx, _kernel_name(module, kernel))


@lru_cache(maxsize=32)
def _module(ptx: str) -> Module:
    return parse(ptx)


@lru_cache(maxsize=64)
def _program(ptx: str, kernel: str) -> Program:
    module = _module(ptx)
    return assemble(module, module.functions[kernel])


def _text(source: str | Path) -> tuple[str, Path | None]:
    """The text, and the file it came from."""
    if isinstance(source, Path) or ("\n" not in source and source.endswith((".cu", ".ptx"))):
        path = Path(source)
        if not path.is_file():
            raise LaunchError(f"ptx_or_cu: {path} does not exist")
        return path.read_text(), path
    return source, None


def _is_ptx(text: str) -> bool:
    return re.search(r"^\s*\.version\s", text, re.MULTILINE) is not None


def _dim3(what: str, value: int | Sequence[int]) -> Dim3:
    try:
        values = tuple(map(index, value if isinstance(value, Sequence) else (value,)))
    except TypeError:
        values = ()
    if not 1 <= len(values) <= 3 or min(values) < 1:
        raise LaunchError(f"{what}: {value!r} must be one to three positive integers")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _kernel_name(module: Module, kernel: str | None) -> str:
    entries = module.entries
    if kernel is None and len(entries) == 1:
        return entries[0]
    matches = [e for e in entries if e == kernel]
    matches = matches or [e for e in entries if kernel and f"{len(kernel)}{kernel}" in e]
    if len(matches) != 1:
        raise LaunchError(
            f"kernel: {kernel!r} does not name one kernel; the module has {', '.join(entries)}"
        )
    return matches[0]


def _check_target(target: str, arch: str | None) -> None:
    """PTX for ``sm_90`` runs on later architectures, for ``sm_90a`` only there."""
    if arch is None or not target:
        return
    wanted, has = _split_arch(arch), _split_arch(target)
    exact = has[1] in ("a", "f")
    if wanted != has if exact else wanted[0] < has[0]:
        raise LaunchError(f"arch: the PTX is for {target} and does not run on {arch}")


def _split_arch(arch: str) -> tuple[int, str]:
    match = re.fullmatch(r"(?:sm_|compute_)(\d+)([af]?)", arch)
    if match is None:
        raise LaunchError(f"arch: {arch!r} is not an architecture such as 'sm_90a'")
    return int(match[1]), match[2]
