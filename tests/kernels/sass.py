"""Machine code of a kernel, by NVIDIA's disassembler from its wheel."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpukit.devices import nvrtc
from gpukit.devices.nvrtc import Compiled
from gpukit.kernels.spec import KernelSpec, Value

# An address, maybe a predicate, the mnemonic with its modifiers.
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")


def built(spec: KernelSpec, arch: str, **tunables: Value) -> tuple[Compiled, Counter[str]]:
    """One variant's cubin, and how often each mnemonic stands in it."""
    compiled = nvrtc.compile_kernel(spec, tunables, arch)
    return compiled, Counter(_INSTRUCTION.findall(disassembled(compiled.image)))


def disassembled(image: bytes) -> str:
    """The machine code of a cubin as text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(image)
        done = subprocess.run([_disassembler(), "-c", file], capture_output=True, text=True,
                              check=True)
    return done.stdout


def count(code: Counter[str], name: str) -> int:
    """How often a mnemonic stands there, with any modifiers behind it."""
    return sum(number for found, number in code.items()
               if found == name or found.startswith(f"{name}."))


@cache
def _disassembler() -> Path:
    """nvdisasm, a development requirement on Linux."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    return next(Path(str(f.locate())) for f in files if f.name == "nvdisasm")
