"""Machine code of a kernel: its loops, and how many instructions a turn of each takes.

The disassembler is NVIDIA's: `nvdisasm` of the wheel nvidia-cuda-nvdisasm or of a CUDA toolkit, or
the toolkit's `cuobjdump`. Neither needs a GPU, nor cares which one the code is for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from gpukit.errors import CompileError, missing

# nvdisasm: ".text.NAME:"; cuobjdump: "Function : NAME".
_FUNCTION = re.compile(r"^\.text\.(\S+):|^\s*Function\s*:\s*(\S+)")
_LABEL = re.compile(r"^(\.L\w+):")
# An address, maybe a predicate, the mnemonic with its modifiers, its operands.
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+\s+)?)([A-Z][\w.]*)([^;]*);")
_TARGET = re.compile(r"`\((\.L\w+)\)|(?:^|\s)0x([0-9a-f]+)\s*$")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: its address in bytes, predicate, name, operands."""

    address: int
    predicate: str
    name: str
    operands: str

    def is_a(self, name: str) -> bool:
        """Whether this is ``name``, with whatever modifiers."""
        return self.name == name or self.name.startswith(f"{name}.")

    def __str__(self) -> str:
        return " ".join(filter(None, (self.predicate, self.name, self.operands)))


@dataclass(frozen=True)
class Loop:
    """The instructions of one turn, from the target of the branch back to that branch."""

    instructions: tuple[Instruction, ...]

    def count(self, name: str = "") -> int:
        """How many instructions a turn has, or how many called ``name``."""
        return sum(not name or one.is_a(name) for one in self.instructions)

    @property
    def moves_memory(self) -> bool:
        """Whether a turn reads and writes global memory."""
        return self.count("LDG") > 0 and self.count("STG") > 0


def main_loop(text: str, entry: str) -> Loop:
    """The innermost loop of a kernel that reads and writes global memory.

    Args:
        text: of `disassemble`.
        entry: the kernel's mangled name.

    Raises:
        CompileError: the kernel has no such loop.
    """
    found = [loop for loop in loops(text, entry) if loop.moves_memory]
    if not found:
        raise CompileError(f"{entry} has no loop that reads and writes global memory")
    return min(found, key=Loop.count)


def loops(text: str, entry: str) -> list[Loop]:
    """The loops of one function of a disassembly, in the order of their branches back."""
    code, labels = _function(text, entry)
    places = {one.address: at for at, one in enumerate(code)}
    found = []
    for at, one in enumerate(code):
        if one.is_a("BRA") and (target := _target(one, labels)) is not None:
            start = places.get(target, at)
            if start < at:  # a branch to itself is the padding behind the end
                found.append(Loop(tuple(code[start:at + 1])))
    return found


def _function(text: str, entry: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of a function, and the address behind each of its labels."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    pending: list[str] = []
    for line in _lines(text, entry):
        if label := _LABEL.match(line):
            pending.append(label[1])
        elif found := _INSTRUCTION.match(line):
            address, predicate, name, operands = found.groups()
            code.append(Instruction(int(address, 16), predicate.strip(), name, operands.strip()))
            labels |= dict.fromkeys(pending, code[-1].address)
            pending.clear()
    return code, labels


def _lines(text: str, entry: str) -> Iterator[str]:
    """The lines of one function."""
    inside = False
    for line in text.splitlines():
        if heading := _FUNCTION.match(line):
            inside = entry in heading.groups()
        elif inside:
            yield line


def _target(branch: Instruction, labels: dict[str, int]) -> int | None:
    found = _TARGET.search(branch.operands)
    if found is None:
        return None
    return labels.get(found[1]) if found[1] else int(found[2], 16)


def disassemble(image: bytes) -> str:
    """The text of a cubin.

    Raises:
        CompileError: the disassembler's own words.
        MissingDependencyError: there is none here; names the extra that brings one.
    """
    tool = disassembler()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(image)
        how = ["-sass"] if tool.stem == "cuobjdump" else ["-c"]
        done = subprocess.run([tool, *how, file], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{tool.name}: {' '.join(done.stderr.split())}")
    return done.stdout


@cache
def disassembler() -> Path:
    """The disassembler to use: the wheel's, then one on PATH or in a CUDA toolkit.

    Raises:
        MissingDependencyError: there is none.
    """
    found = _of_wheel() or _of_toolkit("nvdisasm") or _of_toolkit("cuobjdump")
    if found is None:
        raise missing("nvdisasm", "study", "counting machine instructions")
    return found


def _of_wheel() -> Path | None:
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())) for file in files if file.stem == "nvdisasm")
    return next((place for place in places if place.is_file()), None)


def _of_toolkit(name: str) -> Path | None:
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    folders = [f"{home}/bin" for home in (*homes, "/usr/local/cuda") if home]
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    return Path(found) if found else None
