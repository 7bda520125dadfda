"""Correctly rounded binary64 operations for which NumPy has no direct expression."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gpukit.emulator.alu.formats import to_odd, two_sum

_SPLIT = float(2**27 + 1)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b to nearest and its exact error (away from the ends of the exponent range)."""
    p = a * b
    ah, bh = a * _SPLIT, b * _SPLIT
    ah, bh = ah - (ah - a), bh - (bh - b)
    al, bl = a - ah, b - bh
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


def fma64(a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding (Boldo and Melquiond; exact arithmetic at the ends)."""
    p, e = two_product(a, b)
    uh, ul = two_sum(c, e)
    th, tl = two_sum(p, uh)
    result = th + to_odd(*two_sum(tl, ul))
    odd = ~(_moderate(a) & _moderate(b) & _moderate(c) & _moderate(p))
    if odd.any():
        a, b, c = np.broadcast_arrays(a, b, c)
        for i in np.argwhere(odd):
            at = tuple(i)
            result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]), "rn")
    return result


def _moderate(x: Any) -> Any:
    size = np.abs(x)
    return (size > 2.0**-450) & (size < 2.0**450)


def _exact_fma(a: float, b: float, c: float, mode: str) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        product_negative = math.copysign(1, a) * math.copysign(1, b) < 0
        return _zero(product_negative, math.copysign(1, c) < 0, mode)
    return round_fraction(exact, mode)


def _zero(first_negative: bool, second_negative: bool, mode: str) -> float:
    """The sign of an exact zero sum."""
    if first_negative == second_negative:
        return -0.0 if first_negative else 0.0
    return -0.0 if mode == "rm" else 0.0


def round_fraction(exact: Fraction, mode: str) -> float:
    """A non-zero rational number in binary64."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, -1022) - 52)
    units = size / unit
    down = units.numerator // units.denominator
    rest = units - down
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1),
        "rz": False,
        "rm": rest > 0 and exact < 0,
        "rp": rest > 0 and exact > 0,
    }[mode]
    value = (down + up) * unit
    if value >= Fraction(2) ** 1024:
        toward_zero = mode == "rz" or ((mode == "rm") == (exact > 0) and mode != "rn")
        result = float(np.finfo(np.float64).max) if toward_zero else math.inf
    else:
        result = float(value)
    return -result if exact < 0 else result


def directed64(kind: str, mode: str) -> Any:
    """add, sub, mul, div, fma, sqrt or rcp in binary64 with rounding rz, rm or rp."""

    def run(*args: Any) -> Any:
        result = _NEAREST[kind](*args)
        for at in np.ndindex(result.shape):
            result[at] = _directed(kind, mode, float(result[at]), *(float(a[at]) for a in args))
        return result

    return run


_NEAREST: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "fma": lambda a, b, c: a * b + c,
}


def _directed(kind: str, mode: str, nearest: float, *args: float) -> float:
    if not all(map(math.isfinite, args)) or math.isnan(nearest):
        return nearest
    if kind in ("add", "sub"):
        return _exact_fma(args[0], 1.0, args[1] if kind == "add" else -args[1], mode)
    if kind == "fma":
        return _exact_fma(args[0], args[1], args[2], mode)
    if kind == "sqrt":
        return _directed_sqrt(args[0], nearest, mode)
    numerator, denominator = (1.0, args[0]) if kind == "rcp" else args
    if kind != "mul" and denominator == 0:
        return nearest
    if kind == "mul":
        exact = Fraction(numerator) * Fraction(denominator)
    else:
        exact = Fraction(numerator) / Fraction(denominator)
    return round_fraction(exact, mode) if exact else nearest


def _directed_sqrt(a: float, nearest: float, mode: str) -> float:
    if a <= 0:
        return nearest
    over = Fraction(nearest) ** 2 - Fraction(a)
    if over > 0 and mode in ("rz", "rm"):
        return math.nextafter(nearest, 0.0)
    return math.nextafter(nearest, math.inf) if over < 0 and mode == "rp" else nearest
