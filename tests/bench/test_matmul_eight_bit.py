"""8-bit operands and tf32 in `gpukit bench matmul`: values, scales, cases, peers; without a GPU."""

from __future__ import annotations

import dataclasses
import importlib
from contextlib import nullcontext
from types import SimpleNamespace

import host_torch
import ml_dtypes
import numpy as np
import pytest
from host_blas import HostCublasLt

from gpukit.bench.families import (
    buffers,
    cublaslt,
    load_family,
    matmul_case,
    matmul_peers,
    matmul_scales,
    matmul_types,
    tuning,
)
from gpukit.bench.families.cublaslt import CublasLt
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.matmul_scales import MODES
from gpukit.bench.families.matmul_types import KINDS
from gpukit.bench.families.tuning import Contest
from gpukit.bench.runner import select_cases
from gpukit.errors import UnsupportedError

SHAPES = ((6, 136, 272), (1, 16, 16), (8, 300, 640))


class HostDevice:
    """Memory is the host's and everything is done at once."""

    xp, emulated = np, False

    def pointer(self, array):
        return array.ctypes.data

    address = pointer

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)

    def to_host(self, array):
        return array

    def synchronize(self):
        pass


# --- values ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_values_are_rounded_to_the_nearest_and_read_back(name):
    kind = KINDS[name]
    values = np.concatenate([
        np.random.default_rng(1).standard_normal(4000) * np.exp2(np.arange(4000) % 24 - 16),
        [0, -0.0, 1, -1.5]]).astype(np.float32)
    most = float(np.finfo(np.float16).max) if name == "e5m2" else 448.0
    codes = matmul_types.encode(np, values, kind)
    got = matmul_types.wide(np, codes, kind.stored)
    want = np.clip(values, -most, most).astype(kind.stored.value_dtype).astype(np.float32)
    assert codes.dtype == np.uint8 and np.isfinite(got).all()
    close = np.abs(values) < (440 if name == "e4m3" else 57344)
    assert (got[close] == want[close]).all()
    assert np.abs(got).max() <= most


def test_large_operands_are_made_in_parts(monkeypatch):
    monkeypatch.setattr(matmul_types, "_PART", 100)
    made = matmul_types.normal(np, np.random.default_rng(0), (30, 17), 1.0, KINDS["e4m3"], False)
    values = matmul_types.wide(np, made, KINDS["e4m3"].stored)
    assert made.shape == (30, 17) and made.dtype == np.uint8
    assert 0.9 < values.std() < 1.1 and (values[-1] != values[0]).any()


# --- scales ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_block_scales_lie_as_tma_wants_them(shape):
    m, n, k = shape
    first, second = matmul_scales.random("block", shape, HostDevice(), 2)
    k_blocks = -(-k // 128)
    assert first.a.shape == (m, k_blocks) and first.b.shape == (k_blocks, -(-n // 128))
    assert first.a.strides[0] == 4 and first.a.strides[1] % 16 == 0
    assert first.b.strides[0] == 4 and first.b.strides[1] % 16 == 0
    assert (first.a != second.a).any()
    packed = matmul_scales.dense(np, first.a)
    assert packed.T.flags.c_contiguous and (packed == first.a).all()


@pytest.mark.parametrize("mode", MODES)
def test_scales_are_counted_as_bytes_read(mode):
    shape = (8, 300, 1024)
    (scales,) = matmul_scales.random(mode, shape, HostDevice(), 1)
    stored = sum(x.size * 4 for x in (scales.a, scales.b) if x is not None)
    assert matmul_scales.nbytes(mode, shape) == stored


# --- cases -------------------------------------------------------------------------------


def cases(**selection):
    return select_cases(load_family("matmul"), {"shape": ((64, 64, 64),), **selection})


def test_only_eight_bit_cases_have_scales_and_sums():
    plain, tf32, eight = cases(dtype=("bf16", "tf32", "e4m3"))
    assert set(plain.params) == set(tf32.params) == {"layout", "out"}
    assert eight.params == {"layout": "nt", "out": "bf16", "scales": "tensor",
                            "accumulate": "exact"}
    assert (plain.params["out"], tf32.params["out"]) == ("bf16", "f32")


def test_block_scales_have_one_way_to_add():
    found = cases(dtype=("e4m3",), scales=MODES, accumulate=("exact", "fast"))
    asked = [(case.params["scales"], case.params.get("accumulate")) for case in found]
    assert asked == [*((mode, sums) for mode in ("none", "tensor", "rowcol")
                       for sums in ("exact", "fast")), ("block", None)]
    assert len({case.key for case in found}) == len(found)


def test_suites_go_with_every_dtype():
    for dtype in KINDS:
        family = load_family("matmul")
        assert len(select_cases(family, {"suite": ("quick",), "dtype": (dtype,)})) == 8


# --- a prepared case, on the emulator ------------------------------------------------------


def prepared(monkeypatch, peers, shape=(33, 40, 144), **selection):
    monkeypatch.setattr(matmul_case, "maker", peers.__getitem__)
    monkeypatch.setattr(matmul_case.buffers, "slots_for", lambda *given, **more: 2)
    family = load_family("matmul")
    (case,) = select_cases(family, {"kernel": ("auto",), "shape": (shape,), **selection},
                           emulated=True)
    case = dataclasses.replace(case, l2="rotate", method="events")
    return family.prepare(case, family.target("emu:h100").device, tuple(peers))


def expanded(scales, shape):
    """Scales as large as A and B."""
    _, n, k = shape
    if scales.mode == "none":
        return 1, 1
    if scales.mode == "tensor":
        return scales.a, scales.b
    if scales.mode == "rowcol":
        return scales.a[:, None], scales.b
    return (np.repeat(scales.a, 128, 1)[:, :k],
            np.repeat(np.repeat(scales.b, 128, 0), 128, 1)[:k, :n])


def right(problem):
    def launch(slot):
        scale_a, scale_b = expanded(problem.scales[slot], problem.shape)
        a, b = (x[slot].astype("f4") for x in (problem.a, problem.b))
        problem.out[slot][...] = (a * scale_a) @ (b * scale_b)

    return launch


def wrong_scales(problem):
    """What a peer that confuses the scales of two buffer sets computes."""
    swapped = dataclasses.replace(problem, scales=problem.scales[::-1])
    return right(swapped)


@pytest.mark.parametrize("mode", MODES)
def test_eight_bit_cases_are_checked_with_their_scales(monkeypatch, mode):
    case = prepared(monkeypatch, {"right": right, "wrong": wrong_scales}, dtype=("e4m3",),
                    scales=(mode,))
    assert case.launch["config"].startswith(("gemm", "narrow"))
    for slot in range(2):
        case.work.launch(slot)
        assert case.check(slot).ok
    names = ["right", "wrong"] if mode == "none" else ["right"]
    assert [work.name for work in case.peers] == names


def test_problems_tell_peers_modes_and_sums(monkeypatch):
    seen = []
    prepared(monkeypatch, {"spy": lambda problem: seen.append(problem) or right(problem)},
             dtype=("e5m2",), scales=("rowcol",), accumulate=("fast",))
    (problem,) = seen
    assert (problem.dtype, problem.out_dtype, problem.mode, problem.fast) == (
        "e5m2", "bf16", "rowcol", True)


def test_sums_and_tf32_reach_the_library(monkeypatch):
    given, real = [], matmul_case.gpukit.matmul
    monkeypatch.setattr(matmul_case.gpukit, "matmul",
                        lambda *arrays, **words: given.append(words) or real(*arrays, **words))
    for selection in ({"dtype": ("e4m3",), "accumulate": ("fast",)}, {"dtype": ("e4m3",)},
                      {"dtype": ("tf32",)}):
        prepared(monkeypatch, {}, **selection).work.launch(0)
    assert [words.get("fast_accum") for words in given] == [True, False, None]
    assert given[2]["tf32"] is True


def test_the_config_in_the_row_is_the_one_that_runs(monkeypatch):
    ran = []
    run = importlib.import_module("gpukit.ops.matmul.run")
    real = run.choose
    monkeypatch.setattr(run, "choose", lambda *given: ran.append(real(*given)) or ran[-1])
    case = prepared(monkeypatch, {}, dtype=("e4m3",), scales=("block",))
    case.work.launch(0)
    assert [str(config) for config in ran] == [case.launch["config"]]


# --- peers -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def host(monkeypatch):
    for name in ("torch", "deepgemm"):
        module = importlib.import_module(f"gpukit.bench.families.matmul_peer_{name}")
        monkeypatch.setattr(module, "torch_stream", nullcontext)
    module = importlib.import_module("gpukit.bench.families.matmul_peer_cublaslt")
    monkeypatch.setattr(module, "stream_pointer", lambda: 7)
    monkeypatch.setattr(tuning, "_winners", {})
    monkeypatch.setattr("gpukit.measure.time_works", lambda works, options: [
        SimpleNamespace(median_us=1.0) for _ in works])


def problem(mode, shape=SHAPES[0], dtype="e4m3", fast=False, **options):
    m, n, k = shape
    device, kind, rng = HostDevice(), KINDS[dtype], np.random.default_rng(3)
    a = [matmul_types.normal(np, rng, (m, k), 1.0, kind, False) for _ in range(2)]
    b = [matmul_types.normal(np, rng, (n, k), 1.0, kind, False).T for _ in range(2)]
    out = [np.full((m, n), np.nan, np.float32) for _ in range(2)]
    contest = Contest("p", device, 2, "rotate", "graph", lambda launch: "")
    scales = matmul_scales.random(mode, shape, device, 2)
    given = Problem(shape, dtype, "f32", "nt", a, b, out, contest, scales, fast)
    return dataclasses.replace(given, **options)


def products_are_right(given, launch):
    for slot, out in enumerate(given.out):
        launch(slot)
        a, b = (matmul_types.wide(np, x[slot].view("u1") if x[slot].itemsize == 1 else x[slot],
                                  given.kind.stored) for x in (given.a, given.b))
        scale_a, scale_b = expanded(given.scales[slot], given.shape)
        assert np.allclose(out, (a * scale_a) @ (b * scale_b), rtol=1e-4, atol=1e-4)
    return True


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", MODES)
def test_cublaslt_scales_every_way(monkeypatch, mode, shape):
    library = HostCublasLt()
    monkeypatch.setattr(cublaslt, "handle", lambda: CublasLt(library))
    monkeypatch.setattr(cublaslt, "WORKSPACE_BYTES", 4096)
    given = problem(mode, shape)
    assert products_are_right(given, matmul_peers.maker("cublaslt")(given))


@pytest.mark.parametrize("fast", [False, True])
def test_cublaslt_adds_as_ours_does(monkeypatch, fast):
    library = HostCublasLt()
    monkeypatch.setattr(cublaslt, "handle", lambda: CublasLt(library))
    matmul_peers.maker("cublaslt")(problem("tensor", fast=fast))
    (first, *_) = [made.attributes for made in library.objects.values() if 3 in made.attributes]
    assert first.get(25) == ((1, 1) if fast else None)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", MODES)
def test_torch_scales_every_way(monkeypatch, mode, shape):
    seen = host_torch.install(monkeypatch)
    given = problem(mode, shape, fast=mode == "tensor")
    assert products_are_right(given, matmul_peers.maker("torch")(given))
    assert seen.fast == [mode == "tensor"] * 2


def test_torch_rounds_to_tf32_within_a_launch_only(monkeypatch):
    seen = host_torch.install(monkeypatch)
    given = problem("none", dtype="tf32")
    assert products_are_right(given, matmul_peers.maker("torch")(given))
    exact = dataclasses.replace(given, dtype="f32")
    assert products_are_right(exact, matmul_peers.maker("torch")(exact))
    assert seen.tf32 == [True, True, False, False]
    assert importlib.import_module("torch").backends.cuda.matmul.allow_tf32 is False


@pytest.mark.parametrize("shape", SHAPES)
def test_deepgemm_gets_scales_that_it_need_not_copy(monkeypatch, shape):
    seen = host_torch.install(monkeypatch)
    given = problem("block", shape)
    launch = matmul_peers.maker("deepgemm")(given)
    assert seen.aligned == 2
    assert products_are_right(given, launch)
    assert seen.aligned == 2


@pytest.mark.parametrize(("name", "given", "reason"), [
    ("cublas", {}, "it needs operands of 16 bits or more"),
    ("cublaslt", {"dtype": "e5m2"}, "it needs e4m3 in A or B"),
    ("triton", {}, "it needs bf16 or f16 operands"),
    ("deepgemm", {}, "it needs e4m3 with block scales"),
    ("deepgemm", {"mode": "block", "dtype": "e5m2"}, "it needs e4m3 with block scales"),
    ("deepgemm", {"mode": "block", "out_dtype": "f16"}, "it needs a result of bf16 or f32"),
    ("deepgemm", {"mode": "block", "layout": "nn"}, "it needs layout nt"),
])  # fmt: skip
def test_peers_say_what_they_do_not_do_in_eight_bits(name, given, reason):
    with pytest.raises(UnsupportedError, match=reason):
        matmul_peers.maker(name)(problem(**{"mode": "tensor", **given}))


# --- torch tensors -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tensors_are_the_arrays_memory(monkeypatch, dtype):
    host_torch.install(monkeypatch)
    array = np.zeros((6, 10), getattr(ml_dtypes, dtype, dtype))
    for view in (array, array.T, array[:, 2:7], array[:1], array[:, :1].T):
        tensor = buffers.as_torch(view)
        assert tensor.data_ptr() == view.ctypes.data and tensor.dtype == array.dtype


def test_a_tensor_that_is_a_copy_is_refused(monkeypatch):
    host_torch.install(monkeypatch, copies=True)
    with pytest.raises(UnsupportedError, match=r"from_dlpack gave a tensor .* not the same memory"):
        buffers.as_torch(np.zeros((3, 4), np.float32))


def test_the_real_torch_takes_every_type():
    torch = pytest.importorskip("torch")
    kinds = [(np.zeros((6, 10), kind.array_dtype(False)), kind) for kind in KINDS.values()]
    for array, kind in kinds:
        for view in (array, array.T):
            tensor = buffers.as_torch(view, kind.stored.value_dtype)
            assert tensor.dtype == getattr(torch, kind.stored.value_dtype.name)
