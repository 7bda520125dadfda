"""Masks by name, and the interval of keys that each lets a query see.

Query i of Sq stands at position p = i + Sk - Sq among Sk keys, or at p = i with `top_left`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpukit.errors import ArgumentError

NAMES = ("null", "causal", "chunked_causal", "sliding_causal", "sliding")
FAR = 1 << 30  # a distance that nothing reaches


class Mask(NamedTuple):
    """A mask as kernels take it: keys j with p - left <= j <= p + right, in p's chunk.

    Attributes:
        policy: what the kernel must be able to hide: "full", "causal" or "window".
        chunk: 0, or keys of a chunk.
    """

    policy: str
    left: int
    right: int
    chunk: int
    top_left: bool


def named(function: str, name: object, window: object, chunk: object, top_left: object) -> Mask:
    """The mask called `name`.

    Raises:
        ArgumentError: an unknown name, or a window or chunk that does not go with it.
    """
    if not isinstance(name, str) or name not in NAMES:
        raise ArgumentError(f"{function}: mask={name!r:.40} is unknown; accepted: "
                            f"{', '.join(NAMES)}")
    if not isinstance(top_left, bool):
        raise ArgumentError(f"{function}: top_left={top_left!r} is not accepted; True or False")
    width = _size(function, "window", window, str(name), ("sliding_causal", "sliding"))
    length = _size(function, "chunk", chunk, str(name), ("chunked_causal",))
    if name == "null":
        return Mask("full", FAR, FAR, 0, top_left)
    if name == "causal":
        return Mask("causal", FAR, 0, 0, top_left)
    if name == "chunked_causal":
        return Mask("window", FAR, 0, length, top_left)
    return Mask("window", width - 1, 0 if name == "sliding_causal" else width - 1, 0, top_left)


def _size(function: str, argument: str, value: object, mask: str, users: tuple[str, ...]) -> int:
    """A window or chunk, given exactly if the mask has one."""
    if mask not in users:
        if value is not None:
            raise ArgumentError(f"{function}: {argument}={value!r} is for mask="
                                f"{' or '.join(map(repr, users))}; mask is {mask!r}")
        return 0
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= int(value) <= FAR:  # type: ignore[call-overload]
        raise ArgumentError(f"{function}: {argument}={value!r} is not accepted; with mask="
                            f"{mask!r} a number of keys from 1 to 2^30")
    return int(value)  # type: ignore[call-overload,no-any-return]
