"""The built-in families on the emulated device: checked and counted, never timed."""

from __future__ import annotations

import pytest

from gpukit.bench.execute import CaseOptions, run_case
from gpukit.bench.families import load_family
from gpukit.bench.runner import select_cases
from gpukit.errors import NoDeviceError
from gpukit.measure import TimingOptions

OPTIONS = CaseOptions(TimingOptions(), peers=("memcpy", "cublas"))


def rows(name, selection, device="emu:h100"):
    family = load_family(name)
    assert family.emulated(device)
    target = family.target(device)
    return [run_case(family, case, target, OPTIONS)
            for case in select_cases(family, selection, emulated=True)]


def test_defaults_are_small_and_every_row_is_checked_and_counted():
    for name in ("memcpy", "matmul"):
        for row in rows(name, {}):
            assert row.status == "ok"
            assert row.error is not None and row.error <= 1
            assert row.time_us is None and row.gbs is None and not row.peers
            assert row.l2 == row.method == "none"
            assert row.counters["warp_instructions"] > 0


@pytest.mark.parametrize("device", ["emu:h100", "emu:b200"])
def test_counters_know_coalesced_from_scattered(device):
    nn, nt = rows("matmul", {"shape": ((64, 64, 32),), "layout": ("nn", "nt")}, device)
    # A warp reads one A element (1 sector) and 32 B elements: 2 bf16 sectors when contiguous, 32
    # when each lines up with another row.
    for row, sectors in ((nn, 1 + 2), (nt, 1 + 32)):
        loads = row.counters["global_loads"]
        assert loads["sectors"] / loads["requests"] == pytest.approx(sectors / 2)


def test_elementwise_moves_what_it_should():
    n = 16_385
    for row in rows("elementwise", {"op": ("copy", "add", "erf"), "dtype": ("f32",)}):
        inputs = 2 if row.kernel.endswith("add") else 1
        assert row.counters["global_loads"]["bytes"] == 4 * n * inputs
        assert row.counters["global_stores"]["bytes"] == 4 * n


def test_what_needs_a_clock_says_so():
    with pytest.raises(NoDeviceError, match="it needs a CUDA device"):
        load_family("timer").target("emu:h100")
