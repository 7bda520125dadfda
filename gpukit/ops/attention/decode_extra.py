"""A term of the caller's own in the scores of a decode call: bias, or relative logits."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.attention import terms
from gpukit.ops.attention.masks import Mask
from gpukit.ops.attention.plan import Problem

_F = "attention_decode"


class Extra(NamedTuple):
    """A term as kernels take it.

    Attributes:
        kind: "none", "bias" or "relative".
        array: [sequences, tokens, heads, keys or distances] or None.
    """

    kind: str = "none"
    array: Any = None


def check(device: Device, problem: Problem, q: Any, single: bool, mask: Mask, bias: Any,
          relative: Any, sinks: Any) -> Extra:
    """The term for q, [sequences, tokens, heads, dim].

    Args:
        single: the caller's arrays have no axis of tokens.

    Raises:
        ArgumentError: its type, shape, dtype or device, or what it does not go with.
        UnsupportedError: both terms at once.
    """
    if bias is None and relative is None:
        return Extra()
    if bias is not None and relative is not None:
        raise UnsupportedError(f"{_F}: bias and relative together are not supported; add one to "
                               "the other")
    if single and getattr(relative, "ndim", 0) == 3:
        relative = relative[:, None]
    sizes = terms.Sizes(problem.sequences, problem.tokens, problem.keys, problem.heads)
    checked = terms.check(_F, q, sizes, device, mask, scale=None, softcap=None, alibi=None,
                          bias=bias, relative=relative, sinks=sinks,
                          dtype=dtypes.parse(problem.dtype).numpy)
    if relative is not None:
        return Extra("relative", checked.relative)
    return Extra("bias", _spread(device, checked.bias, sizes))


def _spread(device: Device, bias: Any, sizes: terms.Sizes) -> Any:
    """[batch or 1, heads or 1, queries, keys] as [batch, queries, heads, keys], without a copy."""
    if bias.size and bias.shape[3] > 1 and bias.strides[3] != bias.dtype.itemsize:
        raise ArgumentError(f"{_F}: bias has strides {bias.strides} bytes; accepted: elements of "
                            "the last dimension next to each other")
    shape = sizes.batch, sizes.heads, sizes.queries, sizes.keys
    return device.xp.broadcast_to(bias, shape).swapaxes(1, 2)
