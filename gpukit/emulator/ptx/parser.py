"""PTX text to a ``Module``: a recursive-descent parser over the token list."""

from __future__ import annotations

import re
from pathlib import PurePath

from gpukit.emulator.ptx.constants import constant, integer
from gpukit.emulator.ptx.declarations import DeclarationParser
from gpukit.emulator.ptx.ir import Function, Instr, Label, Module, Reg, SourceLine
from gpukit.emulator.ptx.lexer import Tokens
from gpukit.emulator.ptx.operands import OperandParser
from gpukit.emulator.ptx.scopes import Scope

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_SPACES = ("shared", "local", "param", "global", "const")
_LINKAGE = (".visible", ".extern", ".weak", ".common")


def parse(text: str) -> Module:
    """Parse one PTX text. Raises ``PtxSyntaxError`` naming the line."""
    parser = _Parser(text)
    try:
        return parser.module_()
    except (ArithmeticError, ValueError, RecursionError) as why:  # of constant expressions, nesting
        raise parser.tokens.error(f"cannot be read: {why}") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self.module = Module()
        self.tokens = Tokens(text)
        self.operands = OperandParser(self.tokens, self.module)
        self.declarations = DeclarationParser(self.tokens, self.module)
        self.files = {int(n): PurePath(path).name for n, path in _FILE.findall(text)}
        self.places: dict[tuple[int, int, int], SourceLine] = {}
        self.source: SourceLine | None = None

    def module_(self) -> Module:
        while word := self.tokens.next():
            self._top_level(word)
        return self.module

    def _top_level(self, word: str) -> None:
        tokens = self.tokens
        if word == ".version":
            self.module.version = tokens.next()
        elif word == ".target":
            self.module.target = tokens.next()
            while tokens.accept(","):
                tokens.next()
        elif word in (".address_size", ".file"):
            self._skip_line()
        elif word == ".section":
            self._skip_block()
        elif word in (".entry", ".func"):
            self._function(word == ".entry")
        elif word in _LINKAGE:
            self._linked(word)
        elif word[1:] in _SPACES:
            self._module_variables(word[1:], extern=False)
        elif word == ".pragma":
            self._skip_statement()
        elif word != ";":
            tokens.at -= 1
            raise tokens.error(f"unexpected {word!r} outside a function")

    def _linked(self, linkage: str) -> None:
        word = self.tokens.next()
        if word in (".entry", ".func"):
            self._function(word == ".entry")
        else:
            self._module_variables(word[1:], extern=linkage == ".extern")

    def _module_variables(self, space: str, extern: bool) -> None:
        for var in self.declarations.variables(space, extern):
            self.module.variables[var.name] = var

    def _skip_line(self) -> None:
        line = self.tokens.line
        while self.tokens.peek() and self.tokens.line == line:
            self.tokens.next()

    def _skip_statement(self) -> None:
        while self.tokens.peek() and not self.tokens.accept(";"):
            self.tokens.next()

    def _skip_block(self) -> None:
        while self.tokens.peek() and not self.tokens.accept("}"):
            self.tokens.next()

    # Functions

    def _function(self, is_entry: bool) -> None:
        returns = self.declarations.parameters() if self.tokens.peek() == "(" else []
        name = self.tokens.next()
        params = self.declarations.parameters() if self.tokens.peek() == "(" else []
        function = self.module.functions.setdefault(name, Function(name, is_entry))
        function.params, function.returns = params, returns
        while self.tokens.peek() not in ("{", ";"):
            self._header_directive(function)
        if self.tokens.next() == "{":
            self._body(function)

    def _header_directive(self, function: Function) -> None:
        word = self.tokens.next()
        if word == "":
            raise self.tokens.error(f"function {function.name} has no body")
        values: list[int] = []
        while not self.tokens.peek().startswith(".") and self.tokens.peek() not in ("{", ";", ""):
            token = self.tokens.next()
            if token[0].isdigit():
                values.append(integer(token))
        if word == ".pragma":
            self.tokens.accept(";")
        function.directives[word[1:]] = tuple(values)

    def _body(self, function: Function) -> None:
        scope = Scope(function)
        for var in (*function.params, *function.returns):
            if var.space == "reg":
                scope.declare_register(var.name, var.type)
            else:
                scope.declare(var.name, var)
        function.defined = True
        self.source = None
        self._block(function, scope)

    def _block(self, function: Function, scope: Scope) -> None:
        while not self.tokens.accept("}"):
            if not self.tokens.peek():
                raise self.tokens.error(f"function {function.name} is not closed")
            if self.tokens.accept("{"):
                self._block(function, Scope(function, scope))
            else:
                self._statement(function, scope)
        undefined = scope.close()
        if undefined:
            raise self.tokens.error(f"{function.name}: unknown name {undefined[0]!r}")

    def _statement(self, function: Function, scope: Scope) -> None:
        token = self.tokens.peek()
        if token[0] == ".":
            self._directive(self.tokens.next(), function, scope)
        elif token == ";":
            self.tokens.next()
        elif self.tokens.items[self.tokens.at + 1] == ":":
            self.tokens.at += 2
            self._label(scope.define_label(token, len(function.body)), scope)
        else:
            function.body.append(self._instruction(scope))

    def _label(self, label: Label, scope: Scope) -> None:
        if self.tokens.accept(".branchtargets"):
            targets = []
            while not self.tokens.accept(";"):
                targets.append(scope.label(self.tokens.next()))
                self.tokens.accept(",")
            label.targets = tuple(targets)
        elif self.tokens.peek() in (".callprototype", ".calltargets"):
            self._skip_statement()

    def _directive(self, word: str, function: Function, scope: Scope) -> None:
        if word == ".loc":
            self._loc()
        elif word == ".reg":
            self.declarations.registers(scope)
        elif word[1:] in _SPACES:
            for var in self.declarations.variables(word[1:]):
                scope.declare(var.name, var)
                function.variables.append(var)
        elif word in (".extern", ".visible", ".weak"):
            self._directive(self.tokens.next(), function, scope)
        elif word in (".pragma", ".attribute"):
            self._skip_statement()
        else:
            self.tokens.at -= 1
            raise self.tokens.error(f"unknown directive {word}")

    def _loc(self) -> None:
        key = (self._number(), self._number(), self._number())
        place = SourceLine(self.files.get(key[0], f"file {key[0]}"), key[1])
        if self.tokens.accept(","):  # function_name NAME [+ offset], inlined_at FILE LINE COLUMN
            while self.tokens.next() != "inlined_at":
                pass
            outer = self.places.get((self._number(), self._number(), self._number()))
            place = SourceLine(place.file, place.line, outer)
        self.places[key] = place
        # Line 0 is compiler-generated code: the last real line says more.
        if key[1] or self.source is None:
            self.source = place

    def _number(self) -> int:
        return int(constant(self.tokens).value)

    def _guard(self, scope: Scope) -> tuple[Reg, bool]:
        """``p`` or ``!p`` after the at sign."""
        negated = self.tokens.accept("!")
        found = scope.lookup(self.tokens.next())
        if not isinstance(found, Reg):
            self.tokens.at -= 1
            raise self.tokens.error(f"{self.tokens.peek()!r} is not a predicate register")
        return found, negated

    def _instruction(self, scope: Scope) -> Instr:
        tokens, start, line = self.tokens, self.tokens.at, self.tokens.line
        pred, negated = self._guard(scope) if tokens.accept("@") else (None, False)
        opcode = tokens.next()
        if not opcode[0].isalpha():
            tokens.at -= 1
            raise tokens.error(f"expected an instruction, found {opcode!r}")
        while tokens.peek().startswith("."):
            opcode += tokens.next()
        operands = [] if tokens.peek() == ";" else [self.operands.operand(scope)]
        while tokens.accept(","):
            operands.append(self.operands.operand(scope))
        text = tokens.since(start)
        tokens.expect(";")
        name, *mods = opcode.split(".")
        return Instr(name, tuple(mods), tuple(operands), pred, negated, text, line, self.source)
