"""Operand grammar: registers, constants, vectors, addresses and pairs."""

from __future__ import annotations

from gpukit.emulator.ptx.constants import constant, starts_constant
from gpukit.emulator.ptx.ir import (
    Addr,
    Function,
    Imm,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Sym,
    Vec,
)
from gpukit.emulator.ptx.lexer import Tokens
from gpukit.emulator.ptx.scopes import Scope


class OperandParser:
    """Reads operands at the cursor, resolving names against a scope and the module."""

    def __init__(self, tokens: Tokens, module: Module) -> None:
        self.tokens = tokens
        self.module = module

    def operand(self, scope: Scope) -> Operand:
        first = self._single(scope)
        if self.tokens.accept("|"):
            return Pair(first, self._single(scope))
        return first

    def _single(self, scope: Scope) -> Operand:
        token = self.tokens.peek()
        if token == "{":
            return self._list(scope, "{", "}")
        if token == "[":
            return self._address(scope)
        if token == "(" and not starts_constant(self.tokens.items[self.tokens.at + 1]):
            return self._list(scope, "(", ")")
        if token == "!":
            self.tokens.next()
            return Not(self._name(scope))
        if starts_constant(token):
            return constant(self.tokens)
        return self._name(scope)

    def _list(self, scope: Scope, opening: str, closing: str) -> Vec:
        self.tokens.expect(opening)
        items: list[Operand] = []
        if not self.tokens.accept(closing):
            items.append(self.operand(scope))
            while self.tokens.accept(","):
                items.append(self.operand(scope))
            self.tokens.expect(closing)
        return Vec(tuple(items))

    def _name(self, scope: Scope) -> Operand:
        name = self.tokens.next()
        if name == "_":
            return Sink()
        found = scope.lookup(name)
        if isinstance(found, Reg):
            return found
        target = found or self.module.variables.get(name) or self.module.functions.get(name)
        if target is not None:
            return Sym(target, self._offset())
        if name.startswith("%"):
            return Special(name[1:])
        if name == "WARP_SZ":
            return Imm(32)
        if not (name[:1].isalpha() or name[:1] in "$_"):
            self.tokens.at -= 1
            raise self.tokens.error(f"expected an operand, found {name!r}")
        return scope.label(name)

    def _offset(self) -> int:
        if self.tokens.peek() == "-":
            return int(constant(self.tokens).value)
        if self.tokens.accept("+"):
            return int(constant(self.tokens).value)
        return 0

    def _address(self, scope: Scope) -> Addr:
        self.tokens.expect("[")
        base = self._single(scope)
        offset = 0
        if isinstance(base, Reg | Special):
            offset = self._offset()
        elif isinstance(base, Sym) and not isinstance(base.target, Function):
            base, offset = Sym(base.target), base.offset
        coords = self.operand(scope) if self.tokens.accept(",") else None
        self.tokens.expect("]")
        return Addr(base, offset, coords)
