"""Which matmul kernel a name on the command line means: the one place that knows.

    auto        what `gpukit.matmul` chooses by itself
    7           rung 7 of the ladder of the GPU at hand: matmul.sm90.k7 on one, matmul.sm100.k7
                on another; rung 1 is matmul.k1 everywhere
    sm90.k7     that kernel, whatever the GPU
    sm80        every kernel of that ladder: sm80.a1, sm80.a2, ...
    all         every rung by number

Everything is derived from the names in the registry, so that a new kernel needs no entry here.
Rows of rungs are called matmul.k7 on every GPU; their launch says which kernel that was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpukit import kernels
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels import KernelSpec

AUTO = "auto"
_FAMILY = "matmul."
_RUNG = re.compile(r"matmul\.(?:sm\d+\.)?k(\d+)")
# A ladder's own kernels; matmul.sm80.a3_reduce, a helper of one, is none.
_NAMED = re.compile(r"matmul\.(sm\d+)\.[a-z]+\d+")


def rungs() -> tuple[str, ...]:
    """The numbers of the ladder's rungs, whatever GPU has them."""
    numbers = {int(match[1]) for match in map(_RUNG.fullmatch, kernels.names()) if match}
    return tuple(map(str, sorted(numbers)))


def full_name(chosen: str) -> str:
    """The kernel's name in cases and rows: matmul.k7, matmul.sm80.a1 or matmul.auto."""
    return f"{_FAMILY}k{chosen}" if chosen.isdecimal() else _FAMILY + chosen


def spec_for(name: str, capability: tuple[int, int]) -> KernelSpec | None:
    """The kernel that a case of this name runs on such a GPU; None: gpukit.matmul chooses.

    Raises:
        UnsupportedError: none of this name runs there; says on what it does.
    """
    if name == full_name(AUTO):
        return None
    if name in kernels.names():
        kernels.get(name).arch_for(capability)
        return kernels.get(name)
    candidates = [spec for spec in kernels.registry().values() if _same_rung(spec.name, name)]
    for spec in candidates:
        if _runs(spec, capability):
            return spec
    needed = " or ".join(dict.fromkeys(arch for spec in candidates for arch in spec.archs))
    raise UnsupportedError(f"{name} needs {needed or 'another gpukit'}, this GPU is "
                           f"sm_{capability[0]}{capability[1]}")


def argument(spec: KernelSpec) -> str:
    """What `gpukit.matmul` takes as ``kernel`` for this spec: "1" for matmul.k1, "sm90.k7"."""
    name = spec.name.removeprefix(_FAMILY)
    return name.removeprefix("k") if _RUNG.fullmatch(spec.name) and "." not in name else name


def _same_rung(spec: str, name: str) -> bool:
    theirs, ours = _RUNG.fullmatch(spec), _RUNG.fullmatch(name)
    return theirs is not None and ours is not None and theirs[1] == ours[1]


def _runs(spec: KernelSpec, capability: tuple[int, int]) -> bool:
    try:
        spec.arch_for(capability)
    except UnsupportedError:
        return False
    return True


@dataclass(frozen=True)
class Kernels:
    """Parses what stands after ``--kernel``."""

    def __call__(self, text: str) -> tuple[str, ...]:
        chosen = [name for item in text.split(",") for name in self._item(item.strip())]
        return tuple(dict.fromkeys(chosen))

    def _item(self, item: str) -> tuple[str, ...]:
        if item == "all":
            return rungs()
        named = _named()
        ladder = tuple(name for name in named if name.startswith(f"{item}."))
        name = item.removeprefix(_FAMILY)
        number = re.fullmatch(r"k?(\d+)", name)
        if number is not None and number[1] in rungs():
            return (number[1],)
        if name == AUTO or name in named:
            return (name,)
        if ladder:
            return ladder
        known = (AUTO, *rungs(), *_ladders(), *named)
        raise ArgumentError(f"{item!r} is not one of {', '.join(known)}, all")


def _named() -> tuple[str, ...]:
    """The kernels that a ladder of their own names: sm90.k7, sm80.a1."""
    return tuple(name.removeprefix(_FAMILY) for name in kernels.names()
                 if _NAMED.fullmatch(name))


def _ladders() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition(".")[0] for name in _named()))
