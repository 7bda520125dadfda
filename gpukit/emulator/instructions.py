"""The instruction registry: how a family adds an instruction.

A pure per-lane function of its sources is an ``@alu``: it receives the modifiers and returns an
``Expr``. Everything else (memory, control flow, synchronisation) is an ``@op``: it binds its own
operands and returns an ``Op`` whose handler runs on a warp. Both are looked up by the longest
dotted prefix of the opcode, and every modifier must be consumed or the instruction counts as
unsupported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gpukit.emulator.ptx.types import TYPES, PtxType

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome
    from gpukit.emulator.ptx.ir import Instr

Rows: TypeAlias = "list[Any]"
Mask: TypeAlias = "Any"  # None for all lanes, else a bool array of the unit's width
Handler: TypeAlias = "Callable[[Lanes, Mask], Outcome]"


class Unsupported(Exception):  # noqa: N818 - a signal to the assembler, not an error for users
    """The instruction, or this form of it, has no implementation; the text says which part."""


@dataclass(frozen=True, slots=True)
class Expr:
    """``destination = fn(*sources)``, lane by lane.

    ``args`` are the types that the source operands are read as, ``result`` that of the
    destination. With ``out``, ``fn`` takes the destination as a last argument (a NumPy ufunc).
    ``extra`` are further destinations: ``fn`` then returns a tuple.
    """

    fn: Callable[..., Any]
    args: tuple[PtxType, ...]
    result: PtxType
    out: bool = False
    extra: tuple[PtxType, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction ready to run.

    Plain ALU operations have ``full`` (all lanes) and ``masked``; all others a ``handler``, which
    returns an ``Outcome``. ``wide`` handlers accept several warps at once (see ``gang.py``).
    """

    category: str
    full: Callable[[Rows], None] | None = None
    masked: Callable[[Rows, Mask], None] | None = None
    handler: Handler | None = None
    wide: bool = False


class Modifiers:
    """The dotted parts of an opcode, taken one by one so that none is silently ignored."""

    def __init__(self, words: tuple[str, ...], sources: int = 0) -> None:
        self.words = list(words)
        self.sources = sources  # how many operands follow the first

    def flag(self, word: str) -> bool:
        """Take ``word`` if present."""
        if word not in self.words:
            return False
        self.words.remove(word)
        return True

    def drop(self, *words: str) -> None:
        """Accept and ignore these (cache hints and the like)."""
        self.words = [w for w in self.words if w not in words]

    def pick(self, *choices: str, default: str | None = None) -> str:
        """Take the one of ``choices`` that is present."""
        for word in self.words:
            if word in choices:
                self.words.remove(word)
                return word
        if default is None:
            raise Unsupported(f"needs one of {', '.join('.' + c for c in choices)}")
        return default

    def type(self) -> PtxType:
        """Take the first type name."""
        for word in self.words:
            if word in TYPES:
                self.words.remove(word)
                return TYPES[word]
        raise Unsupported("has no type")

    def finish(self) -> None:
        if self.words:
            raise Unsupported(f"modifier .{self.words[0]} is not supported")


AluBuilder: TypeAlias = "Callable[[Modifiers], Expr]"
OpBuilder: TypeAlias = "Callable[[Instr, Modifiers, Assembler], Op]"
_ALU: dict[str, AluBuilder] = {}
_OPS: dict[str, OpBuilder] = {}


def alu(*names: str) -> Callable[[AluBuilder], AluBuilder]:
    """Register a per-lane instruction under one or several dotted names."""

    def register(builder: AluBuilder) -> AluBuilder:
        _ALU.update(dict.fromkeys(names, builder))
        return builder

    return register


def op(*names: str) -> Callable[[OpBuilder], OpBuilder]:
    """Register an instruction with a handler under one or several dotted names."""

    def register(builder: OpBuilder) -> OpBuilder:
        _OPS.update(dict.fromkeys(names, builder))
        return builder

    return register


def build(instr: Instr, assembler: Assembler) -> Op:
    """Decode one instruction. Raises ``Unsupported``."""
    words = (instr.name, *instr.mods)
    for length in range(len(words), 0, -1):
        name = ".".join(words[:length])
        if name in _ALU:
            modifiers = Modifiers(words[length:], len(instr.operands) - 1)
            expr = _ALU[name](modifiers)
            modifiers.finish()
            return assembler.bind(instr, expr)
        if name in _OPS:
            modifiers = Modifiers(words[length:])
            made = _OPS[name](instr, modifiers, assembler)
            modifiers.finish()
            return made
    raise Unsupported(f"instruction {instr.name} is not known")


def known() -> list[str]:
    """All registered instruction names."""
    return sorted({*_ALU, *_OPS})
