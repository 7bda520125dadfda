"""Random kernels give one answer, and one set of counters, under every schedule."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpukit import emulator

PRELUDE = """__device__ __noinline__ unsigned f(unsigned a, unsigned b) {
  for (unsigned k = 0; k < (a & 3); k++) b = b * 3 + a; return b ^ a; }
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned s[128]; int i = threadIdx.x, at = blockIdx.x * blockDim.x + i;
  unsigned v = y[at], w = i; s[i] = w; __syncthreads();
"""
PLAIN = ["v = v * 1664525 + 7;", "w ^= v >> 3;", "v += w * i;", "w = __popc(v) + w;",
         "v = __funnelshift_l(v, w, 5);", "if (v & 1) w++;", "s[i] = v;", "w += s[i];"]  # fmt: skip
TOGETHER = ["__syncthreads(); w += s[(i + 37) % blockDim.x]; __syncthreads();",
            "w += __shfl_xor_sync(~0u, v, 4);", "v += __ballot_sync(~0u, w & 1);"]  # fmt: skip


def statements(rng, depth):
    return "\n".join(statement(rng, depth) for _ in range(rng.randint(1, 4)))


def condition(rng):
    return rng.choice(["(v & 3) == 1", "i % 5 < 2", "v > w", "blockIdx.x & 1", "(v & 7) == 2"])


def statement(rng, depth):
    kind = rng.random()
    if kind < 0.35 or depth > 3:
        return rng.choice(PLAIN)
    if kind < 0.6:
        then, otherwise = statements(rng, depth + 1), statements(rng, depth + 1)
        return f"if ({condition(rng)}) {{ {then} }} else {{ {otherwise} }}"
    if kind < 0.75:
        n, most = f"j{depth}", rng.randint(2, 6)
        inner = statements(rng, depth + 1)
        return f"for (int {n} = 0; {n} < (int)(v % {most}u); {n}++) {{ {inner} }}"
    if kind < 0.82:
        return "{ int t = 0; while (((v >> t) & 3) != 2 && t < 12) { t++; w += t; } }"
    return rng.choice(TOGETHER) if depth == 0 else f"if ({condition(rng)}) w = f(v, w);"


@pytest.mark.parametrize("number", range(12))
def test_random_kernels(number):
    rng = random.Random(number)
    source = f"{PRELUDE}{statements(rng, 0)}\n{statements(rng, 0)}\ny[at] = v ^ w; }}"
    seen = []
    for policy, seed in (("random", 0), ("starved", 1), ("random", 5), ("late", 2)):
        y = np.random.default_rng(number).integers(0, 1 << 32, 3 * 96, np.uint32)
        counters = emulator.run(source, 3, 96, [y], policy=policy, seed=seed).counters
        seen.append((y.tolist(), counters))
    assert all(values == seen[0][0] for values, _ in seen)
    assert all(counters == seen[0][1] for _, counters in seen)
