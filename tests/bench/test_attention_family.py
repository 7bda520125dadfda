"""`gpukit bench attention` without a GPU: its cases, its check, its FLOPs."""

from __future__ import annotations

import pytest

from gpukit.bench.families import load_family
from gpukit.bench.families.attention import Pairs
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import ArgumentError, UnsupportedError


@pytest.fixture
def family():
    return load_family("attention")


def cases(family, **options):
    parse = {axis.name: axis.parse for axis in family.axes}
    return select_cases(family, {name: parse[name](text) for name, text in options.items()},
                        emulated=True)


def prepared(family, **options):
    (case,) = cases(family, **options)
    return family.prepare(case, emulated.get("h100"), ())


def test_tokens_are_cut_into_sequences(family):
    found = cases(family, length="1024,512", tokens="2048", heads="64/8", mask="null")
    assert [dict(c.shape) for c in found] == [
        {"b": 2, "s": 1024, "h": 64, "kv": 8, "d": 128 // 2, "dv": 64},
        {"b": 4, "s": 512, "h": 64, "kv": 8, "d": 64, "dv": 64}]


def test_only_windows_have_a_width(family):
    found = cases(family, mask="causal,sliding_causal", window="8,16")
    assert [c.params.get("window") for c in found] == [None, 8, 16]


def test_a_width_without_a_window_is_refused(family):
    with pytest.raises(ArgumentError, match="--window is for --mask sliding_causal"):
        cases(family, mask="causal", window="8")


@pytest.mark.parametrize("mask", ["null", "causal", "sliding_causal"])
def test_the_check_takes_the_right_answer_alone(family, mask):
    width = {"window": "9"} if mask == "sliding_causal" else {}
    case = prepared(family, kernel="k2", mask=mask, length="70", tokens="70", **width)
    case.poison()
    assert not case.check().ok
    case.work.launch(0)
    assert case.check().ok
    out = case.out[0]
    out[0, :, 0] = out[0, :, 1]
    assert not case.check().ok


def test_the_check_of_eight_bits(family):
    case = prepared(family, kernel="auto", dtype="e4m3", mask="causal", length="70", tokens="70")
    case.poison()
    case.work.launch(0)
    assert case.check().ok
    out = case.out[0]
    out[0, :, 0] = out[0, :, 1]
    assert not case.check().ok


def test_flops_are_those_of_visible_scores(family):
    per_score = 2 * 2 * (64 + 64)  # heads, multiply and add, q.k and p.v
    options = {"kernel": "k2", "length": "8", "tokens": "8"}
    assert prepared(family, mask="null", **options).flops == 64 * per_score
    assert prepared(family, mask="causal", **options).flops == 32 * per_score
    window = prepared(family, mask="sliding_causal", window="3", **options)
    assert window.flops == (1 + 2 + 3 * 6) * per_score


def test_too_large_to_emulate(family):
    with pytest.raises(UnsupportedError, match="too many to emulate; at most 262144"):
        prepared(family, length="4096", tokens="4096", mask="null")


def test_heads_must_be_a_multiple(family):
    with pytest.raises(UnsupportedError, match="3 heads of q are no multiple of 2"):
        prepared(family, heads="3/2", mask="null")


@pytest.mark.parametrize("text", ["x", "1/2/3", "0", "8/0", "300", ""])
def test_pairs_are_numbers_in_range(text):
    with pytest.raises(ArgumentError, match="is not heads"):
        Pairs("heads", 256)(text)
