"""The matmul family's peers without a GPU: what they ask of their libraries, and who wins."""

from __future__ import annotations

import ctypes
import importlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from host_blas import HostCublas, HostCublasLt

from gpukit.bench.families import buffers, cublas, cublaslt, matmul_peers, tuning
from gpukit.bench.families.cublas import ColumnMajor, Cublas
from gpukit.bench.families.cublaslt import Candidate, CublasLt, Extras, Product
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.tuning import Contest, fastest
from gpukit.errors import LaunchError, UnsupportedError

LAYOUTS = ("nt", "nn", "tn", "tt")


class HostDevice:
    """Memory is the host's and everything is done at once."""

    properties = SimpleNamespace(sm_count=4)

    def pointer(self, array):
        return array.ctypes.data

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def synchronize(self):
        pass


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """CuPy's stream is stream 7; contests start anew and take each variant's ``us``."""
    for name in ("cublas", "cublaslt"):
        module = importlib.import_module(f"gpukit.bench.families.matmul_peer_{name}")
        monkeypatch.setattr(module, "stream_pointer", lambda: 7)
    monkeypatch.setattr(tuning, "_winners", {})
    monkeypatch.setattr("gpukit.measure.time_works", by_name)


def by_name(works, options):
    """Later variants are faster."""
    return [SimpleNamespace(median_us=100 - int(work.name.split()[1])) for work in works]


def matrix(rng, shape, transposed, dtype):
    stored = shape[::-1] if transposed else shape
    values = rng.standard_normal(stored).astype(dtype)
    return values.T if transposed else values


def problem(layout="nt", shape=(5, 7, 3), dtype="f32", out="f32", slots=2, **contest) -> Problem:
    m, n, k = shape
    kinds = {"f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": np.float32}
    rng = np.random.default_rng(1)
    a = [matrix(rng, (m, k), layout[0] == "t", kinds[dtype]) for _ in range(slots)]
    b = [matrix(rng, (k, n), layout[1] == "t", kinds[dtype]) for _ in range(slots)]
    outs = [np.full((m, n), np.nan, kinds[out]) for _ in range(slots)]

    def verdict(launch):
        outs[0].fill(np.nan)
        launch(0)
        return "" if np.allclose(outs[0], a[0] @ b[0], rtol=1e-2) else "its result is wrong"

    given = {"name": "p", "device": HostDevice(), "slots": slots, "l2": "rotate",
             "method": "graph", "verdict": verdict, **contest}
    return Problem(shape, dtype, out, layout, a, b, outs, Contest(**given))


def products_are_right(given: Problem, launch) -> bool:
    """Every buffer set gets its own product."""
    for slot, out in enumerate(given.out):
        out.fill(np.nan)
        launch(slot)
    return all(np.allclose(out, a @ b, rtol=1e-2) for out, a, b
               in zip(given.out, given.a, given.b, strict=True))


# --- cuBLAS ------------------------------------------------------------------------------


def cublas_launch(monkeypatch, given):
    library = HostCublas()
    workspace = SimpleNamespace(data=SimpleNamespace(ptr=64), nbytes=4096)
    monkeypatch.setattr(cublas, "handle", lambda: Cublas(library, workspace))
    return library, matmul_peers.maker("cublas")(given)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "out"), [("f32", "f32"), ("f16", "f16"), ("f16", "f32")])
def test_cublas_computes_every_layout(monkeypatch, layout, dtype, out):
    given = problem(layout, dtype=dtype, out=out)
    _, launch = cublas_launch(monkeypatch, given)
    assert products_are_right(given, launch)


def test_tf32_is_a_way_to_multiply_f32(monkeypatch):
    given = problem(dtype="tf32")
    library, launch = cublas_launch(monkeypatch, given)
    assert products_are_right(given, launch)
    assert library.calls == ["stream 7", "tf32 gemm", "tf32 gemm"]
    lt = HostCublasLt()
    lt_launch(monkeypatch, given, lt)
    computes = {made.arguments for made in lt.objects.values() if 3 in made.attributes}
    assert computes == {(77, 0)}


def test_the_workspace_is_given_again_when_the_stream_changes(monkeypatch):
    library, launch = cublas_launch(monkeypatch, problem())
    launch(0), launch(1)
    assert library.calls == ["stream 7", "gemm", "gemm"]
    assert library.workspace == (64, 4096)


def test_what_cublas_refuses_is_unsupported_by_name(monkeypatch):
    _, launch = cublas_launch(monkeypatch, problem(dtype="bf16"))
    with pytest.raises(UnsupportedError, match="cublasGemmEx returned CUBLAS_STATUS_NOT_SUPPORTED"):
        launch(0)
    with pytest.raises(LaunchError, match="f returned CUBLAS_STATUS_EXECUTION_FAILED"):
        cublas.check(13, "f")
    with pytest.raises(LaunchError, match="CUBLAS_STATUS_99"):
        cublas.check(99, "f")


def test_a_library_that_is_nowhere_says_which_wheel_has_it(monkeypatch):
    with pytest.raises(UnsupportedError, match="libnosuchthing was not found; the wheel nvidia-cu"):
        cublas.library("nosuchthing")


# --- cuBLASLt ----------------------------------------------------------------------------


def lt_launch(monkeypatch, given, library):
    monkeypatch.setattr(cublaslt, "handle", lambda: CublasLt(library))
    monkeypatch.setattr(cublaslt, "WORKSPACE_BYTES", 4096)
    return matmul_peers.maker("cublaslt")(given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cublaslt_computes_every_layout(monkeypatch, layout):
    given = problem(layout, out="f32", dtype="f16")
    assert products_are_right(given, lt_launch(monkeypatch, given, HostCublasLt()))


def test_the_fastest_candidate_that_is_right_wins(monkeypatch):
    # The second is no proposal; of the other four the last is fastest, and wrong.
    library = HostCublasLt(proposed=(0, 7, 0, 0, 0), wrong=(4,))
    launch = lt_launch(monkeypatch, problem(), library)
    assert launch.facts == {"candidates": 4, "winner": 2, "version": 130100}


def test_the_heuristic_is_asked_for_sixteen_with_64_mib():
    library = HostCublasLt(proposed=(0,) * 40)
    product = Product(CublasLt(library), ColumnMajor(5, 7, 3, "nt"), (0, 0))
    assert len(product.candidates()) == 16
    assert library.workspace_asked == (8, 64 << 20)


def test_structures_have_the_sizes_of_the_header():
    assert ctypes.sizeof(Candidate) == 96
    assert Candidate.workspace_bytes.offset == 64
    assert Candidate.state.offset == 72


def test_scales_bias_and_accumulation_are_attributes_of_the_right_size():
    extras = Extras(first_scale=16, second_scale=32, bias=48, fast_accumulation=True)
    library = HostCublasLt()
    Product(CublasLt(library), ColumnMajor(5, 7, 3, "nt"), (28, 14), extras)
    desc = next(made for made in library.objects.values() if 3 in made.attributes)
    assert desc.attributes == {
        3: (4, 1), 4: (4, 0), 7: (4, 4), 8: (8, 48), 17: (8, 16), 18: (8, 32), 25: (1, 1),
    }  # fmt: skip


def test_descriptors_go_with_their_product():
    library = HostCublasLt()
    lt = CublasLt(library)
    product = Product(lt, ColumnMajor(5, 7, 3, "nt"), (0, 0))
    product.candidates()
    made = set(library.objects) - {lt.handle.value}
    del product
    assert set(library.destroyed) == made


def test_the_real_library_takes_the_attributes():
    try:
        real = cublas.library("cublasLt")
    except UnsupportedError as absence:
        pytest.skip(str(absence))
    # The handle needs a GPU, descriptors do not.
    functions = SimpleNamespace(**{name: getattr(real, name) for name in cublaslt._FUNCTIONS})
    functions.cublasLtCreate = HostCublasLt().cublasLtCreate
    extras = Extras(first_scale=16, second_scale=32, bias=48, fast_accumulation=True)
    Product(CublasLt(functions), ColumnMajor(5, 7, 3, "nt"), (28, 14), extras)


# --- the contest -------------------------------------------------------------------------


def test_a_contest_is_held_in_the_state_of_the_case(monkeypatch):
    asked = []

    def timer(works, options):
        asked.append(options)
        return by_name(works, options)

    monkeypatch.setattr("gpukit.measure.time_works", timer)
    contest = problem(method="cupti", l2="flush").contest
    fastest([lambda: lambda slot: None] * 5, Contest(
        "q", contest.device, 2, "flush", "cupti", lambda launch: ""))
    assert [(one.l2, one.method) for one in asked] == [("flush", "events")] * 2
    assert asked[1].budget_s > asked[0].budget_s


def test_only_finalists_are_timed_twice(monkeypatch):
    rounds = []

    def timer(works, options):
        rounds.append([work.name for work in works])
        return by_name(works, options)

    monkeypatch.setattr("gpukit.measure.time_works", timer)
    tuned = fastest([lambda: lambda slot: None] * 6, problem(verdict=lambda launch: "").contest)
    assert [len(names) for names in rounds] == [6, 3]
    assert rounds[1] == ["variant 5", "variant 4", "variant 3"]
    assert tuned.facts == {"candidates": 6, "winner": 5}


def test_the_same_contest_is_held_once(monkeypatch):
    made = []
    variants = [lambda i=i: made.append(i) or (lambda slot: None) for i in range(3)]
    contest = problem(verdict=lambda launch: "").contest
    first = fastest(variants, contest)
    made.clear()
    assert fastest(variants, contest).facts == first.facts == {"candidates": 3, "winner": 2}
    assert made == [2]


def test_variants_that_fail_are_left_out_and_the_last_reason_is_told():
    def broken():
        raise RuntimeError("out of\nresource: shared memory")

    contest = problem(verdict=lambda launch: "").contest
    assert fastest([broken, lambda: lambda slot: None], contest).facts["winner"] == 1
    other = problem(name="other", verdict=lambda launch: "").contest
    with pytest.raises(UnsupportedError, match="RuntimeError: out of resource: shared memory"):
        fastest([broken, broken], other)
    with pytest.raises(UnsupportedError, match="it has no variant"):
        fastest([], problem(name="none").contest)


def test_when_no_variant_is_right_there_is_no_winner():
    contest = problem(verdict=lambda launch: "its result is wrong: 3 x the tolerance").contest
    with pytest.raises(UnsupportedError, match="its result is wrong: 3 x the tolerance"):
        fastest([lambda: lambda slot: None] * 3, contest)


# --- peers that need packages --------------------------------------------------------------


@pytest.mark.parametrize(("name", "given", "reason"), [
    ("triton", {"dtype": "f32"}, "it needs bf16 or f16 operands"),
    ("triton", {"dtype": "f16", "layout": "tn"}, "it needs A stored"),
    ("triton", {"dtype": "f16", "shape": (8, 8, 9)}, "it needs rows of a multiple of 16 bytes"),
    ("triton", {"dtype": "f16", "shape": (8, 9, 8)}, "it needs rows of a multiple of 16 bytes"),
    ("triton", {"dtype": "tf32"}, "it needs bf16 or f16 operands"),
    ("deepgemm", {"dtype": "f16"}, "it needs bf16 operands and result"),
    ("deepgemm", {"dtype": "bf16", "out": "f32"}, "it needs bf16 operands and result"),
])  # fmt: skip
def test_peers_say_what_they_do_not_do(name, given, reason):
    with pytest.raises(UnsupportedError, match=reason):
        matmul_peers.maker(name)(problem(**given))


def test_a_package_that_is_not_installed_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    given = problem(dtype="bf16", out="bf16")
    works, absent = buffers.peer_works(
        {"deepgemm": lambda: matmul_peers.maker("deepgemm")(given)}, 2, HostDevice())
    assert works == ()
    assert "deep_gemm cannot be imported" in absent[0].reason
    assert "pip install sgl-deep-gemm" in absent[0].reason
