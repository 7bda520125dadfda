"""The k largest logits of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukit import kernels
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.sampling import LIST
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import rows
from gpukit.ops.sampling.choose import streamed
from gpukit.ops.sampling.rows import Rows

MOST = LIST // 2


def top_k(logits: Any, k: int, *, per_row: Any = None, log_sum: Any = None, values: Any = None,
          tokens: Any = None, tunables: Mapping[str, Value] | None = None) -> tuple[Any, Any]:
    """The k largest logits of each row in descending order, and their tokens.

    Of equal logits the lower tokens come first. A NaN counts as -infinity, +infinity as the largest
    float32. Where a row has fewer than k tokens above -infinity, or a smaller k of its own, the
    rest is -infinity and token -1.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        k: 1 to 1024; may exceed V.
        per_row: int32 [B], each row's k; what exceeds k is k.
        log_sum: float32 [B], written: the logarithm of the sum of the row's exponentials.
        values: float32 [B, k].
        tokens: int32 [B, k].
        tunables: overrides of `gpukit.kernels.sampling.TOP_K`'s.

    Returns:
        values, tokens.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: k above 1024.
    """
    given = rows.adopt("top_k", "logits", logits)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ArgumentError(f"top_k: k={k!r} is not accepted; an integer from 1 to {MOST}")
    k = int(k)
    if k > MOST:
        raise UnsupportedError(f"top_k: k={k} does not fit shared memory; at most {MOST}")
    b, device = given.count, given.device
    if per_row is not None:
        per_row = rows.vector("top_k", "per_row", per_row, (b,), "int32", device)
    if log_sum is not None:
        log_sum = rows.output("top_k", "log_sum", log_sum, (b,), "float32", device)
    values = rows.output("top_k", "values", values, (b, k), "float32", device)
    tokens = rows.output("top_k", "tokens", tokens, (b, k), "int32", device)
    if b:
        _launch(given, k, (values, tokens, log_sum, per_row), tunables or {})
    return values, tokens


def choose(given: Rows) -> dict[str, Value]:
    """As for sampling, but for the registers that the sort of the list takes."""
    chosen = streamed(given)
    return {**chosen, "blocks": min(3, int(chosen["blocks"]))}


def _launch(given: Rows, k: int, arrays: tuple[Any, ...], tunables: Mapping[str, Value]) -> None:
    chosen = {**choose(given), **tunables}
    kernel = given.device.compile(kernels.get("sampling.top_k"), chosen)
    kernel.launch((given.count * int(chosen["cluster"]),), (int(chosen["threads"]),),
                  (given.array, *arrays, given.pitch, given.width, k))
