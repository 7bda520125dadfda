"""The whole way on a GPU: sweep, peers, sticky errors, agreement of the timing methods."""

from __future__ import annotations

import importlib.util
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


def needs(peer: str) -> Any:
    """A peer, skipped where its package is not installed."""
    package = {"torch": "torch", "triton": "triton", "deepgemm": "deep_gemm"}.get(peer)
    absent = package is not None and importlib.util.find_spec(package) is None
    return pytest.param(peer, marks=pytest.mark.skipif(absent, reason=f"no {package}"))


PEERS = [needs(peer) for peer in ("cublas", "cublaslt", "torch", "triton", "deepgemm")]
COLD = [("flush", "events"), ("rotate", "graph")]


@pytest.mark.parametrize(("l2", "method"), COLD)
@pytest.mark.parametrize("peer", PEERS)
def test_every_peer_of_matmul_is_right_and_timed(peer: str, l2: str, method: str) -> None:
    row, = sweep(load_family("matmul"), {"kernel": ("1",), "shape": ((256, 512, 384),)}, (l2,),
                 (method,), (peer,))
    assert row.status == "ok", row.message
    assert "reason" not in row.peers[peer], row.peers[peer]
    assert 0 < row.peers[peer]["time_us"] < 1000


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "same"), ("f16", "f32"), ("f32", "same")])
def test_cublas_and_cublaslt_do_every_layout(layout: str, dtype: str, out: str) -> None:
    names = ("cublas", "cublaslt")
    selection = {"kernel": ("1",), "shape": ((100, 72, 40),), "layout": (layout,),
                 "dtype": (dtype,), "out_dtype": (out,)}
    row, = sweep(load_family("matmul"), selection, peers=names)
    assert row.status == "ok", row.message
    assert {name: row.peers[name].get("reason") for name in names} == dict.fromkeys(names)
    assert row.peers["cublaslt"]["candidates"] > row.peers["cublaslt"]["winner"] >= 0


@pytest.mark.parametrize(("scales", "sums", "peer"), [
    *((scales, sums, peer) for scales in ("none", "tensor", "rowcol") for sums in ("exact", "fast")
      for peer in PEERS[1:3]),
    ("block", "exact", PEERS[2]), ("block", "exact", PEERS[4]),
])  # fmt: skip
def test_eight_bit_peers_are_right(scales: str, sums: str, peer: Any) -> None:
    (name,) = peer.values
    if peer.marks and peer.marks[0].args[0]:
        pytest.skip(peer.marks[0].kwargs["reason"])
    selection = {"shape": ((256, 512, 1024),), "dtype": ("e4m3",), "scales": (scales,),
                 "accumulate": (sums,)}
    row, = sweep(load_family("matmul"), selection, peers=(name,))
    assert row.status == "ok", row.message
    assert "reason" not in row.peers[name], row.peers[name]


@pytest.mark.parametrize("peer", PEERS[:3])
def test_tf32_peers_are_right(peer: str) -> None:
    row, = sweep(load_family("matmul"), {"shape": ((256, 512, 384),), "dtype": ("tf32",)},
                 peers=(peer,))
    assert row.status == "ok", row.message
    assert "reason" not in row.peers[peer], row.peers[peer]


def test_sustained_rows_are_timed_under_load() -> None:
    store = MemoryStore()
    timing = TimingOptions(budget_s=0.1, sustain_s=0.5)
    cases = select_cases(load_family("matmul"), {"kernel": ("1",), "shape": ((512, 512, 512),)},
                         loads=("burst", "sustained"))
    run_sweep(load_family("matmul"), cases, SweepOptions(CaseOptions(timing, ("cublas",))), store,
              Quiet())
    assert [(row.load, row.status) for row in store.rows] == [("burst", "ok"), ("sustained", "ok")]
    assert all(row.clocks["power_w"]["median"] > 0 for row in store.rows)


def test_impossible_sizes_are_unsupported_rows() -> None:
    row, = sweep(load_family("memcpy"), {"size": (1 << 42,)})
    assert row.status == "unsupported"
    assert "GB are free" in row.message
