"""Turns an expression and its operand slots into the two functions the inner loop calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from gpukit.emulator.instructions import Mask, Rows

Full: TypeAlias = "Callable[[Rows], None]"
Masked: TypeAlias = "Callable[[Rows, Mask], None]"
_copyto = np.copyto


def _into_ufunc(fn: Callable[..., Any], args: list[int], d: int) -> Full:
    """``fn`` writes straight into the destination row."""
    if len(args) == 1:
        (a,) = args

        def unary(v: Rows) -> None:
            fn(v[a], out=v[d])

        return unary
    a, b = args

    def binary(v: Rows) -> None:
        fn(v[a], v[b], out=v[d])

    return binary


def caller(fn: Callable[..., Any], args: list[int]) -> Callable[[Rows], Any]:
    """``fn`` of the source rows, without the overhead of unpacking for common arities."""
    if len(args) == 1:
        (a,) = args
        return lambda v: fn(v[a])
    if len(args) == 2:
        a, b = args
        return lambda v: fn(v[a], v[b])
    if len(args) == 3:
        a, b, c = args
        return lambda v: fn(v[a], v[b], v[c])
    return lambda v: fn(*[v[i] for i in args])


def single(
    fn: Callable[..., Any], args: list[int], d: int, out: bool, pack: int
) -> tuple[Full, Masked]:
    """Closures for one destination. ``out``: the ufunc may write into the row itself."""
    value = caller(fn, args)

    def assign(v: Rows) -> None:
        v[d][...] = value(v)

    def masked(v: Rows, mask: Mask) -> None:
        _copyto(v[d], value(v), "unsafe", mask)

    def masked_packed(v: Rows, mask: Mask) -> None:
        _copyto(v[d], value(v), "unsafe", mask[:, None])

    full = _into_ufunc(fn, args, d) if out and len(args) <= 2 else assign
    return full, masked_packed if pack > 1 else masked


def several(fn: Callable[..., Any], args: list[int], dests: list[int]) -> tuple[Full, Masked]:
    """Closures for a tuple of destinations."""
    value = caller(fn, args)

    def full(v: Rows) -> None:
        for d, result in zip(dests, value(v), strict=True):
            v[d][...] = result

    def masked(v: Rows, mask: Mask) -> None:
        for d, result in zip(dests, value(v), strict=True):
            _copyto(v[d], result, "unsafe", mask)

    return full, masked


def predicated(masked: Masked, p: int, negated: bool) -> tuple[Full, Masked]:
    """Guard by a predicate row. ``~`` also makes the copy that keeps rows and masks apart."""
    if negated:
        return lambda v: masked(v, ~v[p]), lambda v, mask: masked(v, mask & ~v[p])
    return lambda v: masked(v, v[p].copy()), lambda v, mask: masked(v, mask & v[p])
