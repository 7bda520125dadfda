"""Literals and constant expressions of PTX (section 4.5 of the ISA)."""

from __future__ import annotations

import operator
from collections.abc import Callable

from gpukit.emulator.ptx.ir import Imm
from gpukit.emulator.ptx.lexer import Tokens


def _div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _shift(count: int) -> int:
    if not 0 <= count < 64:
        raise ValueError(f"shift by {count} bits")
    return count


_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "|": (3, operator.or_),
    "^": (4, operator.xor),
    "&": (5, operator.and_),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">": (7, lambda a, b: int(a > b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << _shift(b)),
    ">>": (8, operator.rshift),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, _div),
    "%": (10, lambda a, b: a - b * _div(a, b)),
}
_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": lambda a: int(not a),
}


def starts_constant(token: str) -> bool:
    """Whether a constant expression can begin with this token."""
    return token[:1].isdigit() or token in _UNARY or token == "("


def integer(token: str) -> int:
    """An integer literal; a leading zero means octal."""
    text = token.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text[1].isdigit():
        return int(text, 8)
    return int(text, 0)


def literal(token: str) -> Imm:
    """One number token."""
    head = token[:2].lower()
    if head in ("0f", "0d"):
        return Imm(int(token[2:], 16), 32 if head == "0f" else 64)
    if head != "0x" and ("." in token or "e" in token.lower()):
        return Imm(float(token))
    return Imm(integer(token))


def constant(tokens: Tokens) -> Imm:
    """A literal or an integer constant expression at the cursor."""
    negative = tokens.peek() == "-"
    ahead = tokens.items[tokens.at + 1] if negative else tokens.peek()
    if ahead[:1].isdigit():
        value, at = literal(ahead), tokens.at + 1 + negative
        alone = tokens.items[at] not in _BINARY  # nearly always
        if alone or value.float_bits or isinstance(value.value, float):
            tokens.at = at
            return _negated(value) if negative else value
    return Imm(_binary(tokens, 0))


def _negated(value: Imm) -> Imm:
    if value.float_bits:
        return Imm(int(value.value) ^ (1 << (value.float_bits - 1)), value.float_bits)
    return Imm(-value.value)


def _binary(tokens: Tokens, least: int) -> int:
    left = _unary(tokens)
    while (rule := _BINARY.get(tokens.peek())) and rule[0] > least:
        tokens.next()
        left = rule[1](left, _binary(tokens, rule[0]))
    return left


def _unary(tokens: Tokens) -> int:
    token = tokens.next()
    if token in _UNARY:
        return _UNARY[token](_unary(tokens))
    if token == "(":
        if tokens.peek() in (".s64", ".u64"):  # a cast
            tokens.at += 1
            tokens.expect(")")
            return _unary(tokens)
        value = _binary(tokens, 0)
        tokens.expect(")")
        return value
    if not token[:1].isdigit():
        tokens.at -= 1
        raise tokens.error(f"expected a constant, found {token!r}")
    return integer(token)
