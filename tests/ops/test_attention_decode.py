"""Decoding without a GPU: the kernels' own PTX against the oracle, every check of the emulator on.

Slots of the cache beyond a sequence's length hold NaN, and so does the output; table entries that
nobody needs name no page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from decode_cases import (
    FORMS,
    MASKS,
    NOWHERE,
    TERMS,
    Case,
    cut,
    error_of,
    even,
    inputs,
    worst,
)

import gpukit
from gpukit import dtypes, emulator
from gpukit.devices import emulated
from gpukit.emulator.policies import POLICIES
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.attention.decode import DecodePlan
from gpukit.ops.attention.paged import layer
from gpukit.ops.attention.plan import Config, Problem, choose
from gpukit.reference.attention import Rules


@pytest.fixture(autouse=True)
def h100() -> Iterator[None]:
    before = emulated.current()
    emulated.get("h100").use()
    yield
    before.use()


def attend(case: Case, config: Config | None = None, rules: Rules | None = None,
           **options: Any) -> float:
    rules = rules or Rules(mask="causal")
    given = inputs(case)
    out = np.full(given.q.shape, np.nan, dtypes.parse(case.dtype).numpy)
    plan = None if config is None else DecodePlan(emulated.current(), case.problem(), config)
    got = gpukit.attention_decode(**given.call, out=out, return_lse=True, plan=plan, **options)
    assert got[0] is out or np.shares_memory(got[0], out)
    return worst(got, given, case, rules)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 63, 64, 65, 131])
@pytest.mark.parametrize("form", FORMS)
def test_lengths(form: str, length: int) -> None:
    assert attend(Case((length,), 140), cut(form)) <= 1


@pytest.mark.parametrize(("cluster", "parts"), [(1, 2), (1, 7), (2, 1), (4, 2)])
@pytest.mark.parametrize("form", ["plain", "transposed_8", "warpgroup_8"])
def test_splits_meet(form: str, cluster: int, parts: int) -> None:
    case = Case((0, 5, 173), 173, heads=6, kv_heads=2)
    assert attend(case, cut(form, cluster, parts)) <= 1


@pytest.mark.parametrize(("form", "ctas"), [
    ("plain", 3), ("transposed_8", 1), ("transposed_8", 40), ("warpgroup_8", 1),
    ("warpgroup_8", 5)])
def test_an_even_cut_of_uneven_lengths(form: str, ctas: int) -> None:
    case = Case((70, 0, 0, 129, 1), 130, heads=6, kv_heads=2, page=16 * (ctas % 2))
    assert attend(case, even(form, ctas)) <= 1


@pytest.mark.parametrize("gangs", [1, 2, 5])
@pytest.mark.parametrize("lengths", [(300, 1, 64, 200), (200, 0, 0, 250)])
def test_an_even_cut_of_short_and_long_pieces(lengths: tuple[int, ...], gangs: int) -> None:
    case = Case(lengths, 300, heads=6, kv_heads=2, page=4 * (gangs % 2))
    assert attend(case, even("warpgroup_8", gangs, 2 + gangs % 2)) <= 1


@pytest.mark.parametrize("mask", MASKS)
def test_an_even_cut_counts_what_a_mask_shows(mask: str) -> None:
    case = Case((3, 150), 150, tokens=3, heads=8)
    rules = Rules(mask=mask, **MASKS[mask])
    assert attend(case, even("warpgroup_8", 4), rules, mask=mask, **MASKS[mask]) <= 1


@pytest.mark.parametrize("form", ["warpgroup_8"])
def test_an_even_cut_serves_other_lengths_later(form: str) -> None:
    case = Case((300, 1), 320)
    plan = DecodePlan(emulated.current(), case.problem(), even(form, 3))
    for lengths in ((300, 1), (0, 0), (64, 65), (1, 301)):
        now = replace(case, lengths=lengths)
        given = inputs(now)
        got = gpukit.attention_decode(**given.call, return_lse=True, plan=plan)
        assert worst(got, given, now, Rules(mask="causal")) <= 1


NARROW = {"bf16": "bf16", "f16": "f16", "e4m3": "bf16"}  # the output's type by the queries'


@pytest.mark.parametrize("length", [0, 1, 16, 17, 65])
@pytest.mark.parametrize("queries", NARROW)
def test_a_cache_of_8_bits(queries: str, length: int) -> None:
    case = Case((length,), 70, heads=6, kv_heads=2, queries=queries, dtype=NARROW[queries])
    assert attend(case, cut("narrow_8")) <= 1


@pytest.mark.parametrize(("page", "dim", "config"), [
    (2, 64, cut("narrow_16", 2, 3)), (16, 96, even("narrow_8", 5)), (0, 128, cut("narrow_8", 4)),
    (2, 192, even("narrow_16", 3)), (16, 256, cut("narrow_8", parts=3))], ids=str)
def test_cuts_and_pages_of_8_bits(page: int, dim: int, config: Config) -> None:
    case = Case((3, 100), 100, heads=9, page=page, dim=dim, queries="bf16")
    assert attend(case, config) <= 1


@pytest.mark.parametrize("term", TERMS)
def test_terms_with_8_bits(term: str) -> None:
    rules = replace(Rules(mask="causal"), **{term: TERMS[term]})
    assert attend(Case((0, 60), 60, queries="bf16"), None, rules, **{term: TERMS[term]}) <= 1


def test_scales_of_8_bits_are_one_element_or_one_per_head() -> None:
    given = inputs(Case((60,), 60, heads=4, kv_heads=2, queries="bf16")).call
    dense = np.broadcast_to(given["k_scale"], (1, 2))
    want = gpukit.attention_decode(**given)
    assert (gpukit.attention_decode(**given | {"k_scale": dense[0].copy()}) == want).all()
    one = [gpukit.attention_decode(**given | {"k_scale": np.full(shape, 0.5, np.float32)})
           for shape in ((), (1,), (1, 2))]
    assert (one[0] == one[2]).all() and (one[1] == one[2]).all()


def test_no_sequences_have_terms_of_any_strides() -> None:
    """NumPy's empty results have strides of 0."""
    q, k, bias = (np.zeros(shape, np.float16) * 1
                  for shape in ((0, 1, 4, 64), (0, 8, 2, 64), (0, 1, 8)))
    assert gpukit.attention_decode(q, k, k, bias=bias).shape == q.shape
    assert gpukit.attention_decode(q, k, k, relative=q[..., :3] * 1).shape == q.shape


@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_queries_of_any_size_with_8_bits(size: float) -> None:
    case = Case((60,), 60, queries="bf16")
    given = inputs(case)
    q = (given.q * np.float64(size)).astype(dtypes.parse("bf16").numpy)
    got = gpukit.attention_decode(**given.call | {"q": q}, return_lse=True)
    assert worst(got, replace(given, q=q), case, Rules(mask="causal")) <= 1


@pytest.mark.parametrize("page", [1, 2, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("form", ["transposed_8", "warpgroup_8"])
def test_pages(form: str, page: int) -> None:
    assert attend(Case((0, 1, 67), 80, page=page), cut(form, parts=2)) <= 1


@pytest.mark.parametrize("group", [1, 2, 3, 8, 9, 16, 17])
@pytest.mark.parametrize("form", FORMS)
def test_groups(form: str, group: int) -> None:
    assert attend(Case((33,), 40, heads=2 * group, kv_heads=2), cut(form)) <= 1


@pytest.mark.parametrize(("dim", "dtype"), [
    (64, "bf16"), (80, "f16"), (96, "bf16"), (128, "bf16"), (128, "f16"), (192, "bf16"),
    (256, "bf16")])
def test_head_dims(dim: int, dtype: str) -> None:
    assert attend(Case((45,), 50, heads=3, dim=dim, dtype=dtype)) <= 1


@pytest.mark.parametrize("form", ["plain", "transposed_8", "warpgroup_8", "narrow_8"])
def test_scores_that_rise_by_little_and_by_much(form: str) -> None:
    slopes = np.array([0.05, 0.2, 1, -1], np.float32)  # the last one's fall
    case = Case((190,), 192, page=16, queries="bf16" if form == "narrow_8" else "")
    assert attend(case, cut(form, stages=1), Rules(mask="causal", alibi=slopes), alibi=slopes) <= 1


@pytest.mark.parametrize(("dim", "page", "config"), [
    (80, 16, even("warpgroup_8", 2)), (96, 1, cut("warpgroup_8", 2))], ids=str)
def test_the_warpgroup_form_has_heads_that_end_within_a_slab(dim: int, page: int,
                                                             config: Config) -> None:
    assert attend(Case((150, 0), 160, dim=dim, page=page), config) <= 1


@pytest.mark.parametrize(("case", "config"), [
    (Case((70, 3), 70, dim=96, tokens=5, dtype="f16"), cut("upright_64", 2)),
    (Case((60, 0, 70), 72, page=2), even("upright_64", 2))], ids=str)
def test_the_warpgroup_form_upright(case: Case, config: Config) -> None:
    assert attend(case, config) <= 1


@pytest.mark.parametrize("dim", [128, 256])
@pytest.mark.parametrize("rows", [8, 32, 64])
def test_the_warpgroup_form_has_wide_heads_and_many_rows(rows: int, dim: int) -> None:
    case = Case((70,), 70, heads=8, tokens=rows // 8, dim=dim)
    assert attend(case, cut(f"warpgroup_{rows}", stages=1)) <= 1


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", ["transposed_8", "warpgroup_8"])
def test_masks(form: str, mask: str, tokens: int) -> None:
    case = Case((3, 100), 100, tokens=tokens, heads=2)
    rules = Rules(mask=mask, **MASKS[mask])
    assert attend(case, cut(form, parts=2), rules, mask=mask, **MASKS[mask]) <= 1


@pytest.mark.parametrize("extra", TERMS)
@pytest.mark.parametrize("form", ["plain", "transposed_8", "warpgroup_8"])
def test_terms(form: str, extra: str) -> None:
    value = TERMS[extra]
    case, rules = Case((0, 60), 60), replace(Rules(mask="causal"), **{extra: value})
    assert attend(case, cut(form, parts=2), rules, **{extra: value}) <= 1


@pytest.mark.parametrize("shape", [(2, 3, 70), (2, 4, 3, 70), (1, 4, 3, 70), (2, 1, 3, 70)])
@pytest.mark.parametrize("form", ["plain", "transposed_8", "warpgroup_16"])
def test_bias(form: str, shape: tuple[int, ...]) -> None:
    case, rng = Case((2, 60), 70, tokens=3), np.random.default_rng(1)
    bias = rng.standard_normal(shape).astype(dtypes.parse("bf16").numpy)
    bias[..., 5] = -np.inf
    given, dense = inputs(case), bias if bias.ndim == 4 else bias[:, None]
    got = gpukit.attention_decode(**given.call, bias=bias, return_lse=True,
                                  plan=planned(case, cut(form, parts=2), "bias"))
    for b, length in enumerate(case.lengths):
        own = dense[b if len(dense) > 1 else 0][None, ..., :length].astype(np.float64)
        rules = Rules(mask="causal", bias=own)
        assert error_of(got, given, case, b, rules) <= 1


@pytest.mark.parametrize("mask", ["causal", "sliding_causal"])
@pytest.mark.parametrize("form", ["plain", "transposed_8", "warpgroup_16"])
def test_relative_logits(form: str, mask: str) -> None:
    case, rng = Case((2, 60), 70, tokens=3, page=2), np.random.default_rng(1)
    logits = rng.standard_normal((2, 3, 4, 9)).astype(dtypes.parse("bf16").numpy)
    given, words = inputs(case), {"mask": mask, **MASKS[mask]}
    got = gpukit.attention_decode(**given.call, relative=logits, return_lse=True, **words,
                                  plan=planned(case, cut(form, parts=2), "relative"))
    for b in range(2):
        assert error_of(got, given, case, b, Rules(**words, relative=logits[b:b + 1])) <= 1


@pytest.mark.parametrize("queries", ["bf16", "e4m3"])
def test_bias_and_relative_logits_with_8_bits_are_of_the_results_type(queries: str) -> None:
    case, rng = Case((60,), 60, tokens=2, queries=queries), np.random.default_rng(1)
    given, (of_q, _) = inputs(case), case.types
    for name, shape in (("bias", (1, 4, 2, 60)), ("relative", (1, 2, 4, 9))):
        term = rng.standard_normal(shape).astype(dtypes.parse("bf16").numpy)
        got = gpukit.attention_decode(**given.call, **{name: term}, return_lse=True)
        assert error_of(got, given, case, 0, Rules(mask="causal", **{name: term})) <= 1
        for other in {of_q, np.dtype(np.uint8), np.dtype(np.float16)} - {term.dtype}:
            with pytest.raises(ArgumentError, match=f"{name} has dtype.*accepted: bfloat16"):
                gpukit.attention_decode(**given.call, **{name: np.zeros(shape, other)})


def planned(case: Case, config: Config, extra: str) -> DecodePlan:
    return DecodePlan(emulated.current(), case.problem()._replace(extra=extra), config)


def test_an_evicted_part_of_a_window_is_not_read() -> None:
    case = Case((90,), 96, page=16)
    given = inputs(case)
    first = (90 - 40) // 16  # pages before the window's first key are gone
    given.call["page_table"][:, :first] = NOWHERE
    got = gpukit.attention_decode(**given.call, mask="sliding_causal", window=40, return_lse=True)
    assert worst(got, given, case, Rules(mask="sliding_causal", window=40)) <= 1


def test_a_plan_serves_other_lengths_later() -> None:
    case = Case((300,), 320)
    plan = DecodePlan(emulated.current(), case.problem(), cut("transposed_8", 1, 6))
    for length in (300, 0, 17, 320, 301):
        now = replace(case, lengths=(length,))
        given = inputs(now)
        got = gpukit.attention_decode(**given.call, return_lse=True, plan=plan)
        assert worst(got, given, now, Rules(mask="causal")) <= 1


@pytest.mark.parametrize("config", [
    cut("plain", 2, 2), cut("transposed_8", 2, 2), cut("warpgroup_8", 2, 2),
    even("warpgroup_8", 3)], ids=str)
def test_every_schedule_gives_the_same_bits(config: Config,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case((150, 20), 150, page=4)
    given, run = inputs(case), emulator.run
    plan = DecodePlan(emulated.current(), case.problem(), config)
    results = []
    for seed, chosen in enumerate(("random", *POLICIES)):
        monkeypatch.setattr(emulator, "run", partial(run, policy=chosen, seed=seed))
        results.append(gpukit.attention_decode(**given.call, return_lse=True, plan=plan))
    assert worst(results[0], given, case, Rules(mask="causal")) <= 1
    for result in results[1:]:
        for got, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(got.view("u1"), first.view("u1"))


def test_views_are_read_where_they_lie() -> None:
    rng, dtype = np.random.default_rng(0), dtypes.parse("bf16").numpy
    blocks = rng.standard_normal((4, 2, 3, 16, 2, 64)).astype(dtype)
    k, v = layer(blocks, 1)
    table = np.array([[2, 0], [1, 3]], np.uint32)
    q = rng.standard_normal((2, 4, 128)).astype(dtype)[:, :, 64:]
    out = gpukit.attention_decode(q, k, v, page_table=table)
    heads_first = [np.ascontiguousarray(x[table].reshape(2, 32, 2, 64).swapaxes(1, 2))
                   for x in (k, v)]
    again = gpukit.attention_decode(q[:, None], *(x.swapaxes(1, 2) for x in heads_first))
    assert out.shape == (2, 4, 64)
    np.testing.assert_array_equal(out, again[:, 0])


def chosen(batch: int, keys: int, **changes: Any) -> Config:
    return choose(Problem("bf16", batch, 1, 32, 8, 128, keys, 0, 132)._replace(**changes))


def test_plans_fill_the_gpu_but_do_not_starve_warps() -> None:
    alone = chosen(1, 8192)
    assert 0.9 * 132 <= 8 * alone.parts * alone.cluster <= 3 * 132
    short = chosen(1, 64)
    assert short.parts * short.cluster == 1 and short.stages == 1


@pytest.mark.parametrize("page", [0, 1, 16])
@pytest.mark.parametrize("batch", [12, 16, 24, 100, 512])
def test_plans_of_much_work_give_every_sm_as_much(batch: int, page: int) -> None:
    config = chosen(batch, 8192, page=page, uneven=True)
    assert config.cut == "even" and 0.9 * 132 <= 8 * config.parts <= 3 * 132


@pytest.mark.parametrize("batch", [65536, 70000, 1000001])
def test_more_sequences_than_a_grid_has_blocks_are_cut_evenly(batch: int) -> None:
    assert chosen(batch, 128).cut == "even"


@pytest.mark.parametrize("queries", ["", "bf16"])
@pytest.mark.parametrize("batch", [1, 2, 5, 6, 8, 9, 12, 16, 24, 33, 36, 64, 100, 128])
def test_a_grid_of_equal_lengths_fills_the_gpu_or_fits_it_or_is_even(batch: int,
                                                                     queries: str) -> None:
    config = chosen(batch, 1 << 15, queries=queries)
    ctas = 8 * config.parts * config.cluster * (batch if config.cut == "grid" else 1)
    waves = ctas / 132 if ctas <= 132 else ctas / 264
    assert 132 <= ctas <= 264 or waves / math.ceil(waves) >= 0.9 or waves >= 3


def test_gangs_fit_equal_lengths_if_that_leaves_few_sms_idle() -> None:
    gangs = {batch: chosen(batch, 1 << 15, page=16, uneven=True).parts
             for batch in (1, 16, 24, 33, 64, 100)}
    assert gangs == {1: 33, 16: 32, 24: 33, 33: 33, 64: 32, 100: 33}


def test_all_ctas_of_an_even_cut_have_room_at_once() -> None:
    for dim in (64, 80, 96, 128, 192, 256):
        for queries, heads in (("", 32), ("", 512), ("bf16", 32), ("bf16", 512)):
            if queries and dim == 80:
                continue
            p = Problem("bf16", 64, 1, heads, 8, dim, 8192, 16, 132, queries=queries,
                        uneven=True)
            config = choose(p)
            spec = config.spec
            shared = spec.shared_bytes(spec.resolve(config.tunables(p)))
            assert config.cut == "even"
            resident = -(-config.units(p) * config.parts // 132)
            assert resident * (shared + 1024) <= 227 << 10, (dim, queries, heads)


def refused(error: type[Exception], text: str, **changes: Any) -> None:
    given = inputs(Case((5, 6), 8)).call | changes
    with pytest.raises(error, match=text):
        gpukit.attention_decode(**given)


def test_wrong_arguments_are_named() -> None:
    good = inputs(Case((5, 6), 8)).call
    q, k = good["q"], good["k"]
    refused(UnsupportedError, "q has dtype float32", q=q.astype(np.float32))
    refused(ArgumentError, "k has dtype float16", k=k.astype(np.float16))
    refused(ArgumentError, "v has shape", v=k[:, :7])
    refused(ArgumentError, "k has shape", k=k[..., :32])
    refused(ArgumentError, "v has dtype uint8, k bfloat16", v=np.zeros(k.shape, np.uint8))
    refused(ArgumentError, "k_scale is for 8-bit arrays", k_scale=1.0)
    refused(ArgumentError, "k has strides", k=np.zeros((2, 8, 1, 66), k.dtype)[..., :64])
    refused(ArgumentError, "q has strides", q=q[..., ::-1])
    refused(ArgumentError, "3 heads", q=q[:, :, :3], k=np.repeat(k, 2, 2), v=np.repeat(k, 2, 2))
    refused(ArgumentError, "k has 1 sequences", k=k[:1], v=k[:1])
    refused(ArgumentError, "lengths has shape", lengths=np.zeros(2, np.int64))
    refused(ArgumentError, "page_table has shape", page_table=np.zeros((1, 1), np.uint32))
    refused(UnsupportedError, "pages of 6 rows", k=k[:, :6], v=k[:, :6],
            page_table=np.zeros((2, 1), np.uint32))
    refused(ArgumentError, "bias has shape", bias=np.zeros((2, 1, 7), q.dtype))
    refused(ArgumentError, "bias has strides", bias=np.zeros((2, 1, 16), q.dtype)[..., ::2])
    refused(ArgumentError, "relative has dtype", relative=np.zeros((2, 1, 4, 3), np.float32))
    refused(ArgumentError, "relative is for", relative=np.zeros((2, 1, 4, 3), q.dtype), mask="null")
    refused(ArgumentError, "window=None", mask="sliding")
    refused(ArgumentError, "softcap=-1", softcap=-1.0)
    refused(ArgumentError, "out has shape", out=np.zeros((2, 1, 4, 32), q.dtype))
    refused(ArgumentError, "out overlaps k", k=k, out=k[..., :4, 0:1, :].swapaxes(1, 2))
    refused(ArgumentError, "plan is for keys=8",
            plan=DecodePlan.of(q, k, k), k=k[:, :7], v=k[:, :7])
    narrow = {"k": np.zeros(k.shape, np.uint8), "v": np.zeros(k.shape, np.uint8)}
    refused(ArgumentError, "q_scale is for 8-bit arrays", **narrow, q_scale=1.0)
    refused(ArgumentError, "v_scale has shape", **narrow, v_scale=np.ones((2, 3), np.float32))
    refused(ArgumentError, "k_scale must be a real number", **narrow, k_scale="1")
    refused(UnsupportedError, "head dim of 48", q=q[..., :48], k=k[..., :48], v=k[..., :48])
