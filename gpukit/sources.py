"""Where the CUDA sources live, what each of them includes, and a digest of the whole.

NVRTC and CuPy key their caches on the text they are handed, not on the files it includes: an edited
header would be missed. The digest of the include closure, passed as a define, closes that hole.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from gpukit.errors import CompileError

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


@cache
def root() -> Path:
    """The folder of `.cu` files: packaged beside this module, or the repository's `cuda_src/`."""
    here = Path(__file__).resolve().parent
    for candidate in (here / "cuda_src", here.parent / "cuda_src"):
        if (candidate / "common").is_dir():
            return candidate
    raise CompileError(f"gpukit's CUDA sources were not found in {here} or beside it; reinstall")


def text(name: str) -> str:
    """The text of one file, named relative to `root()` ("matmul/k1_naive.cu")."""
    try:
        return (root() / name).read_text(encoding="utf-8")
    except OSError as error:
        raise CompileError(f"cannot read cuda_src/{name}: {error.strerror}") from error


def include_closure(name: str) -> tuple[str, ...]:
    """`name` and every gpukit file it includes, directly or not, in first-seen order."""
    seen: dict[str, None] = {}
    pending = [name]
    while pending:
        current = pending.pop()
        if current not in seen:
            seen[current] = None
            pending.extend(reversed(_INCLUDE.findall(text(current))))
    return tuple(seen)


def digest(name: str) -> str:
    """Sixteen hex digits that change whenever any file of the include closure does."""
    sha = hashlib.sha256()
    for part in include_closure(name):
        sha.update(part.encode() + b"\0" + text(part).encode() + b"\0")
    return sha.hexdigest()[:16]


def code(name: str) -> str:
    """The text to compile: a `#line` in front makes compiler messages name our file."""
    return f'#line 1 "cuda_src/{name}"\n{text(name)}'


def compile_options(name: str) -> tuple[str, ...]:
    """Options every compilation of `name` needs, whoever runs it."""
    return (f"-I{root()}", "-std=c++17", f"-DGPUKIT_SOURCE_DIGEST=0x{digest(name)}ull")


def header_comment(name: str) -> str:
    """The `//` block at the top of a file, without the slashes."""
    lines = []
    for line in text(name).splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)
