"""Softmax over rows, with a temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpukit import kernels
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import choose, rows


def softmax(logits: Any, temperature: Any = 1.0, *, out: Any = None,
            tunables: Mapping[str, Value] | None = None) -> Any:
    """exp((x - max) / temperature) of each row, divided by its sum.

    A temperature of 1e-5 or less (0 included) puts all probability on the first maximum, as does
    +infinity among the logits. A NaN counts as -infinity; a row of nothing else gives zeros. Runs
    on the current stream, never synchronises.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        temperature: a number, or float32 [B].
        out: [B, V], float32, float16 or bfloat16, any row stride.
        tunables: overrides of `gpukit.kernels.sampling.SOFTMAX`'s.

    Returns:
        [B, V], float32 unless `out` says otherwise.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: rows too long for a cluster's shared memory.
    """
    given = rows.adopt("softmax", "logits", logits)
    shape = (given.count, given.width)
    out = given.device.empty(shape, "float32") if out is None else out
    into = rows.adopt("softmax", "out", out, given.device)
    if (into.count, into.width) != shape:
        raise ArgumentError(f"softmax: out has shape {into.array.shape}; accepted: {shape}")
    pointer, number = rows.per_row("softmax", "temperature", temperature, "float32", given)
    if given.count:
        chosen = {**choose.staged("softmax", given), "out": into.dtype.name, "out_vec": into.vec,
                  **(tunables or {})}
        kernel = given.device.compile(kernels.get("sampling.softmax"), chosen)
        kernel.launch((given.count * int(chosen["cluster"]),), (int(chosen["threads"]),),
                      (given.array, pointer, into.array, given.pitch, into.pitch, given.width,
                       number))
    return into.array
