"""What callers give, checked: one line with the argument, what was given and what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, TypeVar

import numpy as np

from gpukit.emulator.errors import LaunchError

T = TypeVar("T")
Dim3 = tuple[int, int, int]


def shown(value: Any) -> str:
    """A value in a message: its ``repr`` on one line, shortened; its type if that says more."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a foreign type, or a number of too many digits
        text = "<"
    if text.startswith("<"):
        named = isinstance(value, type)
        return f"class {value.__name__}" if named else f"an object of type {type(value).__name__}"
    return shortened(text)


def shortened(text: str, longest: int = 60) -> str:
    """A text, or its beginning."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def refusal(what: str, given: Any, accepted: str) -> LaunchError:
    """The error for a value of a wrong kind or outside of its range."""
    return LaunchError(f"{what}: {shown(given)} was given; accepted: {accepted}")


def one_line(text: str) -> str:
    """A message of somebody else's on one line."""
    return " ".join(text.split())


def integer(what: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer (Python's or NumPy's) from ``least`` to ``most``."""
    number = as_integer(value)
    if number is None or number < least or (most is not None and number > most):
        end = "" if most is None else f" to {most}"
        raise refusal(what, value, f"an integer from {least}{end}")
    return number


def as_integer(value: Any) -> int | None:
    """The value of an integer, None for everything else; True and False are no numbers here."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def flag(what: str, value: Any) -> bool:
    """True or False and nothing that merely counts as such."""
    if not isinstance(value, bool | np.bool_):
        raise refusal(what, value, "True or False")
    return bool(value)


def instance(what: str, value: Any, type_: type[T], accepted: str) -> T:
    """A value of this type."""
    if not isinstance(value, type_):
        raise refusal(what, value, accepted)
    return value


def items(what: str, values: Any, types: Any, accepted: str) -> tuple[Any, ...]:
    """A list or tuple whose every item is of one of these types."""
    if isinstance(values, str | bytes | bytearray | memoryview) or not isinstance(values, Sequence):
        raise refusal(what, values, f"a list or tuple of {accepted}")
    for number, value in enumerate(values):
        if not isinstance(value, types):
            raise refusal(f"{what}[{number}]", value, accepted)
    return tuple(values)


def dim3(what: str, value: Any) -> Dim3:
    """``4``, ``(4,)``, ``(4, 2)`` or ``(4, 2, 1)`` as three numbers."""
    listed = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    values = [as_integer(v) for v in (value if listed else (value,))]
    if not 1 <= len(values) <= 3 or any(v is None or v < 1 for v in values):
        raise LaunchError(f"{what}: {shown(value)} must be one to three positive integers")
    x, y, z = (*(int(v) for v in values if v is not None), 1, 1)[:3]
    return x, y, z
