"""Option types that several commands share."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

#: A path as given, checked by whoever opens it.
PATH = click.Path(path_type=Path)


#: Eleven days: more is a typing error, and near what the system can wait for.
MAX_SECONDS = 1_000_000


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A value that a parser of `gpukit.bench.axes` understands."""

    def __init__(self, parse: Callable[[str], tuple[Any, ...]], metavar: str) -> None:
        self.name = metavar
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return self._parse(value)
        except ArgumentError as problem:
            self.fail(str(problem), param, ctx)


class Share(click.ParamType):  # type: ignore[type-arg]
    """A share: ``5%`` or ``0.05``."""

    name = "PERCENT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", value)
        share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
        if match is None or (share >= 1 and not match[2]):
            self.fail(f"{value!r} is not a share; write 5% or 0.05", param, ctx)
        return share


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A positive number of seconds that clocks and waits can deal with."""

    name = "SECONDS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= MAX_SECONDS:
            self.fail(f"{value!r} is not a number above 0 and at most {MAX_SECONDS}", param, ctx)
        return seconds


class Extent(click.ParamType):  # type: ignore[type-arg]
    """One to three positive numbers: ``4``, ``4x2`` or ``4,2,1``."""

    name = "N[,N[,N]]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = re.split("[x,]", value)
        if len(parts) > 3 or not all(re.fullmatch("0*[1-9][0-9]{0,18}", part) for part in parts):
            self.fail(f"{value!r} is not one to three positive numbers; write 4 or 4x2", param, ctx)
        return tuple(map(int, parts))


class Pairs(click.ParamType):  # type: ignore[type-arg]
    """``NAME=VALUE``, or ``NAME`` alone where the metavar says so: the value is empty then."""

    def __init__(self, metavar: str) -> None:
        self.name = metavar

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not name or (not equals and "[" not in self.name):
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        return name, rest


def merged(values: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    """Return the values of a repeated option as one, each once."""
    return tuple(dict.fromkeys(item for value in values for item in value))
