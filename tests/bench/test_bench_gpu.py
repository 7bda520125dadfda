"""The whole way on a GPU: sweep, peers, sticky errors, agreement of the timing methods."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_family import FAMILY as FAULTY

from gpukit.bench.execute import CaseOptions
from gpukit.bench.families import load_family
from gpukit.bench.runner import SweepOptions, run_sweep, select_cases
from gpukit.bench.store import MemoryStore
from gpukit.measure import TimingOptions

pytestmark = pytest.mark.gpu

QUICK = TimingOptions(budget_s=0.1, warmup_s=0.1)


class Quiet:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: None


def sweep(family: Any, selection: dict[str, Any], l2: tuple[str, ...] = ("flush",),
          methods: tuple[str, ...] = ("events",), peers: tuple[str, ...] = ()) -> list[Any]:
    store = MemoryStore()
    options = SweepOptions(CaseOptions(QUICK, peers))
    run_sweep(family, select_cases(family, selection, l2, methods), options, store, Quiet())
    return list(store.rows)


def test_a_sticky_error_costs_one_row() -> None:
    before, fault, after = sweep(FAULTY, {"cycles": (1000, 666, 2000)})
    assert (before.status, fault.status, after.status) == ("ok", "error", "ok")
    assert "illegal memory access" in fault.message.lower().replace("illegaladdress",
                                                                    "illegal memory access")


@pytest.mark.parametrize("op", ["copy", "exp", "axpy"])
def test_elementwise_rows_are_complete(op: str) -> None:
    rows = sweep(load_family("elementwise"),
                 {"op": (op,), "size": (1 << 22,), "dtype": ("f32", "bf16")},
                 l2=("flush", "rotate", "hot"), peers=("memcpy", "copy", "cupy", "torch"))
    assert len(rows) == 6
    for row in rows:
        assert row.status == ("cache-resident" if row.l2 == "hot" else "ok"), row.message
        assert row.time_us > 0
        assert row.gbs > 0
        assert row.clocks["sm_mhz"]["median"] > 0
        assert row.samples_us


def test_graph_and_rotation() -> None:
    row, = sweep(load_family("memcpy"), {"size": (1 << 24,)}, ("rotate",), ("graph",))
    assert row.status == "ok", row.message
    assert row.pct_peak is None or row.pct_peak < 100


def test_matmul_beside_cublas() -> None:
    row, = sweep(load_family("matmul"), {"shape": ((256, 200, 77),)}, peers=("cublas",))
    assert row.status == "ok", row.message
    assert row.peers["cublas"]["time_us"] > 0


def test_impossible_sizes_are_unsupported_rows() -> None:
    row, = sweep(load_family("memcpy"), {"size": (1 << 42,)})
    assert row.status == "unsupported"
    assert "GB are free" in row.message
