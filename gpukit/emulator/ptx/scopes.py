"""Name lookup: nested ``{ }`` blocks, register families and block-local labels."""

from __future__ import annotations

from gpukit.emulator.ptx.ir import Function, Label, Reg, Var
from gpukit.emulator.ptx.types import PtxType


class Scope:
    """One block of a function. Inline asm repeats register and label names in inner blocks."""

    def __init__(self, function: Function, parent: Scope | None = None) -> None:
        self.function = function
        self.parent = parent
        self._names: dict[str, Reg | Var] = {}
        self._families: dict[str, PtxType] = {}
        self._labels: dict[str, Label] = {}
        self._wanted: dict[str, list[Label]] = {}

    def declare(self, name: str, what: Reg | Var) -> None:
        self._names[name] = what

    def declare_register(self, name: str, type_: PtxType) -> None:
        """``.reg .b32 name``"""
        self._names[name] = self._register(name, type_)

    def declare_family(self, prefix: str, type_: PtxType) -> None:
        """``.reg .b32 %r<100>``: members get a row only when used."""
        self._families[prefix] = type_

    def lookup(self, name: str) -> Reg | Var | None:
        """The register or variable that ``name`` means here."""
        found = self._names.get(name)
        if found is not None:
            return found
        family = self._families.get(name.rstrip("0123456789"))
        if family is not None:
            self.declare_register(name, family)
            return self._names[name]
        return self.parent.lookup(name) if self.parent else None

    def _register(self, name: str, type_: PtxType) -> Reg:
        counts = self.function.register_counts
        index = counts.get(type_.bits, 0)
        counts[type_.bits] = index + 1
        return Reg(name, type_, index)

    def label(self, name: str) -> Label:
        """A reference to a label that may be defined later, here or further out."""
        if name in self._labels:
            return self._labels[name]
        wanted = Label(name)
        self._wanted.setdefault(name, []).append(wanted)
        return wanted

    def define_label(self, name: str, pc: int) -> Label:
        label = self._labels[name] = Label(name, pc)
        return label

    def close(self) -> list[str]:
        """Resolve what this block defines; returns the names nobody defined (outermost only)."""
        for name, references in self._wanted.items():
            own = self._labels.get(name)
            if own is not None:
                for reference in references:
                    reference.pc, reference.targets = own.pc, own.targets
            elif self.parent is not None:
                self.parent._adopt(name, references)
        if self.parent is not None:
            return []
        return [name for name in self._wanted if name not in self._labels]

    def _adopt(self, name: str, references: list[Label]) -> None:
        self._wanted.setdefault(name, []).extend(references)
