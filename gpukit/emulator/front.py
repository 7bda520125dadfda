"""What ``run`` was given as its source, as text and as PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpukit.emulator.architecture import split_arch
from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import items, refusal, shown
from gpukit.emulator.nvrtc import compile_ptx

DEFAULT_ARCH = "sm_90a"
_WHAT = "ptx_or_cu"


def ptx_of(
    source: str | Path, arch: str | None, options: Sequence[str], include_dirs: Sequence[str | Path]
) -> tuple[str, str]:
    """The PTX, and the text that it was made from (or is)."""
    options = items("options", options, str, "text such as '-DN=4'")
    folders = _folders(include_dirs)
    if arch is not None:
        split_arch(arch)
    text, path = _text(source)
    if re.search(r"^\s*\.version\s", text, re.MULTILINE):
        if options:
            raise LaunchError(f"options: {shown(options)} are for NVRTC, but the source is PTX")
        return text, text
    if path is not None:
        folders = (*folders, str(path.parent))
    name = str(path) if path else "kernel.cu"
    ptx = compile_ptx(
        text, arch=arch or DEFAULT_ARCH, name=name, options=options, include_dirs=folders
    )
    return ptx, text


def _folders(include_dirs: Sequence[str | Path]) -> tuple[str, ...]:
    given = items("include_dirs", include_dirs, (str, Path), "paths of folders")
    for folder in given:
        if not Path(folder).is_dir():
            raise LaunchError(f"include_dirs: {folder} is no folder")
    return tuple(map(str, given))


def _text(source: str | Path) -> tuple[str, Path | None]:
    """The text, and the file it came from."""
    if isinstance(source, Path) or (isinstance(source, str) and _names_file(source)):
        path = Path(source)
        text = _read(path)
        what = f"{_WHAT}: {path}"
    elif isinstance(source, str):
        path, text, what = None, source, _WHAT
    else:
        raise refusal(_WHAT, source, "the text or the path of CUDA C++ or PTX")
    text = text.rstrip("\0")  # as the driver's API wants PTX
    if not text.strip():
        raise LaunchError(f"{what}: the text is empty; accepted: CUDA C++ or PTX")
    return text, path


def _names_file(source: str) -> bool:
    """Whether a string is a path; one line without any statement cannot be a source."""
    if not source.strip() or "\n" in source:
        return False
    return source.endswith((".cu", ".ptx")) or not re.search("[;{#]", source)


def _read(path: Path) -> str:
    try:
        if not path.exists():
            raise LaunchError(f"{_WHAT}: {shown_path(path)} does not exist")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LaunchError(
            f"{_WHAT}: {path} is no UTF-8 text (a binary?); accepted: CUDA C++ or PTX"
        ) from None
    except (OSError, ValueError) as why:
        reason = why.strerror if isinstance(why, OSError) else str(why)
        raise LaunchError(f"{_WHAT}: {shown_path(path)} cannot be read: {reason}") from None


def shown_path(path: Path) -> str:
    """A path in a message: as it is, unless it is long or more than one line."""
    text = str(path)
    return text if text.isprintable() and len(text) < 200 else shown(text)
