"""Mistakes that attention kernels elsewhere have made, one test or more for each.

    fully masked rows; zero lengths      test_masks (5 tokens of 3 keys), test_lengths, all_empty
    merging empty states; sign of LSE    test_splits_meet (lengths 0 and 5 in 7 parts)
    a finite stand-in for minus infinity very_negative_scores
    0 x NaN of unused slots              every case: caches hold NaN beyond lengths
    nothing at all                       nothing
    32-bit offsets; large page numbers   test_offsets_beyond_two_to_the_31, test_far_pages (GPU)
    strides taken for granted            test_views_are_read_where_they_lie, expanded
    alignment                            misaligned, test_wrong_arguments_are_named
    alignment of masks; windows          test_masks against the oracle's brute force
    head dims that no kernel takes       test_wrong_arguments_are_named, test_head_dims
    replay of a graph, other lengths     test_a_captured_call_serves_other_lengths (GPU),
                                         test_an_even_cut_serves_other_lengths_later
    edges between variants               test_groups, test_what_is_chosen (GPU)
    masks over pages                     masks_over_pages, test_an_evicted_part_of_a_window...
    sinks: once, also without keys       test_terms (two parts; length 0), sinks_beside_a_softcap
    another device                       test_another_device (two GPUs)
    lengths beyond the cache             lengths_beyond_the_cache
    reads past the last page             every paged case: entries there name no page, and the
                                         emulator checks all addresses
    barriers, races                      test_every_schedule_gives_the_same_bits
    hangs                                no kernel waits for another CTA outside its cluster
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decode_cases import MASKS, Case, cut, even, inputs, worst

import gpukit
from gpukit import dtypes
from gpukit.devices import emulated
from gpukit.errors import ArgumentError
from gpukit.ops.attention.decode import DecodePlan
from gpukit.ops.attention.plan import Config
from gpukit.reference.attention import Rules

BF16 = dtypes.parse("bf16").numpy
CAUSAL = Rules(mask="causal")
CONFIGS = [cut("transposed_8", parts=2), even("warpgroup_8", 3)]


@pytest.fixture(autouse=True)
def h100() -> Iterator[None]:
    before = emulated.current()
    emulated.get("h100").use()
    yield
    before.use()


def attend(case: Case, config: Config, given: Any = None, rules: Rules = CAUSAL,
           **options: Any) -> float:
    given = given or inputs(case)
    plan = DecodePlan(emulated.current(), case.problem(), config)
    got = gpukit.attention_decode(**given.call | options, return_lse=True, plan=plan)
    return worst(got, given, case, rules)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_very_negative_scores(config: Config) -> None:
    case = Case((3, 70), 80, page=16)
    given = inputs(case)
    q = np.full_like(given.q, 100)
    for store in (given.call["k"], given.k):
        store[np.isfinite(store.astype(np.float32))] = BF16.type(-100)
    assert attend(case, config, replace(given, q=q, call=given.call | {"q": q})) <= 1


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_all_empty(config: Config) -> None:
    assert attend(Case((0, 0, 0), 64), config) <= 1


@pytest.mark.parametrize("q, k", [
    ((0, 4, 64), (0, 8, 1, 64)), ((2, 0, 4, 64), (2, 8, 1, 64)), ((2, 0, 64), (2, 8, 1, 64)),
    ((2, 4, 64), (2, 0, 1, 64))], ids=str)
def test_nothing(q: tuple[int, ...], k: tuple[int, ...]) -> None:
    cache = np.zeros(k, BF16)
    out, lse = gpukit.attention_decode(np.ones(q, BF16), cache, cache, return_lse=True)
    assert out.shape == q and not out.astype(np.float32).any()
    assert np.isneginf(lse).all()


def test_expanded() -> None:
    case = Case((60, 60), 60)
    given = inputs(case)
    first = given.k[:1]
    shared = np.broadcast_to(first, given.k.shape)
    got = gpukit.attention_decode(given.q, shared, shared, return_lse=True)
    assert worst(got, replace(given, k=shared, v=shared), case, CAUSAL) <= 1


def test_misaligned() -> None:
    given = inputs(Case((5, 6), 8)).call
    moved = np.zeros(given["k"].size + 4, BF16)[4:].reshape(given["k"].shape)
    with pytest.raises(ArgumentError, match="k starts at an address that is no multiple of 16"):
        gpukit.attention_decode(**given | {"k": moved})


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("page", [4, 16])
def test_masks_over_pages(page: int, mask: str) -> None:
    case = Case((90, 33), 96, tokens=3, heads=2, page=page)
    rules = Rules(mask=mask, **MASKS[mask])
    assert attend(case, CONFIGS[page == 16], None, rules, mask=mask, **MASKS[mask]) <= 1


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_sinks_beside_a_softcap(config: Config) -> None:
    terms = {"sinks": np.array([0, 3, -2, 1], np.float32), "softcap": 1.5}
    assert attend(Case((0, 150), 150), config, None, replace(CAUSAL, **terms), **terms) <= 1


@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_lengths_beyond_the_cache(config: Config, page: int) -> None:
    case = Case((48, 48), 48, page=page)
    given = inputs(case)
    beyond = given.call | {"lengths": np.array([49, 2**32 - 1], np.uint32)}
    assert attend(case, config, replace(given, call=beyond)) <= 1
