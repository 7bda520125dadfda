"""What is known of a row beside its logits: the packed bitmask, and what was generated so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit import devices
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops import arrays
from gpukit.ops.sampling import rows
from gpukit.ops.sampling.rows import Rows


@dataclass(frozen=True)
class Penalties:
    """What has been generated so far, and how much it is held against.

    Row r's tokens are `tokens[offsets[r]:offsets[r + 1]]`, each at most once; ids outside the
    vocabulary (padding of -1) are skipped. `counts` says how often each occurred in the output; 0
    marks a token of the prompt, to which the repetition penalty alone applies.

    Attributes:
        offsets: int32 [B + 1].
        tokens, counts: int32 [n].
        frequency, presence: subtracted from the logit, times the count and once; a number or
            float32 [B].
        repetition: divides a positive logit, multiplies a negative one, before the others.
    """

    offsets: Any
    tokens: Any
    counts: Any
    frequency: Any = 0.0
    presence: Any = 0.0
    repetition: Any = 1.0


def bitmask(function: str, given: Any, logits: Rows, count: int) -> tuple[Any, int]:
    """The mask's array and its words from row to row; (None, 0) without one."""
    if given is None:
        return None, 0
    device, mask = devices.adopt("bitmask", given, function)
    arrays.check_device(function, "bitmask", device, logits.device)
    words = -(-logits.width // 32)
    if mask.ndim != 2 or mask.shape[0] != count or mask.shape[1] < words or (
            mask.dtype.name not in ("int32", "uint32")):
        raise ArgumentError(f"{function}: bitmask is {mask.dtype}{list(mask.shape)}; accepted: "
                            f"int32 or uint32 [{count}, {words} or more]")
    if mask.strides[1] != 4 and mask.shape[1] > 1:
        raise ArgumentError(f"{function}: bitmask has strides {mask.strides} bytes; accepted: "
                            "consecutive words along the last dimension")
    return mask, mask.strides[0] // 4


def lists(function: str, given: Penalties, count: int, device: Device) -> list[Any]:
    """The CSR arrays of `count` rows."""
    if not isinstance(given, Penalties):
        raise ArgumentError(f"{function}: penalties must be sampling.Penalties, got "
                            f"{type(given).__name__}")
    _, tokens = devices.adopt("penalties.tokens", given.tokens, function)
    if tokens.ndim != 1:
        raise ArgumentError(f"{function}: penalties.tokens has shape {tokens.shape}; accepted: [n]")
    n = tokens.shape[0]
    return [rows.vector(function, f"penalties.{name}", getattr(given, name), (length,), "int32",
                        device)
            for name, length in (("offsets", count + 1), ("tokens", n), ("counts", n))]


def penalties(function: str, given: Penalties | None,
              logits: Rows) -> tuple[list[Any], list[Any], list[Any]]:
    """The CSR arrays, then the pointers and the numbers of the three strengths."""
    if given is None:
        return [None] * 3, [None] * 3, [0.0, 0.0, 1.0]
    found = lists(function, given, logits.count, logits.device)
    pairs = [rows.per_row(function, f"penalties.{name}", getattr(given, name), "float32", logits)
             for name in ("frequency", "presence", "repetition")]
    return (found, [pointer for pointer, _ in pairs], [number for _, number in pairs])
