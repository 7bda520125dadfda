"""Gumbel-max: a draw in one reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpukit import kernels
from gpukit.kernels.sampling import CLUSTERS
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import rows, warm
from gpukit.ops.sampling.rows import Rows

_SETTINGS = (("temperature", "float32"), ("seed", "uint64"), ("position", "int64"))


def gumbel_argmax(logits: Any, *, temperature: Any = 1.0, seed: Any = 0, position: Any = 0,
                  out: Any = None, tunables: Mapping[str, Value] | None = None) -> Any:
    """argmax of logits / temperature + Gumbel noise: in law a draw from softmax(logits / T).

    Token t's noise is -log(-log1p(-v)), v = (w + 0.5) / 2^32 of word w = t % 4 of the Philox block
    t // 4 of (seed, position): it depends on nothing else, so rows may be split over GPUs and the
    scores' maxima compared. For log-probabilities too; for probabilities p give log p.

    Temperatures up to 1e-5 take the first maximum, +infinity wins. A NaN counts as -infinity; a row
    of nothing else gives 0.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        temperature: a number, or float32 [B].
        seed: an integer, or uint64 [B].
        position: an integer, or int64 [B].
        out: int64 [B].
        tunables: overrides of `gpukit.kernels.sampling_draw.GUMBEL`'s.

    Returns:
        int64 [B].
    """
    pointers, words = warm.apart((temperature, seed, position))
    quick, new = (logits, *pointers, out), warm.keyed(words[1], words[2])
    if new is not None and not tunables:
        done = warm.call("gumbel", quick, 4, (words[0],), new)
        if done is not None:
            return done
    given = rows.adopt("gumbel_argmax", "logits", logits)
    pairs = [rows.per_row("gumbel_argmax", name, value, dtype, given) for (name, dtype), value in
             zip(_SETTINGS, (temperature, seed, position), strict=True)]
    out = rows.output("gumbel_argmax", "out", out, (given.count,), "int64", given.device)
    if given.count:
        chosen = {**choose(given), **(tunables or {})}
        kernel = given.device.compile(kernels.get("sampling.gumbel"), chosen)
        launch = (given.count * int(chosen["cluster"]),), (int(chosen["threads"]),)
        constants = (given.pitch, given.width, pairs[0][1])
        kernel.launch(*launch, (given.array, *(pointer for pointer, _ in pairs), out, *constants,
                                *(number for _, number in pairs[1:])))
        if not tunables and not given.device.emulated:
            warm.keep("gumbel", quick, (words[0],), out, kernel.bind(*launch), constants)
    return out


def choose(given: Rows) -> dict[str, Value]:
    """CTAs of 512 threads: the largest cluster with which there is one per SM, or one per row."""
    sms = given.device.properties.sm_count
    cluster = next((c for c in reversed(CLUSTERS) if c * given.count <= sms), 1)
    return {"dtype": given.dtype.name, "vec": given.vec, "cluster": cluster, "threads": 512}
