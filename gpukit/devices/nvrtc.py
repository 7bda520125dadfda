"""Compile kernels without a GPU: NVRTC by way of cuda-bindings.

The same source compiles to a cubin (real architecture: ptxas runs, checks inline assembly and
reports registers and spills) or to PTX (virtual architecture: what the emulator executes).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpukit import sources
from gpukit.errors import CompileError, MissingDependencyError, missing
from gpukit.kernels.spec import KernelSpec, Tunables


@dataclass(frozen=True)
class Compiled:
    """The product of one compilation: cubin or PTX bytes, the mangled entry name, ptxas's log, and
    the PTX in either case."""

    image: bytes
    entry: str
    arch: str
    log: str
    ptx: bytes


@dataclass(frozen=True)
class Resources:
    """What ptxas says a kernel uses, per thread and (shared) per CTA."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int


def compile_kernel(spec: KernelSpec, tunables: Tunables, arch: str) -> Compiled:
    """Compile one variant for `arch`: "sm_90a" gives a cubin, "compute_90a" gives PTX.

    Options equal those of the GPU path (CuPy always flushes f32 subnormals).

    Raises:
        ArgumentError: a tunable is unknown or has a value that is not accepted.
        CompileError: NVRTC's or ptxas's own text.
        MissingDependencyError: no NVRTC here; names the extra that brings it.
    """
    return compile_variants(spec, (tunables,), arch)[0]


def compile_variants(spec: KernelSpec, variants: Sequence[Tunables],
                     arch: str) -> tuple[Compiled, ...]:
    """Compile several variants as one program, which spares reading the headers for each.

    Returns one `Compiled` per variant, in order; they share the image and the log.

    Raises:
        As `compile_kernel`.
    """
    expressions = [spec.expression(spec.resolve(variant)) for variant in variants]
    # As CuPy does: without it NVRTC 13.0 takes generic lambdas for functions of the host.
    options = (*sources.compile_options(spec.source), "-default-device", *toolkit_includes(),
               f"-arch={arch}", "-ftz=true", "-lineinfo")
    if arch.startswith("sm_"):
        options += ("--ptxas-options=-v",)
    return _compile(sources.code(spec.source), spec.source, expressions, options, arch)


def _compile(code: str, name: str, expressions: Sequence[str], options: tuple[str, ...],
             arch: str) -> tuple[Compiled, ...]:
    nvrtc = _nvrtc()
    program = _ok(nvrtc, nvrtc.nvrtcCreateProgram(code.encode(), name.encode(), 0, [], []))
    try:
        for expression in expressions:
            _ok(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in options]
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _text(nvrtc, program, "ProgramLog").replace(f"{sources.root()}/", "cuda_src/")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{', '.join(expressions)} does not compile for {arch}:\n{log}")
        ptx = _bytes(nvrtc, program, "PTX")
        image = _bytes(nvrtc, program, "CUBIN") if arch.startswith("sm_") else ptx
        return tuple(Compiled(image, _lowered(nvrtc, program, expression), arch, log, ptx)
                     for expression in expressions)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _lowered(nvrtc: Any, program: Any, expression: str) -> str:
    """The mangled name of a compiled name expression."""
    name: bytes = _ok(nvrtc, nvrtc.nvrtcGetLoweredName(program, expression.encode()))
    return name.decode()


def resources(compiled: Compiled) -> Resources:
    """Registers, spills, stack and static shared memory from ptxas's report in the log.

    Spills of functions that the kernel calls count as the kernel's.

    Raises:
        CompileError: the log holds no report of this entry (PTX has none: ptxas did not run).
    """
    report = _report(compiled)
    return Resources(
        registers=_number(r"Used (\d+) registers", report),
        spill_bytes=sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", report))),
        stack_bytes=_number(r"(\d+) bytes stack frame", report),
        static_shared_bytes=_number(r"(\d+) bytes smem", report),
    )


def _report(compiled: Compiled) -> str:
    """ptxas's lines about one entry: from its heading up to the next entry's."""
    heading = "Compiling entry function '"
    for section in compiled.log.split(heading)[1:]:
        if section.startswith(f"{compiled.entry}'"):
            return section
    raise CompileError(f"no ptxas report of {compiled.entry} for {compiled.arch}; "
                       "only cubins (sm_...) have one")


def _number(pattern: str, log: str) -> int:
    match = re.search(pattern, log)
    return int(match.group(1)) if match else 0


@cache
def toolkit_includes() -> tuple[str, ...]:
    """`-I` options for the CUDA headers (cuda_fp16.h, cuda_bf16.h), wherever pip put them."""
    for folder in _header_folders():
        if (folder / "cuda_bf16.h").is_file():
            return (f"-I{folder}",)
    raise missing("the CUDA headers", "emulator", "compiling kernels without a GPU")


def _header_folders() -> list[Path]:
    folders = []
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        found = find_nvidia_header_directory("cudart")
        folders += [Path(found)] if found else []
    except ImportError:
        pass
    if "CUDA_HOME" in os.environ:
        folders.append(Path(os.environ["CUDA_HOME"]) / "include")
    return folders


@cache
def _nvrtc() -> Any:
    """cuda-bindings' NVRTC module, proven to find its library."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise missing("cuda-bindings", "emulator", "compiling kernels without a GPU") from error
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise _no_library() from error
    return nvrtc


def _no_library() -> MissingDependencyError:
    return missing("the NVRTC library", "emulator", "compiling kernels without a GPU")


def version() -> str:
    """NVRTC's version, "13.0"."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    _ok(nvrtc, (status,))
    return f"{major}.{minor}"


def _ok(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """Unwrap a cuda-bindings result tuple, raising NVRTC's own words on failure."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if values else None


def _bytes(nvrtc: Any, program: Any, what: str) -> bytes:
    size = _ok(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    # Zeros, not spaces: NVRTC writes into the object, and one-byte bytes objects are shared by all
    # of Python. A log of one byte holds a NUL, which bytes(1) is already.
    buffer = bytes(size)
    _ok(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer


def _text(nvrtc: Any, program: Any, what: str) -> str:
    return _bytes(nvrtc, program, what).rstrip(b"\0 ").decode(errors="replace").strip()
