"""CUDA C++ to PTX with NVRTC; needs no GPU and no CUDA toolkit."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gpukit.emulator.errors import CompileError

_INSTALL = 'install it with: pip install "gpukit[emulator]"'


def compile_ptx(
    source: str,
    *,
    arch: str = "sm_90a",
    name: str = "kernel.cu",
    options: tuple[str, ...] = (),
    include_dirs: tuple[str, ...] = (),
) -> str:
    """PTX of a CUDA C++ source, with line information. Raises ``CompileError`` with NVRTC's log.

    ``arch`` is a real architecture such as ``sm_90a``; the PTX is made for its virtual twin.
    """
    return _compile(source, arch, name, tuple(options), tuple(include_dirs))


@lru_cache(maxsize=64)
def _compile(
    source: str, arch: str, name: str, options: tuple[str, ...], includes: tuple[str, ...]
) -> str:
    nvrtc = _nvrtc()
    flags = [f"-arch=compute_{arch.removeprefix('sm_').removeprefix('compute_')}"]
    flags += ["-std=c++17", "-lineinfo", "-default-device"]
    flags += [f"-I{path}" for path in (*includes, *_toolkit_includes())]
    flags += list(options)
    program = _check(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        encoded = [flag.encode() for flag in flags]
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{name}: NVRTC rejected the source:\n{_log(nvrtc, program)}")
        size: int = _check(nvrtc.nvrtcGetPTXSize(program))
        text = bytes(size)  # not spaces: a shared one-byte object would be overwritten
        _check(nvrtc.nvrtcGetPTX(program, text))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return text.decode().rstrip("\0")


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as why:  # the bindings raise their own types when the library is missing
        raise CompileError(f"NVRTC is not available ({why}); {_INSTALL}") from why
    return nvrtc


def _check(result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        raise CompileError(f"NVRTC failed: {result[0]}")
    return result[1] if len(result) > 1 else None


def _log(nvrtc: Any, program: Any) -> str:
    size: int = _check(nvrtc.nvrtcGetProgramLogSize(program))
    text = bytes(size)
    _check(nvrtc.nvrtcGetProgramLog(program, text))
    return text.decode("utf-8", "replace").rstrip("\0 \n")


@lru_cache(maxsize=1)
def _toolkit_includes() -> tuple[str, ...]:
    """Include directories of the CUDA header wheels that are installed.

    The C++ library (``<cuda/std/...>``, ``<cuda/barrier>``, CUB) has one of its own inside.
    """
    try:
        wheels = import_module("nvidia")
    except ImportError:
        return ()
    found: list[str] = []
    for root in map(Path, wheels.__path__):
        for pattern in ("*/include", "*/include/cccl"):
            found += [str(path) for path in sorted(root.glob(pattern)) if path.is_dir()]
    return tuple(found)
