"""Token sampling: from logits [B, V] to tokens [B], without sorting."""

from __future__ import annotations

from gpukit.ops.sampling.argmax import argmax
from gpukit.ops.sampling.beam import beam_step
from gpukit.ops.sampling.edit import apply_bitmask, apply_penalties, scatter, update_counts
from gpukit.ops.sampling.explain import explain, resident
from gpukit.ops.sampling.gumbel import gumbel_argmax
from gpukit.ops.sampling.inputs import Penalties
from gpukit.ops.sampling.sample import sample
from gpukit.ops.sampling.softmax import softmax
from gpukit.ops.sampling.top_k import top_k
from gpukit.ops.sampling.uniform import uniform
from gpukit.ops.sampling.verify import verify_drafts

__all__ = ["Penalties", "apply_bitmask", "apply_penalties", "argmax", "beam_step", "explain",
           "gumbel_argmax", "resident", "sample", "scatter", "softmax", "top_k", "uniform",
           "update_counts", "verify_drafts"]
