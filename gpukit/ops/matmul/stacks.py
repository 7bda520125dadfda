"""Leading dimensions: many matrices as one launch where their places allow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from gpukit.ops.matmul.arguments import MAX_SIZE, Call


def flat(call: Call) -> Call | None:
    """The call with one leading dimension, none of its arrays copied; None if there is no such.

    A b of two dimensions makes one large product of all rows of a: factors per row stay as they
    are. Otherwise matrices must be evenly spaced, a and b both stacked, and factors the same for
    all of them.
    """
    if call.out.ndim == 2:
        return _reshaped(call, (1,), call.out.shape[0])
    count, m = prod(call.out.shape[:-2]), call.out.shape[-2]
    stacked = [call.a, call.out] + ([] if call.residual is None else [call.residual])
    if call.b.ndim == 2 and count * m <= MAX_SIZE and all(_even(x, 1) for x in stacked):
        return _reshaped(call, (1,), count * m)
    per_matrix = any(s is not None and s.size > 1 for s in (call.scale_a, call.scale_b))
    if call.a.ndim == 2 or call.b.ndim == 2 or (per_matrix and count > 1) \
            or not all(_even(x, 2) for x in (*stacked, call.b)):
        return None
    return _reshaped(call, (count,), m)


def parts(call: Call) -> Iterator[Call]:
    """The calls for each index of the first leading dimension."""
    for i in range(call.out.shape[0]):
        scales = {name: _part(getattr(call, name), i, lead.ndim > 2) for name, lead in
                  (("scale_a", call.a), ("scale_b", call.b))}
        yield replace(
            call, a=call.a[i] if call.a.ndim > 2 else call.a,
            b=call.b[i] if call.b.ndim > 2 else call.b, out=call.out[i],
            residual=None if call.residual is None else call.residual[i], **scales)


def _part(scale: Any, i: int, stacked: bool) -> Any:
    return scale[i] if scale is not None and scale.size > 1 and stacked else scale


def _reshaped(call: Call, lead: tuple[int], m: int) -> Call:
    n, k = call.out.shape[-1], call.a.shape[-1]
    residual = call.residual
    return replace(
        call, a=call.a.reshape(*lead, m, k), b=call.b.reshape(*lead, k, n),
        out=call.out.reshape(*lead, m, n),
        residual=None if residual is None else residual.reshape(*lead, m, n))


def _even(array: Any, inner: int) -> bool:
    """Whether all but the last `inner` dimensions can be one without a copy."""
    dims = [(size, stride) for size, stride in
            zip(array.shape[:-inner], array.strides[:-inner], strict=True) if size > 1]
    return all(outer == size * stride for (_, outer), (size, stride) in pairwise(dims))
