"""Traces: who runs, waits and is in flight; a pipelined kernel overlaps, a serial one does not."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator import Trace
from gpukit.emulator.errors import DeadlockError, LaunchError
from gpukit.emulator.policies import POLICIES
from gpukit.emulator.trace import engine_of
from gpukit.emulator.trace_format import chrome_events

TILES = 8  # of 128 floats
PIPE = WRAPPERS + r"""
// Warp 0 loads, warp 1 adds up: STAGES tiles may be in flight (1: load, add, load, ...).
extern "C" __global__ void k(const float* x, float* y, int bytes) {
  __shared__ __align__(128) float tile[STAGES][128];
  __shared__ u64 full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) init(full + i, 1), init(empty + i, 32);
    fence_init(); }
  __syncthreads();
  if (threadIdx.x == 0) for (int i = 0; i < 8; i++) {
    int s = i % STAGES;
    wait(empty + s, i / STAGES & 1 ^ 1); expect(full + s, bytes);
    bulk_load(tile[s], x + i * 128, 512, full + s); }
  if (threadIdx.x >= 32) {
    float sum = 0;
    for (int i = 0; i < 8; i++) {
      int s = i % STAGES;
      wait(full + s, i / STAGES & 1);
      for (int j = 0; j < 128; j++) sum += tile[s][j];  // compute
      arrive(empty + s); }
    y[threadIdx.x - 32] = sum; } }"""


def traced(stages, policy="random", expected=512, **options):
    x, y = np.arange(8 * 128, dtype="f4"), np.zeros(32, "f4")
    trace = Trace()
    args = [x, y, np.int32(expected)]
    result = emulator.run(PIPE, 1, 64, args, options=[f"-DSTAGES={stages}"], policy=policy,
                          listeners=[trace], **options)  # fmt: skip
    assert (y == x.sum()).all()
    return trace, result.counters


def overlap(trace):
    """Instructions of the consumer's sums during which a load is in flight."""
    line = 1 + PIPE[: PIPE.index("// compute")].count("\n")
    sums = [s for s in trace.spans if s.track == "warp 1" and s.details.get("line", "").endswith(
        f"kernel.cu:{line}")]  # fmt: skip
    loads = [s for s in trace.spans if s.track == "TMA loads"]
    assert len(loads) == TILES
    assert sum(s.end - s.start for s in sums) > TILES * 128
    return sum(max(0, min(a.end, b.end) - max(a.start, b.start)) for a in sums for b in loads)


@pytest.mark.parametrize("policy", ["random", "late", "starved"])
def test_only_a_pipeline_overlaps_loads_with_sums(policy):
    serial, _ = traced(1, policy)
    pipelined, _ = traced(2, policy)
    assert overlap(serial) == 0
    assert overlap(pipelined) > 128


@pytest.mark.parametrize("policy", POLICIES)
def test_spans_account_for_every_instruction(policy):
    trace, counters = traced(3, policy)
    # A gang's span is as long as the work of all its warps, active or not.
    together = {(s.start, s.end) for s in trace.spans if s.category == "run"}
    idle = sum(end - start for start, end in together) - counters.warp_instructions
    assert idle == 0 if policy == "starved" else 0 <= idle < 10
    assert trace.complete


def test_tracing_changes_no_counter():
    plain = emulator.run(PIPE, 1, 64, [np.zeros(1024, "f4"), np.zeros(32, "f4"), np.int32(512)],
                         options=["-DSTAGES=2"])  # fmt: skip
    assert traced(2)[1] == plain.counters


def test_waits_say_what_for():
    trace, _ = traced(2, "late")
    waits = [s for s in trace.spans if s.category == "wait" and s.track == "warp 1"]
    assert len(waits) >= TILES
    assert all("mbarrier at shared" in s.name for s in waits[1:])
    assert all("mbarrier.try_wait" in s.details["at"] for s in waits[1:])
    assert all(s.start < s.end for s in trace.spans)


def test_a_deadlock_leaves_its_trace():
    trace = Trace()
    args = [np.zeros(1024, "f4"), np.zeros(32, "f4"), np.int32(528)]
    with pytest.raises(DeadlockError):
        emulator.run(PIPE, 1, 64, args, options=["-DSTAGES=2"], listeners=[trace])
    last = max(s.end for s in trace.spans)
    stuck = [s for s in trace.spans if s.category == "wait" and s.end == last]
    assert {s.track for s in stuck} == {"warp 0", "warp 1"}
    assert any("16 bytes of tx-count" in s.name for s in stuck)


def test_file(tmp_path):
    trace, _ = traced(3)
    trace.write(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names[0] == "warp 0"
    assert "warp 1" in names
    assert names[-1].startswith("TMA loads")
    assert events[0]["args"]["name"] == "CTA (0, 0, 0)"
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(trace.spans)
    for tid in {e["tid"] for e in spans}:
        row = sorted((e["ts"], e["dur"]) for e in spans if e["tid"] == tid)
        assert all(a + d <= b for (a, d), (b, _) in pairwise(row))


def test_a_trace_holds_one_launch():
    trace, _ = traced(2)
    with pytest.raises(LaunchError, match="a Trace holds one launch"):
        emulator.run(PIPE, 1, 64, [np.zeros(1024, "f4"), np.zeros(32, "f4"), np.int32(512)],
                     options=["-DSTAGES=2"], listeners=[trace])  # fmt: skip


def test_limit():
    trace = Trace(limit=8)
    emulator.run(PIPE, 1, 64, [np.zeros(1024, "f4"), np.zeros(32, "f4"), np.int32(512)],
                 options=["-DSTAGES=2"], listeners=[trace])  # fmt: skip
    assert not trace.complete
    assert 7 <= sum(s.category == "run" for s in trace.spans) <= 9


def test_waves_of_ctas_have_tracks_of_their_own():
    trace = Trace()
    source = 'extern "C" __global__ void k(int* x) { x[blockIdx.x * 1024 + threadIdx.x] = 1; }'
    emulator.run(source, 5, 1024, [np.zeros(5 * 1024, "i4")], listeners=[trace])
    assert {s.cta for s in trace.spans} == {(i, 0, 0) for i in range(5)}
    assert {s.track for s in trace.spans} == {f"warp {i}" for i in range(32)}


def test_parts_of_a_wgmma_are_one_span():
    from test_emu_mma_kernels import RIGHT, WGMMA

    a = np.zeros((64, 128), np.uint16)
    trace = Trace()
    result = emulator.run(
        WGMMA, 1, 128, [a, a.copy(), np.zeros((64, 64), "f4"), np.int32(64), np.int32(128)],
        shared_bytes=32768, options=[f"-D{k}={v}" for k, v in RIGHT.items()], listeners=[trace],
    )  # fmt: skip
    spans = [s for s in trace.spans if s.track == "MMA"]
    assert len(spans) == result.counters.extra["wgmma"] == 8
    assert sum(e["ph"] == "X" for e in chrome_events(spans)) == 8


def test_engines():
    assert engine_of("bulk_load") == engine_of("tma_load") == "TMA loads"
    assert engine_of("tma_reduce") == "TMA stores"
    assert engine_of("tcgen05.mma") == "MMA"
