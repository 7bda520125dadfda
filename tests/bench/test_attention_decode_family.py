"""`gpukit bench attention-decode` without a GPU: its cases, its check, and the cuts it times."""

from __future__ import annotations

import pytest

from gpukit.bench.families import load_family
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import ArgumentError, UnsupportedError


@pytest.fixture
def family():
    return load_family("attention-decode")


def cases(family, **options):
    parse = {axis.name: axis.parse for axis in family.axes}
    return select_cases(family, {name: parse[name](text) for name, text in options.items()},
                        emulated=True)


def prepared(family, **options):
    (case,) = cases(family, **options)
    return family.prepare(case, emulated.get("h100"), ())


def test_pages_have_no_layout(family):
    found = cases(family, page="0,16", layout="bshd,bhsd")
    assert [(c.shape["page"], c.params.get("layout")) for c in found] == [
        (0, "bshd"), (0, "bhsd"), (16, None)]


@pytest.mark.parametrize("options", [
    {}, {"layout": "bhsd"}, {"page": "16"}, {"page": "1", "parts": "2"}, {"kernel": "plain"},
    {"kernel": "transposed", "tokens": "3"}, {"kernel": "warpgroup", "heads": "20/2"},
    {"cache": "e4m3", "page": "16"}, {"lengths": "mixed", "cut": "even", "parts": "3"},
    {"table": "shared", "page": "4", "kernel": "upright"}])
def test_the_check_takes_the_right_answer_alone(family, options):
    case = prepared(family, **options)
    case.poison()
    assert not case.check().ok
    case.work.launch(0)
    assert case.check().ok
    case.out[0][0, 0, 0] += case.out[0].dtype.type(0.05)
    assert not case.check().ok


def test_a_cut_is_what_is_launched(family):
    case = prepared(family, parts="3", cluster="2", stages="1", kernel="warpgroup")
    assert (case.launch["parts"], case.launch["cluster"], case.launch["stages"]) == (3, 2, 1)
    assert case.launch["form"] == "warpgroup_8"


def test_bytes_are_those_of_the_caches_once(family):
    case = prepared(family, batch="2", length="50", heads="4/2", dim="64")
    assert case.bytes_moved == 2 * (2 * 2 * 50 * 2 * 64 + 2 * 2 * 4 * 64)


def test_bytes_of_mixed_lengths_and_an_8_bit_cache(family):
    case = prepared(family, batch="3", length="80", heads="4/2", dim="64", lengths="mixed",
                    cache="e4m3")
    assert case.host_lengths[0] == 80 and case.host_lengths[1:].max() < 80
    keys = int(case.host_lengths.sum())
    assert case.bytes_moved == 2 * keys * 2 * 64 + 2 * 2 * 3 * 4 * 64


def test_sequences_that_share_pages_read_a_small_cache(family):
    case = prepared(family, batch="3", length="64", heads="4/2", page="16", table="shared")
    assert case.caches[0].k.shape == (4, 16, 2, 64)
    assert case.bytes_moved > 2 * case.footprint


def test_a_shared_table_needs_pages(family):
    with pytest.raises(ArgumentError, match="give --page"):
        cases(family, table="own,shared")
    assert len(cases(family, table="shared", page="0,16", batch="1", length="64")) == 2


def test_a_cut_may_be_asked_for(family):
    even = prepared(family, cut="even").launch
    assert even["cut"] == "even" and even["parts"] * 2 > 100
    grid = prepared(family, cut="grid").launch
    assert grid["cut"] == "grid" and grid["parts"] == 1


def test_what_transposing_was_predicted_to_gain(family):
    gains = [prepared(family, heads=f"{n}/1").launch["predicted"] for n in (1, 8, 16)]
    assert gains == [1.9, 1.9, 1.7]
    assert "predicted" not in prepared(family, kernel="plain").launch
    assert "predicted" not in prepared(family, kernel="upright").launch


def test_an_8_bit_cache_has_one_kernel(family):
    with pytest.raises(UnsupportedError, match="plain takes no cache of e4m3"):
        prepared(family, kernel="plain", cache="e4m3")


def test_too_large_to_emulate(family):
    with pytest.raises(UnsupportedError, match="too large to emulate"):
        prepared(family, batch="64", length="8192")


def test_heads_that_do_not_divide(family):
    with pytest.raises(UnsupportedError, match="5 heads of q are no multiple of 2"):
        prepared(family, heads="5/2")
