"""Greedy decoding: the index of each row's maximum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpukit import kernels
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import rows, warm
from gpukit.ops.sampling.rows import Rows


def argmax(logits: Any, *, out: Any = None, tunables: Mapping[str, Value] | None = None) -> Any:
    """The most probable token of each row, the lowest index among equals.

    A NaN counts as -infinity; a row of nothing else gives 0. Runs on the current stream, never
    synchronises, and can be captured in a CUDA graph when `out` is given.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        out: int64 [B].
        tunables: overrides of `gpukit.kernels.sampling.ARGMAX`'s.

    Returns:
        int64 [B].
    """
    done = None if tunables else warm.call("argmax", (logits, out), 1, ())
    if done is not None:
        return done
    given, asked = rows.adopt("argmax", "logits", logits), out
    out = rows.output("argmax", "out", out, (given.count,), "int64", given.device)
    if given.count:
        chosen = {**choose(given), **(tunables or {})}
        kernel = given.device.compile(kernels.get("sampling.argmax"), chosen)
        launch = (given.count * int(chosen["cluster"]),), (int(chosen["threads"]),)
        kernel.launch(*launch, (given.array, out, given.pitch, given.width))
        if not tunables and not given.device.emulated:
            warm.keep("argmax", (logits, asked), (), out, kernel.bind(*launch),
                      (given.pitch, given.width))
    return out


def choose(given: Rows) -> dict[str, Value]:
    """Two CTAs of 256 threads per SM; or, where a cluster of the largest size per row leaves most
    SMs idle, CTAs large enough for one or two batches of loads."""
    sms = given.device.properties.sm_count
    cluster = next((c for c in (1, 2, 4) if c * given.count >= 1.8 * sms), 8)
    share = given.width // cluster // given.vec
    few = 8 * given.count < 1.8 * sms
    threads = next((t for t in (128, 256, 512) if t * 8 >= share), 512) if few else 256
    return {"dtype": given.dtype.name, "vec": given.vec, "threads": threads, "cluster": cluster,
            "unroll": 8 if few and threads * 4 < share else 4}
