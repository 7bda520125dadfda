"""Token sampling, `gpukit.sampling.sample` and its relatives; see `gpukit.ops.sampling`."""

from __future__ import annotations

from gpukit.ops.sampling import Penalties, argmax, sample, softmax, uniform

__all__ = ["Penalties", "argmax", "sample", "softmax", "uniform"]
