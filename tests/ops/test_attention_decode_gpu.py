"""Decoding on a GPU: the cases of the emulator, captured calls, calls made before, far offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decode_cases import FORMS, MASKS, TERMS, Case, cut, error_of, even, inputs, worst

import gpukit
from gpukit import devices, dtypes
from gpukit.errors import ArgumentError
from gpukit.ops.attention.decode import DecodePlan
from gpukit.ops.attention.plan import Config
from gpukit.reference.attention import Rules

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

CAUSAL = Rules(mask="causal")
SKEWED = Case((0, 1, 517, 2100), 2100, heads=32, kv_heads=8, dim=128)


def on_gpu(call: dict[str, Any]) -> dict[str, Any]:
    return {name: cupy.asarray(stored(value)) if isinstance(value, np.ndarray) else value
            for name, value in call.items()}


def stored(array: np.ndarray) -> np.ndarray:
    """e4m3 as bytes: CuPy has no such type."""
    return array.view("u1") if array.dtype.name == "float8_e4m3fn" else array


def on_host(results: tuple[Any, Any]) -> tuple[Any, Any]:
    return cupy.asnumpy(results[0]), cupy.asnumpy(results[1])


def attend(case: Case, config: Config | None = None, rules: Rules = CAUSAL,
           **options: Any) -> float:
    """The error of the second of two calls: the short way, counters used once."""
    given = inputs(case)
    call = on_gpu(given.call | options)
    plan = None
    if config is not None:
        plan = DecodePlan.of(call["q"], call["k"], call["v"], page_table=call.get("page_table"),
                             config=config)
    for _ in range(2):
        got = gpukit.attention_decode(**call, return_lse=True, plan=plan)
    return worst(on_host(got), given, case, rules)


@pytest.mark.parametrize("page", [0, 1, 2, 16, 64, 256])
@pytest.mark.parametrize(("cluster", "parts"), [(1, 1), (1, 5), (8, 1), (4, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_cuts_and_pages(form: str, cluster: int, parts: int, page: int) -> None:
    if form.startswith("warpgroup") and devices.get("cuda:0").properties.capability[0] != 9:
        pytest.skip("needs wgmma")
    case = replace(SKEWED, page=page, heads=16 if form.endswith("16") else 32)
    assert attend(case, cut(form, cluster, parts, warps=4)) <= 1


@pytest.mark.parametrize("page", [0, 1, 2, 16, 64, 256])
@pytest.mark.parametrize("ctas", [1, 7, 132, 264, 1000])
@pytest.mark.parametrize("form", [*FORMS, "narrow_8"])
def test_even_cuts_and_pages(form: str, ctas: int, page: int) -> None:
    if form.startswith("warpgroup") and devices.get("cuda:0").properties.capability[0] != 9:
        pytest.skip("needs wgmma")
    case = replace(SKEWED, page=page, heads=16 if form.endswith("16") else 32,
                   queries="bf16" if form == "narrow_8" else "")
    assert attend(case, replace(even(form, ctas), warps=4)) <= 1


@pytest.mark.parametrize("page", [0, 16, 2])
@pytest.mark.parametrize("config", [
    cut("upright_64", 1, 3), cut("upright_64", 8), even("upright_64", 33)], ids=str)
def test_the_warpgroup_form_upright(config: Config, page: int) -> None:
    if devices.get("cuda:0").properties.capability[0] != 9:
        pytest.skip("needs wgmma")
    assert attend(replace(SKEWED, page=page), config) <= 1


@pytest.mark.parametrize("form", ["transposed_8", "warpgroup_8", "narrow_8"])
def test_scores_that_rise_by_little_and_by_much(form: str) -> None:
    slopes = np.array([0.05, 0.2, 1, -0.03], np.float32)
    case = Case((1900, 400), 1920, page=16, queries="bf16" if form == "narrow_8" else "")
    rules = replace(CAUSAL, alibi=slopes)
    assert attend(case, replace(even(form, 33), warps=4), rules, alibi=slopes) <= 1


@pytest.mark.parametrize("lengths", [(0,) * 40, (1,) * 40, tuple(range(0, 4000, 100)),
                                     (4000, *[3] * 39), tuple(range(40))], ids=len)
@pytest.mark.parametrize("queries", ["", "bf16"])
def test_an_even_cut_of_many_sequences(queries: str, lengths: tuple[int, ...]) -> None:
    case = Case(lengths, max(1, *lengths), heads=4, kv_heads=2, page=16, queries=queries)
    form = "narrow_8" if queries else "transposed_8"
    assert attend(case, replace(even(form, 264), warps=4)) <= 1


@pytest.mark.parametrize("group", [1, 3, 8, 9, 33])
@pytest.mark.parametrize("dim", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("queries", ["bf16", "f16", "e4m3"])
def test_what_is_chosen_for_8_bits(queries: str, dim: int, group: int) -> None:
    case = Case((45, 300), 300, tokens=2, heads=2 * group, kv_heads=2, dim=dim, queries=queries,
                dtype="f16" if queries == "f16" else "bf16")
    assert attend(case) <= 1


@pytest.mark.parametrize("group", [1, 2, 3, 8, 9, 16, 17, 64, 65])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_what_is_chosen(dtype: str, dim: int, group: int) -> None:
    case = Case((45, 300), 300, tokens=2, heads=2 * group, kv_heads=2, dim=dim, dtype=dtype)
    assert attend(case) <= 1


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask: str, tokens: int) -> None:
    rules = Rules(mask=mask, **MASKS[mask])
    assert attend(Case((3, 700), 700, tokens=tokens), None, rules, mask=mask, **MASKS[mask]) <= 1


@pytest.mark.parametrize("term", TERMS)
def test_terms(term: str) -> None:
    rules = replace(CAUSAL, **{term: TERMS[term]})
    assert attend(Case((0, 600), 600), None, rules, **{term: TERMS[term]}) <= 1


@pytest.mark.parametrize("kind", ["bias", "relative"])
def test_terms_of_the_callers_own(kind: str) -> None:
    case, rng = Case((900, 900), 900, tokens=3), np.random.default_rng(1)
    shape = (2, 4, 3, 900) if kind == "bias" else (2, 3, 4, 50)
    term, given = rng.standard_normal(shape).astype(dtypes.parse("bf16").numpy), inputs(case)
    for _ in range(2):
        got = gpukit.attention_decode(**on_gpu(given.call | {kind: term}), return_lse=True)
    for b in range(2):
        rules = replace(CAUSAL, **{kind: term[b:b + 1]})
        assert error_of(on_host(got), given, case, b, rules) <= 1


@pytest.mark.parametrize("captured", [(2100, 2100, 2100), (1, 0, 3)])
@pytest.mark.parametrize("planned", [False, True])
def test_a_captured_call_serves_other_lengths(planned: bool, captured: tuple[int, ...]) -> None:
    case = replace(SKEWED, lengths=(2100, 2100, 2100))
    given = inputs(case)
    call = on_gpu(given.call | {"lengths": np.array(captured, np.uint32)})
    plan = DecodePlan.of(call["q"], call["k"], call["v"]) if planned else None
    out, stream = cupy.empty_like(call["q"]), cupy.cuda.Stream(non_blocking=True)
    with stream:
        gpukit.attention_decode(**call, out=out, plan=plan)
        stream.synchronize()
        stream.begin_capture()
        gpukit.attention_decode(**call, out=out, plan=plan)
        graph = stream.end_capture()
        for lengths in ((5, 700, 2100), (2100, 1, 0), (64, 2099, 1000), (0, 0, 0)):
            now = replace(case, lengths=lengths)
            call["lengths"][:] = cupy.array(lengths, "uint32")
            for _ in range(3):
                graph.launch(stream)
            _, lse = gpukit.attention_decode(**call, return_lse=True)  # beside, with its own
            assert worst(on_host((out, lse)), given, now, CAUSAL) <= 1


@pytest.mark.parametrize("queries", ["", "bf16"])
@pytest.mark.parametrize("batch", [4, 16, 64])
def test_all_bits_of_many_runs_are_equal(batch: int, queries: str) -> None:
    lengths = 700, *range(7, 7 * batch, 7)
    case = Case(lengths, 700, heads=8, kv_heads=2, dim=128, queries=queries)
    call = on_gpu(inputs(case).call)
    first = gpukit.attention_decode(**call)
    for _ in range(200):
        again = gpukit.attention_decode(**call)
        assert bool((again.view("u2") == first.view("u2")).all())


def test_streams_do_not_share_counters() -> None:
    given = inputs(SKEWED)
    call, streams = on_gpu(given.call), [cupy.cuda.Stream(non_blocking=True) for _ in "ab"]
    cupy.cuda.Device().synchronize()
    results = []
    for _ in range(100):
        for stream in streams:
            with stream:
                results.append(gpukit.attention_decode(**call, return_lse=True))
    cupy.cuda.Device().synchronize()
    for got in results[-4:]:
        assert worst(on_host(got), given, SKEWED, CAUSAL) <= 1


def test_the_short_way_still_refuses() -> None:
    call = on_gpu(inputs(SKEWED).call)
    out = gpukit.attention_decode(**call)
    gpukit.attention_decode(**call, out=out)
    with pytest.raises(ArgumentError, match="lengths has shape"):
        gpukit.attention_decode(**call | {"lengths": call["lengths"][:3]})
    with pytest.raises(ArgumentError, match="out overlaps k"):
        flat = call["k"].reshape(-1)[:out.size].reshape(out.shape)
        gpukit.attention_decode(**call, out=flat)
    with pytest.raises(ArgumentError, match="softcap"):
        gpukit.attention_decode(**call, softcap=-1.0)


@pytest.mark.parametrize("paged", [False, True])
def test_offsets_beyond_two_to_the_31(paged: bool) -> None:
    far, rows = 2**31 + 128, 64  # elements from sequence (or page) 0 to 1
    if cupy.cuda.runtime.memGetInfo()[0] < 6 << 30:
        pytest.skip("needs 6 GB of GPU memory")
    case = Case((rows, rows), rows, heads=4, dim=64)
    given, dtype = inputs(case), dtypes.parse("bf16").numpy
    store = cupy.empty(far + rows * 64, dtype)
    keys = cupy.lib.stride_tricks.as_strided(store, (2, rows, 1, 64), (2 * far, 128, 128, 2))
    keys[...] = cupy.asarray(given.k)
    pages = {"page_table": cupy.array([[0], [1]], "uint32")} if paged else {}
    got = gpukit.attention_decode(cupy.asarray(given.q), keys, keys, return_lse=True, **pages)
    assert worst(on_host(got), replace(given, v=given.k), case, CAUSAL) <= 1


@pytest.mark.parametrize("page", [1, 16])
def test_far_pages(page: int) -> None:
    """Page numbers times what a page has are beyond 2^31 elements."""
    case = Case((64,), 64, heads=4, dim=64)
    given, dtype = inputs(case), dtypes.parse("bf16").numpy
    if cupy.cuda.runtime.memGetInfo()[0] < 6 << 30:
        pytest.skip("needs 6 GB of GPU memory")
    pages = cupy.empty(2**31 + 2**20, dtype).reshape(-1, page, 1, 64)
    table = len(pages) - 3 - 2 * cupy.arange(64 // page, dtype="uint32")[None]
    pages[table[0].astype("i8")] = cupy.asarray(given.k).reshape(-1, page, 1, 64)
    got = gpukit.attention_decode(cupy.asarray(given.q), pages, pages, page_table=table,
                                  return_lse=True)
    assert worst(on_host(got), replace(given, v=given.k), case, CAUSAL) <= 1


def test_another_device() -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    given = inputs(SKEWED)
    with cupy.cuda.Device(1):
        call = on_gpu(given.call)
    for _ in range(2):
        got = gpukit.attention_decode(**call, return_lse=True)
    assert got[0].device.id == 1
    with cupy.cuda.Device(1):
        assert worst(on_host(got), given, SKEWED, CAUSAL) <= 1
    with pytest.raises(ArgumentError, match="k is on cuda:0"):
        gpukit.attention_decode(**call | {"k": cupy.zeros_like(call["k"])})


def test_torch_tensors_say_what_they_hold() -> None:
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    given = {name: cupy.asarray(x.view(np.uint8)) if name in "qkv" else x
             for name, x in inputs(Case((300, 5), 300, queries="e4m3")).call.items()}
    rest = {name: cupy.asarray(x) if hasattr(x, "shape") else x
            for name, x in given.items() if name not in "qkv"}
    tensors = {name: torch.from_dlpack(given[name]).view(torch.float8_e4m3fn) for name in "qkv"}
    want = gpukit.attention_decode(**{name: given[name] for name in "qkv"}, **rest)
    assert (gpukit.attention_decode(**tensors, **rest) == want).all()
