"""Compile kernels without a GPU: NVRTC by way of cuda-bindings.

The same source compiles to a cubin (real architecture: ptxas runs, checks inline assembly and
reports registers and spills) or to PTX (virtual architecture: what the emulator executes).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpukit import sources
from gpukit.errors import CompileError, MissingDependencyError, missing
from gpukit.kernels.spec import KernelSpec, Value


@dataclass(frozen=True)
class Compiled:
    """The product of one compilation: cubin or PTX bytes, the mangled entry name, ptxas's log."""

    image: bytes
    entry: str
    arch: str
    log: str


@dataclass(frozen=True)
class Resources:
    """What ptxas says a kernel uses, per thread and (shared) per CTA."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int


def compile_kernel(spec: KernelSpec, tunables: Mapping[str, Value], arch: str) -> Compiled:
    """Compile one variant for `arch`: "sm_90a" gives a cubin, "compute_90a" gives PTX.

    Options equal those of the GPU path (CuPy always flushes f32 subnormals).

    Raises:
        ArgumentError: a tunable is unknown or has a value that is not accepted.
        CompileError: NVRTC's or ptxas's own text.
        MissingDependencyError: no NVRTC here; names the extra that brings it.
    """
    expression = spec.expression(spec.resolve(tunables))
    options = (*sources.compile_options(spec.source), *toolkit_includes(),
               f"-arch={arch}", "-ftz=true", "-lineinfo")
    if arch.startswith("sm_"):
        options += ("--ptxas-options=-v",)
    return _compile(sources.code(spec.source), spec.source, expression, options, arch)


def _compile(code: str, name: str, expression: str, options: tuple[str, ...],
             arch: str) -> Compiled:
    nvrtc = _nvrtc()
    program = _ok(nvrtc, nvrtc.nvrtcCreateProgram(code.encode(), name.encode(), 0, [], []))
    try:
        _ok(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in options]
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _text(nvrtc, program, "ProgramLog")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{expression} does not compile for {arch}:\n{log}")
        entry = _ok(nvrtc, nvrtc.nvrtcGetLoweredName(program, expression.encode()))
        image = _bytes(nvrtc, program, "CUBIN" if arch.startswith("sm_") else "PTX")
        return Compiled(image, entry.decode(), arch, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def resources(compiled: Compiled) -> Resources:
    """Registers, spills, stack and static shared memory from ptxas's report in the log."""
    log = compiled.log
    return Resources(
        registers=_number(r"Used (\d+) registers", log),
        spill_bytes=_number(r"(\d+) bytes spill stores", log)
        + _number(r"(\d+) bytes spill loads", log),
        stack_bytes=_number(r"(\d+) bytes stack frame", log),
        static_shared_bytes=_number(r"(\d+) bytes smem", log),
    )


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
    buffer = b" " * size
    _ok(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return bytes(buffer)


def _text(nvrtc: Any, program: Any, what: str) -> str:
    return _bytes(nvrtc, program, what).rstrip(b"\0 ").decode(errors="replace").strip()
