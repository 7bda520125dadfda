"""The typed program: modules, functions, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gpukit.emulator.ptx.types import PtxType


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A ``.loc``: the CUDA source line an instruction came from, and where that was inlined."""

    file: str
    line: int
    inlined_at: SourceLine | None = None

    def __str__(self) -> str:
        here = f"{self.file}:{self.line}"
        return f"{here} (inlined at {self.inlined_at})" if self.inlined_at else here


@dataclass(eq=False, slots=True)
class Reg:
    """A virtual register; ``index`` counts the function's registers of the same width."""

    name: str
    type: PtxType
    index: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``; the name is kept without the percent sign."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal. ``value`` is an int for integers and bit patterns, a float for decimals.

    ``float_bits`` is 32 or 64 for the ``0f``/``0d`` forms, whose ``value`` is the bit pattern.
    """

    value: int | float
    float_bits: int = 0


@dataclass(eq=False, slots=True)
class Var:
    """A declared variable of a state space; ``count`` is None for a scalar, 0 for ``[]``.

    ``init`` holds one entry per element: an int or float, a ``Sym`` (an address), or nothing;
    ``line`` and ``text`` say where in the PTX it is declared, if it has any.
    """

    name: str
    space: str
    type: PtxType
    count: int | None
    align: int
    vector: int = 1
    init: tuple[int | float | Sym, ...] = ()
    extern: bool = False
    line: int = 0
    text: str = ""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.type.bytes * self.vector * (1 if self.count is None else self.count)


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable or function, plus ``offset`` bytes.

    ``generic`` marks ``generic(x)`` in an initialiser.
    """

    target: Var | Function | str
    offset: int = 0
    generic: bool = False


@dataclass(eq=False, slots=True)
class Label:
    """A branch target; ``pc`` is the index in the function's instructions once defined."""

    name: str
    pc: int = -1
    targets: tuple[Label, ...] = ()  # of a .branchtargets list


@dataclass(frozen=True, slots=True)
class Vec:
    """``{a, b, ...}``; also the parenthesised lists of ``call``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Addr:
    """``[base + offset]``, or ``[base, {coords}]`` for tensor maps and textures."""

    base: Operand
    offset: int = 0
    coords: Operand | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """``!p``"""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a destination nobody reads."""


Operand: TypeAlias = "Reg | Special | Imm | Sym | Label | Vec | Addr | Pair | Not | Sink"


@dataclass(eq=False, slots=True)
class Instr:
    """One instruction. ``mods`` are the dotted parts after the first (``ld`` in ``ld.global``)."""

    name: str
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    pred: Reg | None
    negated: bool
    text: str
    ptx_line: int
    source: SourceLine | None

    @property
    def opcode(self) -> str:
        return ".".join((self.name, *self.mods))

    @property
    def place(self) -> str:
        """The ``.cu`` line if known, else the PTX line."""
        return str(self.source) if self.source else f"PTX line {self.ptx_line}"


@dataclass(eq=False, slots=True)
class Function:
    """A ``.entry`` or ``.func``. ``register_counts`` maps a width in bits to how many are used."""

    name: str
    is_entry: bool
    params: list[Var] = field(default_factory=list)
    returns: list[Var] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    body: list[Instr] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    register_counts: dict[int, int] = field(default_factory=dict)
    defined: bool = False


@dataclass(eq=False, slots=True)
class Module:
    """A whole PTX text."""

    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Var] = field(default_factory=dict)

    @property
    def entries(self) -> list[str]:
        """Names of the kernels."""
        return [f.name for f in self.functions.values() if f.is_entry and f.defined]
