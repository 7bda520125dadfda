"""Instructions per loop turn of the copy kernels, counted from machine code for any target."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from gpukit import kernels
from gpukit.bench.published import published
from gpukit.devices import nvrtc
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import Tunables, arch_number
from gpukit.study.sass import Loop, disassemble, main_loop

#: The target that published counts are for (see results/published.csv).
PUBLISHED_ARCH = "sm_80"
_PUBLISHED_ROWS = {"u32": "loop turn, 32-bit counter", "u64": "loop turn, 64-bit counter"}
FORMS = ("elementwise.stride_copy", "elementwise.copy")
ARCHS = ("sm_80", "sm_90", "sm_100")


@dataclass(frozen=True)
class Turn:
    """One turn of a copy loop. ``parts`` maps mnemonics without modifiers to their number."""

    kernel: str
    arch: str
    vec: int
    index: str
    instructions: int
    bytes: int
    parts: dict[str, int]
    listing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "listing": list(self.listing)}


def count_turns(archs: tuple[str, ...] = ARCHS) -> list[Turn]:
    """Count both forms of the copy (the textbook's, the library's) with either counter.

    Needs NVRTC and a disassembler, no GPU; the elements are f32.

    Raises:
        ArgumentError: an arch of another form than sm_90.
        CompileError: NVRTC does not know the arch, or the kernel has no loop.
        MissingDependencyError: no NVRTC or no disassembler here.
    """
    for arch in archs:
        _check(arch)
    return [turn for arch in archs for name in FORMS for turn in _turns(name, arch)]


def _check(arch: str) -> None:
    """Machine code is for a real target that the kernels' oldest one runs on."""
    oldest = kernels.get(FORMS[0]).archs[0]
    if not arch.startswith("sm_") or arch_number(arch) < arch_number(oldest):
        raise ArgumentError(f"arch={arch!r} is not accepted; give a GPU's, {oldest} or newer")


def _turns(name: str, arch: str) -> list[Turn]:
    variants: list[Tunables] = [{"dtype": "u32", "vec": vec, "index": index}
                                for vec in (1, 4) for index in ("u32", "u64")]
    built = nvrtc.compile_variants(kernels.get(name), variants, arch)
    text = disassemble(built[0].image)
    return [_turn(name, arch, variant, main_loop(text, compiled.entry))
            for variant, compiled in zip(variants, built, strict=True)]


def _turn(name: str, arch: str, variant: Tunables, loop: Loop) -> Turn:
    vec = int(variant["vec"])
    parts = Counter(one.name.partition(".")[0] for one in loop.instructions)
    return Turn(name, arch, vec, str(variant["index"]), loop.count(), 2 * 4 * vec, dict(parts),
                tuple(map(str, loop.instructions)))


def published_turns(turn: Turn) -> int | None:
    """What others counted for the textbook's form on this target; None where nobody did."""
    if turn.kernel != FORMS[0]:
        return None
    return next((round(figure.value) for figure in published("memcpy") or ()
                 if figure.gpu == turn.arch and figure.row == _PUBLISHED_ROWS[turn.index]), None)
