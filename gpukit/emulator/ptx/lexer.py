"""Tokens of PTX text: a flat list of strings with their offsets."""

from __future__ import annotations

import re
from bisect import bisect_right

from gpukit.emulator.errors import PtxSyntaxError

# An opcode keeps its dotted modifiers (``cp.async.bulk.shared::cluster``) in one token.
_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*[\s\S]*?\*/)+
      | ( "(?:[^"\\]|\\.)*"
        | 0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16}
        | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
        | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | (?:0[0-7]*|[1-9]\d*)U?(?!\d)
        | [%$A-Za-z_][\w$]*(?:(?:\.|::)[\w$]+)*
        | \.[A-Za-z_][\w$]*(?:::[\w$]+)*
        | << | >> | == | != | <= | >= | && | \|\|
        | [-+*/%~!?:;,.(){}\[\]<>|&^=@] )
      | (.)""",
    re.VERBOSE,
)


class Tokens:
    """A cursor over the tokens of one PTX text. The end is the empty token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[str] = []
        self.starts: list[int] = []
        self._newlines = [m.start() for m in re.finditer("\n", text)]
        for match in _TOKEN.finditer(text):
            if match.lastindex == 1:
                self.items.append(match[1])
                self.starts.append(match.start())
            elif match.lastindex == 2:
                raise PtxSyntaxError(
                    f"PTX line {self._line_at(match.start())}: unexpected character {match[2]!r}"
                )
        self.items.append("")
        self.starts.append(len(text))
        self.at = 0

    def _line_at(self, offset: int) -> int:
        return bisect_right(self._newlines, offset - 1) + 1

    @property
    def line(self) -> int:
        """Line number of the token under the cursor, from 1."""
        return self._line_at(self.starts[min(self.at, len(self.starts) - 1)])

    def peek(self) -> str:
        if self.at >= len(self.items):
            self.at = len(self.items) - 1
            raise self.error("the text ends in the middle of a statement")
        return self.items[self.at]

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Step over ``token`` if it is next."""
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, found {self.peek()!r}")

    def since(self, start: int) -> str:
        """The source text from token number ``start`` up to the cursor, on one line."""
        return " ".join(self.text[self.starts[start] : self.starts[self.at]].split())

    def error(self, message: str) -> PtxSyntaxError:
        return PtxSyntaxError(f"PTX line {self.line}: {message}")
