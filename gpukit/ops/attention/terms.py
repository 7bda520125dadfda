"""What is done to scores, checked against the shape of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops import arrays
from gpukit.ops.attention import arguments
from gpukit.ops.attention.masks import Mask
from gpukit.ops.attention.problem import Terms


class Sizes(NamedTuple):
    """Of a call; keys is None where only the device knows how many there are."""

    batch: int
    queries: int
    keys: int | None
    heads: int


def check(function: str, q: Any, sizes: Sizes, device: Device, mask: Mask, *, scale: Any,
          softcap: Any, alibi: Any, bias: Any, relative: Any, sinks: Any,
          dtype: Any = None) -> Terms:
    """Terms for q, [batch, queries, heads, columns].

    Args:
        dtype: of bias and relative, if that is not q's.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
    """
    if relative is not None:
        _check_relative(function, mask, sinks)
    wanted = q.dtype if dtype is None else dtype
    return Terms(
        arguments.scale(function, scale, q.shape[3]), arguments.softcap(function, softcap),
        _slopes(function, alibi, sizes, device), _bias(function, bias, wanted, sizes, device),
        _relative(function, relative, q, wanted, device),
        arguments.floats(function, "sinks", sinks, (sizes.heads,), device))


def _check_relative(function: str, mask: Mask, sinks: Any) -> None:
    if sinks is not None:
        raise ArgumentError(f"{function}: relative and sinks exclude each other")
    if mask.policy == "full" or mask.right or mask.chunk:
        raise ArgumentError(f"{function}: relative is for mask='causal' and 'sliding_causal'")


def _slopes(function: str, slopes: Any, sizes: Sizes, device: Device) -> Any:
    if slopes is not None and getattr(slopes, "ndim", 0) == 2:
        return arguments.floats(function, "alibi", slopes, (sizes.batch, sizes.heads), device)
    return arguments.floats(function, "alibi", slopes, (sizes.heads,), device)


def _bias(function: str, bias: Any, dtype: Any, sizes: Sizes, device: Device) -> Any:
    """As [batch or 1, heads or 1, queries, keys]."""
    if bias is None:
        return None
    bias = _like(function, "bias", bias, dtype, device)
    if bias.ndim == 3:
        bias = bias[:, None]
    wanted = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    fits = bias.ndim == 4 and all(
        have == want or (axis < 2 and have == 1)
        for axis, (have, want) in enumerate(zip(bias.shape, wanted, strict=True)))
    if not fits:
        batch, heads, queries, keys = wanted
        raise ArgumentError(f"{function}: bias has shape {bias.shape}; accepted: ({batch}, "
                            f"{queries}, {keys}) or ({batch} or 1, {heads} or 1, {queries}, "
                            f"{keys})")
    return bias


def _relative(function: str, relative: Any, q: Any, dtype: Any, device: Device) -> Any:
    """As [batch, queries, heads, extent] with the extent's elements side by side."""
    if relative is None:
        return None
    relative = _like(function, "relative", relative, dtype, device)
    if relative.ndim == 3 and q.shape[0] == 1:
        relative = relative[None]
    if relative.ndim != 4 or relative.shape[:3] != q.shape[:3]:
        raise ArgumentError(f"{function}: relative has shape {relative.shape}; accepted: q's with "
                            "an extent in place of the columns")
    if relative.size and relative.shape[3] > 1 and relative.strides[3] != relative.dtype.itemsize:
        raise ArgumentError(f"{function}: relative has strides {relative.strides} bytes; accepted: "
                            "elements of the last dimension next to each other")
    return relative


def _like(function: str, name: str, array: Any, dtype: Any, device: Device) -> Any:
    where, array = devices.adopt(name, array, function)
    arrays.check_device(function, name, where, device)
    if array.dtype != dtype:
        raise ArgumentError(f"{function}: {name} has dtype {array.dtype}; accepted: {dtype}")
    arrays.check_elements(function, name, array, device)
    return array
