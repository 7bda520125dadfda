"""Parsers for what a user writes after an axis option.

Every parser takes the text of one option and returns the values it stands for, in the order
written and without repeats. All of them accept comma lists; numbers accept ranges too:

    4096            one value                 4K, 4Ki   4096      4k   4000
    0:64:16         0, 16, 32, 48, 64         64MiB     67108864  1.5GB  1500000000
    1024:8192:x2    1024, 2048, 4096, 8192    all       every choice

A range includes its end when a step lands on it. ``64M`` is refused: it could mean
64MiB or 64MB.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Units = Mapping[str, int]

T = TypeVar("T")

#: More values than this from one range or shape is a typing error, not a sweep.
MAX_RANGE = 10_000

_BINARY = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_COUNT_UNITS = {**_BINARY, "K": 2**10, "k": 10**3}
_BYTE_UNITS = {**_BINARY, **{f"{name}B": unit for name, unit in _BINARY.items()}}
_BYTE_UNITS |= {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)([A-Za-z]*)")
_DIMENSION = re.compile(r"(?<!:)x")  # the x of 64x64, not that of 1:8:x2

_INTEGER_HELP = "an integer (4096, 4K, 1Mi) or a range (0:64:16, 1024:8192:x2)"
_SIZE_HELP = (
    "a size in bytes (4096, 64MiB = 64 x 2^20, 64MB = 64 x 10^6) or a range (1MiB:1GiB:x4)"
)


@dataclass(frozen=True)
class Integers:
    """Integers from ``minimum`` to ``maximum``, or only the ``allowed`` ones."""

    minimum: int = 0
    allowed: tuple[int, ...] = ()
    maximum: int | None = None

    def __call__(self, text: str) -> tuple[int, ...]:
        return _each(text, self._one)

    def _one(self, item: str) -> Iterator[int]:
        if item == "all" and self.allowed:
            yield from self.allowed
            return
        for value in _numbers(item, self._accepted(), units=_COUNT_UNITS):
            if not self._accepts(value):
                raise ArgumentError(f"{item!r} is not {self._accepted()}")
            yield value

    def _accepts(self, value: int) -> bool:
        if self.allowed:
            return value in self.allowed
        return self.minimum <= value and (self.maximum is None or value <= self.maximum)

    def _accepted(self) -> str:
        if self.allowed:
            return "one of " + ", ".join(map(str, self.allowed)) + ", all"
        most = "" if self.maximum is None else f" and at most {self.maximum}"
        return f"{_INTEGER_HELP} of at least {self.minimum}{most}"


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes: ``MiB`` and ``Mi`` are powers of two, ``MB`` powers of ten."""

    minimum: int = 0

    def __call__(self, text: str) -> tuple[int, ...]:
        return _each(text, self._one)

    def _one(self, item: str) -> Iterator[int]:
        for value in _numbers(item, _SIZE_HELP, units=_BYTE_UNITS):
            if value < self.minimum:
                raise ArgumentError(f"{item!r} is below {self.minimum} bytes")
            yield value


@dataclass(frozen=True)
class Shapes:
    """Shapes such as ``4096x4096x64``, one integer or range for each of ``dimensions``.

    Values are tuples of integers. A single number stands for all dimensions.
    """

    dimensions: tuple[str, ...]
    minimum: int = 0

    def __call__(self, text: str) -> tuple[tuple[int, ...], ...]:
        return _each(text, self._one)

    def _one(self, item: str) -> Iterator[tuple[int, ...]]:
        parts = _DIMENSION.split(item)
        if len(parts) not in (1, len(self.dimensions)):
            raise ArgumentError(f"{item!r} is not {self._accepted()}")
        columns = [self._dimension(part, item) for part in parts]
        if len(columns) == 1:
            yield from ((value,) * len(self.dimensions) for value in columns[0])
        else:
            self._check_count(columns, item)
            yield from itertools.product(*columns)

    def _check_count(self, columns: list[tuple[int, ...]], item: str) -> None:
        count = math.prod(map(len, columns))
        if count > MAX_RANGE:
            raise ArgumentError(f"{item!r} is {count} shapes; at most {MAX_RANGE} are accepted")

    def _dimension(self, part: str, item: str) -> tuple[int, ...]:
        values = tuple(_numbers(part, self._accepted(), units=_COUNT_UNITS, quoted=item))
        if min(values) < self.minimum:
            raise ArgumentError(f"{item!r} has a dimension below {self.minimum}")
        return values

    def _accepted(self) -> str:
        shape = "x".join(self.dimensions)
        return f"a shape {shape} ({'x'.join(['4096'] * len(self.dimensions))}) or one integer"


@dataclass(frozen=True)
class Choices:
    """Some of the ``known`` words, or ``all`` of them."""

    known: tuple[str, ...]

    def __call__(self, text: str) -> tuple[str, ...]:
        return _each(text, self._one)

    def _one(self, item: str) -> tuple[str, ...]:
        if item == "all":
            return self.known
        name = self._canonical(item)
        if name not in self.known:
            raise ArgumentError(f"{item!r} is not one of {', '.join(self.known)}, all")
        return (name,)

    def _canonical(self, item: str) -> str:
        return item


@dataclass(frozen=True)
class DTypes(Choices):
    """Element types by gpukit's names (``bf16``) or NumPy's (``bfloat16``)."""

    def _canonical(self, item: str) -> str:
        from gpukit.dtypes import parse

        try:
            return parse(item).name
        except ArgumentError:
            return item


def _each(text: str, parse: Callable[[str], Iterable[T]]) -> tuple[T, ...]:
    """Parse every item of a comma list and drop repeats."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise ArgumentError(f"{text!r} has an empty item; write a,b,c")
    return tuple(dict.fromkeys(itertools.chain.from_iterable(map(parse, items))))


def _numbers(item: str, accepted: str, *, units: Units, quoted: str = "") -> Iterator[int]:
    """Yield the integers of one item: a number, ``a:b``, ``a:b:step`` or ``a:b:xfactor``."""
    try:
        parts = item.split(":")
        if len(parts) == 1:
            values: Iterator[int] = iter([_number(item, units)])
        else:
            values = _range(*parts, units=units)
        yield from _limited(values)
    except ValueError as problem:
        detail = f" ({problem})" if str(problem) else ""
        raise ArgumentError(f"{(quoted or item)!r} is not {accepted}{detail}") from None


def _limited(values: Iterator[int]) -> Iterator[int]:
    for count, value in enumerate(values):
        if count == MAX_RANGE:
            raise ValueError(f"more than {MAX_RANGE} values")
        yield value


def _range(first: str, last: str, step: str = "1", *rest: str, units: Units) -> Iterator[int]:
    if rest:
        raise ValueError("a range has at most two colons")
    value, end = _number(first, units), _number(last, units)
    if value > end:
        raise ValueError(f"{first} is above {last}")
    geometric = step.startswith("x")
    factor = _number(step.removeprefix("x"), {"": 1} if geometric else units)
    if factor < 1 or (geometric and (factor < 2 or value < 1)):
        raise ValueError(f"step {step} never reaches {last}")
    while value <= end:
        yield value
        value = value * factor if geometric else value + factor


def _number(text: str, units: Units) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError
    value = Fraction(match[1]) * units[match[2]]
    if value.denominator != 1:
        raise ValueError
    return int(value)
