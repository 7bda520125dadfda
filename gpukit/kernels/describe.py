"""What `gpukit show` says about a kernel: its spec, its idea, and what it costs to build and run.

On a GPU the numbers come from the loaded kernel. Other targets, and machines without a GPU, are
answered by compiling offline.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpukit import kernels, sources
from gpukit.errors import (
    ArgumentError,
    CompileError,
    GpukitError,
    MissingDependencyError,
    UnsupportedError,
)
from gpukit.kernels.spec import KernelSpec, Tunables, Value, arch_number

if TYPE_CHECKING:
    from gpukit.devices.cuda import CudaDevice


@dataclass(frozen=True)
class Build:
    """One variant built for one target. Numbers that could not be had are None; `note` says why.

    Attributes:
        arch: the target, "sm_90a".
        where: "cuda:0" for a kernel loaded on that GPU, "offline" for NVRTC alone.
        registers: per thread.
        spill_bytes: per thread, stores plus loads; None on a GPU whose kernel has local memory,
            because the driver does not tell spills from stack.
        stack_bytes: local memory per thread; on a GPU this includes spills.
        static_shared_bytes: per CTA.
        compile_ms: wall time of compiling, or of loading from CuPy's cache.
        cached: whether the binary came from a cache.
    """

    arch: str
    where: str
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    static_shared_bytes: int | None = None
    compile_ms: float | None = None
    cached: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Description:
    """All facts about one variant of a kernel.

    Attributes:
        header: the comment at the top of the source file.
        tunables: every tunable with the value this description is for.
        expression: the template instance they select.
        dynamic_shared_bytes: per CTA.
        builds: one per target, the GPU's own first.
    """

    spec: KernelSpec
    header: str
    tunables: dict[str, Value]
    expression: str
    dynamic_shared_bytes: int
    builds: tuple[Build, ...]


def describe(name: str, tunables: Tunables | None = None, arch: str | None = None) -> Description:
    """Build a variant and collect the facts.

    Args:
        name: a kernel's name.
        tunables: settings that differ from the defaults; values may be text ("8" for 8).
        arch: describe this target only ("sm_90"); otherwise this machine's GPU and every target
            of the spec.

    Raises:
        UnknownKernelError: lists the known names.
        ArgumentError: an unknown tunable, a value that is not accepted, a malformed arch.
        UnsupportedError: the kernel does not run on the given arch.
        CompileError: the variant does not compile for the given arch.
    """
    spec = kernels.get(name)
    full = spec.resolve(_typed(spec, tunables or {}))
    device = _gpu()
    if arch is None:
        builds = _all_builds(spec, full, device)
    else:
        builds = (_build(spec, full, _target(spec, arch), device),)
    return Description(
        spec=spec,
        header=sources.header_comment(spec.source),
        tunables=full,
        expression=spec.expression(full),
        dynamic_shared_bytes=spec.shared_bytes(full),
        builds=builds,
    )


def _typed(spec: KernelSpec, given: Tunables) -> dict[str, Value]:
    """Text as the choice it spells, so that a command line can pass what it read."""
    spelled = {tunable.name: {str(c): c for c in tunable.choices} for tunable in spec.tunables}
    return {name: spelled.get(name, {}).get(str(value), value) for name, value in given.items()}


def _target(spec: KernelSpec, arch: str) -> str:
    """The target that a GPU of this arch is given."""
    number = arch_number(arch)
    if not arch.startswith("sm_"):
        raise ArgumentError(f"arch {arch!r} is virtual; give a GPU's, sm_{number}")
    return spec.arch_for((number // 10, number % 10))


def _gpu() -> CudaDevice | None:
    """The first GPU, if there is a usable one."""
    from gpukit.devices import cuda

    try:
        return cuda.get(0)
    except GpukitError:
        return None


def _all_builds(spec: KernelSpec, tunables: Tunables,
                device: CudaDevice | None) -> tuple[Build, ...]:
    own = _own_arch(spec, device)
    targets = dict.fromkeys(([own] if own else []) + list(spec.archs))
    return tuple(_build_or_note(spec, tunables, arch, device) for arch in targets)


def _own_arch(spec: KernelSpec, device: CudaDevice | None) -> str | None:
    """The target this machine's GPU is given; None without one or where the kernel cannot run."""
    if device is None:
        return None
    try:
        return spec.arch_for(device.properties.capability)
    except UnsupportedError:
        return None


def _build_or_note(spec: KernelSpec, tunables: Tunables, arch: str,
                   device: CudaDevice | None) -> Build:
    """A build, or the reason why this variant has none for this target (wide accesses, say)."""
    try:
        return _build(spec, tunables, arch, device)
    except (CompileError, UnsupportedError) as error:
        return Build(arch, "offline", note=_reason(error))


def _reason(error: Exception) -> str:
    """The one line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if "error" in line), lines[0])


def _build(spec: KernelSpec, tunables: Tunables, arch: str, device: CudaDevice | None) -> Build:
    if device is not None and arch == _own_arch(spec, device):
        return _on_gpu(spec, tunables, arch, device)
    return _offline(spec, tunables, arch)


def _offline(spec: KernelSpec, tunables: Tunables, arch: str) -> Build:
    from gpukit.devices import nvrtc

    try:
        nvrtc.version()  # loading the library is no part of the compile time
        start = time.perf_counter()
        compiled = nvrtc.compile_kernel(spec, tunables, arch)
    except MissingDependencyError as error:
        return Build(arch, "offline", note=str(error))
    elapsed = time.perf_counter() - start
    used = nvrtc.resources(compiled)
    return Build(arch, "offline", used.registers, used.spill_bytes, used.stack_bytes,
                 used.static_shared_bytes, elapsed * 1e3, cached=False)


def _on_gpu(spec: KernelSpec, tunables: Tunables, arch: str, device: CudaDevice) -> Build:
    before = _cached_files()
    start = time.perf_counter()
    function = device.compile(spec, tunables).function
    elapsed = time.perf_counter() - start
    local = int(function.local_size_bytes)
    return Build(arch, device.name, int(function.num_regs), None if local else 0, local,
                 int(function.shared_size_bytes), elapsed * 1e3,
                 cached=not os.environ.get("CUPY_CACHE_IN_MEMORY") and _cached_files() == before)


def _cached_files() -> set[str]:
    """The binaries in CuPy's kernel cache, whose file names are its keys."""
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy/kernel_cache")
    return {path.name for path in folder.glob("*.cubin")}
