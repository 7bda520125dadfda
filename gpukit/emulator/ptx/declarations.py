"""Declarations: variables with initialisers, parameters and registers."""

from __future__ import annotations

from gpukit.emulator.ptx.constants import constant, starts_constant
from gpukit.emulator.ptx.ir import Function, Module, Sym, Var
from gpukit.emulator.ptx.lexer import Tokens
from gpukit.emulator.ptx.scopes import Scope
from gpukit.emulator.ptx.types import TYPES, PtxType


class DeclarationParser:
    """Reads declarations at the cursor."""

    def __init__(self, tokens: Tokens, module: Module) -> None:
        self.tokens = tokens
        self.module = module

    def registers(self, scope: Scope) -> None:
        """``.reg .b32 %r<10>, a;``"""
        type_, _, _ = self._type()
        while not self.tokens.accept(";"):
            name = self.tokens.next()
            if self.tokens.accept("<"):
                constant_count = self.tokens.next()
                if not constant_count.isdigit():
                    raise self.tokens.error(f"expected a register count, found {constant_count!r}")
                self.tokens.expect(">")
                scope.declare_family(name, type_)
            else:
                scope.declare_register(name, type_)
            self.tokens.accept(",")

    def variables(self, space: str, extern: bool = False) -> list[Var]:
        """``.align 4 .b8 a[16] = {...}, b;`` after the state space."""
        type_, align, vector = self._type()
        found = [self._variable(space, type_, align, vector, extern)]
        while self.tokens.accept(","):
            found.append(self._variable(space, type_, align, vector, extern))
        self.tokens.expect(";")
        return found

    def parameters(self) -> list[Var]:
        """``(.param .u64 a, .reg .b32 b)`` of a function header."""
        self.tokens.expect("(")
        found: list[Var] = []
        while not self.tokens.accept(")"):
            space = self.tokens.next().removeprefix(".")
            if space not in ("param", "reg"):
                self.tokens.at -= 1
                raise self.tokens.error(f"expected .param or .reg, found {self.tokens.peek()!r}")
            type_, align, vector = self._type()
            found.append(self._variable(space, type_, align, vector, False))
            self.tokens.accept(",")
        return found

    def _type(self) -> tuple[PtxType, int, int]:
        align, vector, type_ = 0, 1, None
        while self.tokens.peek().startswith("."):
            word = self.tokens.next()[1:]
            if word == "align":
                align = int(constant(self.tokens).value)
            elif word in ("v2", "v4", "v8"):
                vector = int(word[1:])
            elif word == "attribute":
                self._skip_parentheses()
            elif word in TYPES:
                type_ = TYPES[word]
            elif word not in ("ptr", "global", "shared", "const", "local", "param"):
                self.tokens.at -= 1
                raise self.tokens.error(f"unknown type .{word}")
        if type_ is None:
            raise self.tokens.error("a declaration needs a type")
        return type_, align, vector

    def _skip_parentheses(self) -> None:
        self.tokens.expect("(")
        while not self.tokens.accept(")"):
            self.tokens.next()

    def _variable(self, space: str, type_: PtxType, align: int, vector: int, extern: bool) -> Var:
        start, line = self.tokens.at, self.tokens.line
        name = self.tokens.next()
        count = self._dimensions()
        init = self._initialiser() if self.tokens.accept("=") else ()
        if count == 0 and init:
            count = len(init)
        var = Var(name, space, type_, count, align or type_.bytes * vector, vector, init, extern)
        if any(isinstance(value, Sym) for value in init):
            var.line, var.text = line, self.tokens.since(start)
        return var

    def _dimensions(self) -> int | None:
        count = None
        while self.tokens.accept("["):
            size = 0 if self.tokens.peek() == "]" else int(constant(self.tokens).value)
            count = size if count is None else count * size
            self.tokens.expect("]")
        return count

    def _initialiser(self) -> tuple[int | float | Sym, ...]:
        if not self.tokens.accept("{"):
            return (self._initial_value(),)
        values: list[int | float | Sym] = []
        while not self.tokens.accept("}"):
            if self.tokens.peek() == "{":
                values.extend(self._initialiser())
            else:
                values.append(self._initial_value())
            self.tokens.accept(",")
        return tuple(values)

    def _initial_value(self) -> int | float | Sym:
        if starts_constant(self.tokens.peek()):
            return constant(self.tokens).value
        name = self.tokens.next()
        generic = name == "generic"
        if generic:
            self.tokens.expect("(")
            name = self.tokens.next()
        if self.tokens.peek() == "(":
            start = self.tokens.at - 1
            self._skip_parentheses()
            text = self.tokens.since(start)
            raise self.tokens.error(f"initialiser {text} is not supported")
        target: Var | Function | str | None = self.module.variables.get(name)
        target = target or self.module.functions.get(name) or name
        offset = int(constant(self.tokens).value) if self.tokens.accept("+") else 0
        if generic:
            self.tokens.expect(")")
            offset += int(constant(self.tokens).value) if self.tokens.accept("+") else 0
        return Sym(target, offset, generic)
