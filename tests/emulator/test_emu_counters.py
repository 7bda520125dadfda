"""Counters on kernels whose right values are known on paper."""

from __future__ import annotations

import numpy as np
import pytest

from gpukit import emulator
from gpukit.emulator.policies import POLICIES

STRIDED = """extern "C" __global__ void k(float* y, int stride) {
  extern __shared__ float s[];
  for (int i = threadIdx.x; i < 1024; i += 32) s[i] = i;
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x * stride % 1024];
}"""


@pytest.mark.parametrize(
    ("stride", "ways"), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (33, 1), (0, 1)]
)
def test_bank_conflicts_of_a_strided_read(stride, ways):
    y = np.zeros(32, "f4")
    counters = emulator.run(STRIDED, 1, 32, [y, np.int32(stride)], shared_bytes=4096).counters
    assert counters.shared_loads.requests == 1
    assert counters.shared_loads.wavefronts == ways
    assert counters.shared_loads.ideal == 1
    assert counters.shared_loads.conflicts == ways - 1
    assert counters.shared_stores.requests == 32
    assert counters.shared_stores.conflicts == 0


WIDE = """extern "C" __global__ void k({type}* y, int step) {{
  __shared__ {type} s[256];
  for (int i = threadIdx.x; i < 256; i += 32) s[i] = y[i];
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x * step % 256];
}}"""


@pytest.mark.parametrize(
    ("type_", "bytes_", "step", "wavefronts", "ideal"),
    [
        ("float2", 8, 1, 2, 2),  # two half warps
        ("float2", 8, 2, 4, 2),  # each half meets 16 of 32 banks twice
        ("float4", 16, 1, 4, 4),  # quarter warps
        ("float4", 16, 2, 8, 4),
        ("float4", 16, 8, 32, 4),  # all lanes of a quarter on the same four banks
        ("float4", 16, 0, 4, 4),  # a broadcast per quarter
        ("short", 2, 1, 1, 1),  # two lanes share a word
        ("char", 1, 128, 2, 1),  # offsets 0 and 128: one bank, two words
    ],
)
def test_wide_shared_accesses(type_, bytes_, step, wavefronts, ideal):
    y = np.zeros(256 * bytes_, "u1")
    traffic = emulator.run(
        WIDE.format(type=type_), 1, 32, [y, np.int32(step)]
    ).counters.shared_loads
    assert (traffic.requests, traffic.wavefronts, traffic.ideal) == (1, wavefronts, ideal)
    assert traffic.bytes == 32 * bytes_


GLOBAL = """extern "C" __global__ void k(const {type}* x, {type}* y, int stride, int shift) {{
  y[threadIdx.x] = x[threadIdx.x * stride + shift]; }}"""


@pytest.mark.parametrize(
    ("type_", "stride", "shift", "sectors", "lines"),
    [
        ("float", 1, 0, 4, 1),  # 128 bytes in a row
        ("float", 1, 1, 5, 2),  # ... that straddle a line
        ("float", 2, 0, 8, 2),
        ("float", 8, 0, 32, 8),  # a sector a lane
        ("float", 32, 0, 32, 32),
        ("float", 0, 3, 1, 1),
        ("float4", 1, 0, 16, 4),
        ("double", 1, 0, 8, 2),
        ("char", 1, 0, 1, 1),
    ],
)
def test_sectors_and_lines_per_request(type_, stride, shift, sectors, lines):
    x, y = np.zeros(8 * (32 * 32 * 4 + 64), "u1"), np.zeros(8 * 32 * 4, "u1")
    counters = emulator.run(
        GLOBAL.format(type=type_), 1, 32, [x, y, np.int32(stride), np.int32(shift)]
    ).counters
    loads = counters.global_loads
    assert (loads.requests, loads.sectors, loads.lines) == (1, sectors, lines)
    assert loads.sectors_per_request == sectors
    assert counters.global_stores.requests == 1


SUM = """extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float s[32];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) { for (int w = 1; w < blockDim.x / 32; w++) v += s[w]; atomicAdd(y, v); }
}"""


def test_counters_do_not_depend_on_the_schedule():
    x = np.arange(5000, dtype="f4") % 7
    seen = []
    for policy in POLICIES:
        for seed in (0, 1):
            y = np.zeros(1, "f4")
            result = emulator.run(SUM, 6, 128, [x, y, np.int32(5000)], policy=policy, seed=seed)
            assert y[0] == x.sum()
            seen.append(result.counters)
    assert all(counters == seen[0] for counters in seen)
    assert seen[0].global_loads.bytes == 4 * 5000
    assert seen[0].global_atomics.requests == 6
    assert seen[0].instructions["shuffle"] == 6 * 4 * 5
    assert sum(seen[0].lines.values()) == seen[0].warp_instructions
    assert seen[0].lines["kernel.cu:7"] == 6 * 4


def test_active_lanes():
    source = """extern "C" __global__ void k(int* y) { int i = threadIdx.x;
      if (i < 8) { int s = i; for (int j = 0; j < 100; j++) s = s * s + j; y[i] = s; } }"""
    result = emulator.run(source, 1, 32, [np.zeros(8, "i4")])
    assert 0.25 <= result.counters.active_lanes < 0.35


def test_masked_accesses_count_active_lanes_only():
    source = """extern "C" __global__ void k(const float* x, float* y) { int i = threadIdx.x;
      if (i % 8 == 0) y[i] = x[i]; }"""
    x, y = np.zeros(64, "f4"), np.zeros(64, "f4")
    loads = emulator.run(source, 1, 64, [x, y]).counters.global_loads
    assert (loads.requests, loads.sectors, loads.bytes) == (2, 8, 32)
