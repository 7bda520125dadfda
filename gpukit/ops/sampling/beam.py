"""A step of beam search."""

from __future__ import annotations

from typing import Any

from gpukit import devices, kernels
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops import arrays
from gpukit.ops.sampling import rows
from gpukit.ops.sampling.top_k import MOST, top_k

_THREADS, _SIZES = 256, (1024, 8192, 32768)


def beam_step(logits: Any, scores: Any, best: int) -> tuple[Any, Any, Any]:
    """The best continuations of every batch entry's beams, in descending order of score.

    A continuation's score is its beam's plus the token's log-probability (log-softmax of the beam's
    logits). Among equals the lower beam comes first, then the lower token. Give 2 beams as `best`,
    so that enough unfinished ones remain where beams end; before the first step all beams but one
    must score -infinity, as they are alike. Fewer continuations than `best` are padded with -1 and
    -infinity. Two launches.

    Args:
        logits: [B * beams, V], float32, float16 or bfloat16, any row stride.
        scores: float32 [B, beams], the beams' log-probabilities.
        best: how many continuations to return, 1 to 1024.

    Returns:
        beam int32 [B, best], token int32 [B, best], score float32 [B, best].

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: beams * best above 32768.
    """
    given = rows.adopt("beam_step", "logits", logits)
    device, held = devices.adopt("scores", scores, "beam_step")
    if held.ndim != 2 or held.shape[0] * held.shape[1] != given.count:
        raise ArgumentError(f"beam_step: scores has shape {held.shape}; accepted: [B, beams] with "
                            f"B * beams = {given.count}")
    b, beams = held.shape
    held = rows.vector("beam_step", "scores", held, (b, beams), "float32", given.device)
    best = arrays.check_integer("beam_step", "best", best, 1, MOST)
    size = next((size for size in _SIZES if size >= beams * best), 0)
    if not size:
        raise UnsupportedError(f"beam_step: {beams} beams of {best} do not fit shared memory; at "
                               f"most {_SIZES[-1]} in all")
    log_sum = device.empty((given.count,), "float32")
    values, tokens = top_k(given.array, best, log_sum=log_sum)
    found = [device.empty((b, best), dtype) for dtype in ("int32", "int32", "float32")]
    if b:
        kernel = device.compile(kernels.get("sampling.beam"), {"scores": size})
        kernel.launch((b,), (_THREADS,),
                      (values, tokens, log_sum, held, *found, beams, best, best))
    return found[0], found[1], found[2]
