"""Token sampling: from logits [B, V] to tokens [B], without sorting."""

from __future__ import annotations

from gpukit.ops.sampling.argmax import argmax
from gpukit.ops.sampling.explain import explain
from gpukit.ops.sampling.sample import Penalties, sample
from gpukit.ops.sampling.softmax import softmax
from gpukit.ops.sampling.uniform import uniform

__all__ = ["Penalties", "argmax", "explain", "sample", "softmax", "uniform"]
