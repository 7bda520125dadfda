"""CUDA C++ to PTX with NVRTC; needs no GPU and no CUDA toolkit."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from gpukit.emulator.errors import CompileError
from gpukit.emulator.inputs import one_line, shortened, shown

_EXTRA = 'pip install "gpukit[emulator]"'
_NEEDLESS = {f"{name}.h" for name in ("assert", "math", "stdio", "stdlib", "string")} | {
    f"c{name}" for name in ("assert", "math", "stdio", "stdlib", "string")
}  # what they declare for device code, NVRTC knows


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
    _check_arch(nvrtc, arch)
    flags = [f"-arch=compute_{arch.removeprefix('sm_').removeprefix('compute_')}"]
    flags += ["-std=c++17", "-lineinfo", "-default-device"]
    flags += [f"-I{path}" for path in (*includes, *_toolkit_includes())]
    flags += list(options)
    encoded = [_encoded("options", flag) for flag in flags]
    text = _encoded("ptx_or_cu", source)
    program = _check(nvrtc.nvrtcCreateProgram(text, _encoded("ptx_or_cu", name), 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _rejection(name, arch, options, _log(nvrtc, program))
        size: int = _check(nvrtc.nvrtcGetPTXSize(program))
        ptx = bytes(size)  # not spaces: a shared one-byte object would be overwritten
        _check(nvrtc.nvrtcGetPTX(program, ptx))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode().rstrip("\0")


def _encoded(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # of half a surrogate pair: a file name that was no text
        raise CompileError(f"{what}: {shown(text)} is no valid text") from None


def _check_arch(nvrtc: Any, arch: str) -> None:
    known = _check(nvrtc.nvrtcGetSupportedArchs())
    number = re.search(r"\d+", arch)
    if number is None or int(number[0]) not in known:
        names = ", ".join(f"sm_{one}" for one in known)
        raise CompileError(f"arch: this NVRTC does not compile for {arch}; accepted: {names}")


def _rejection(name: str, arch: str, options: tuple[str, ...], log: str) -> CompileError:
    """The error for a failed compilation: a line that says it all, then the log for its details."""
    first, *more = [line.strip() for line in log.splitlines() if "error:" in line] or [log]
    if first.startswith(("nvrtc: error:", "Command-line error:")):
        given = f"arch: {arch}" if "arch" in first else f"options: {shown(list(options))}"
        return CompileError(f"{given} is refused by NVRTC: {one_line(first.partition(': ')[2])}")
    count = f" (and {len(more)} more)" if more else ""
    hint = _header_hint(first)
    return CompileError(f"{name}: NVRTC rejected the source: {first}{count}{hint}\n{log}")


def _header_hint(error: str) -> str:
    """Where a header that NVRTC did not find may be had."""
    missing = re.search(r'open source file "([^"]+)"', error)
    if missing is None:
        return ""
    if not _toolkit_includes():
        return f"; the CUDA headers come with: {_EXTRA}"
    if missing[1] in _NEEDLESS:
        return "; NVRTC has no C library: printf, assert, malloc and math need no header there"
    twin = {"stdint.h": "cstdint", "stddef.h": "cstddef"}.get(missing[1], missing[1])
    known = any(Path(folder, "cuda/std", twin).is_file() for folder in _toolkit_includes())
    return f"; NVRTC has no C++ library of the host: take <cuda/std/{twin}>" if known else ""


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as why:  # the bindings raise their own types when the library is missing
        reason = shortened(one_line(str(why)))
        raise CompileError(f"NVRTC is not available ({reason}); install it with: {_EXTRA}") from why
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
