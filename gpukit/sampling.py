"""Token sampling, `gpukit.sampling.sample` and its relatives; see `gpukit.ops.sampling`."""

from __future__ import annotations

from gpukit.ops.sampling import (
    Penalties,
    apply_bitmask,
    apply_penalties,
    argmax,
    beam_step,
    explain,
    gumbel_argmax,
    sample,
    scatter,
    softmax,
    top_k,
    uniform,
    update_counts,
    verify_drafts,
)

__all__ = ["Penalties", "apply_bitmask", "apply_penalties", "argmax", "beam_step", "explain",
           "gumbel_argmax", "sample", "scatter", "softmax", "top_k", "uniform", "update_counts",
           "verify_drafts"]
