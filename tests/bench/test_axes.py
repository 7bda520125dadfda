"""What a user may write after an axis option, and what the refusals say."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpukit.bench.axes import MAX_RANGE, Choices, DTypes, Integers, Shapes, Sizes
from gpukit.errors import ArgumentError

MNK = Shapes(("M", "N", "K"))

ACCEPTED = [
    (Integers(), "1", (1,)),
    (Integers(), "4K,4Ki,4k,1Mi,1Gi", (4096, 4000, 2**20, 2**30)),
    (Integers(), "0:64:16", (0, 16, 32, 48, 64)),
    (Integers(), "0:60:16", (0, 16, 32, 48)),
    (Integers(), "1024:8192:x2", (1024, 2048, 4096, 8192)),
    (Integers(), "1:9000:x4,3", (1, 4, 16, 64, 256, 1024, 4096, 3)),
    (Integers(), "2:4", (2, 3, 4)),
    (Integers(), " 1, 2 ", (1, 2)),
    (Integers(), "7,7,1:3,2", (7, 1, 2, 3)),
    (Integers(), "1.5Ki", (1536,)),
    (Integers(allowed=(32, 64)), "all", (32, 64)),
    (Integers(minimum=-1), "-1", (-1,)),
    (Sizes(), "64MiB,1.5GB,4kB,12,7B,2Mi", (2**26, 1_500_000_000, 4000, 12, 7, 2**21)),
    (Sizes(), "1MiB:16MiB:x4", (2**20, 2**22, 2**24)),
    (Sizes(), "1MiB:3MiB:1MiB", (2**20, 2**21, 3 * 2**20)),
    (MNK, "4096x4096x64", ((4096, 4096, 64),)),
    (MNK, "4Kx1x2,35x79x19", ((4096, 1, 2), (35, 79, 19))),
    (MNK, "512", ((512, 512, 512),)),
    (MNK, "512:1024:x2", ((512, 512, 512), (1024, 1024, 1024))),
    (
        MNK,
        "1:4:x2x16x8:16:8",
        ((1, 16, 8), (1, 16, 16), (2, 16, 8), (2, 16, 16), (4, 16, 8), (4, 16, 16)),
    ),
    (Choices(("copy", "sqrt")), "sqrt,copy", ("sqrt", "copy")),
    (Choices(("copy", "sqrt")), "all,copy", ("copy", "sqrt")),
    (DTypes(("f32", "bf16")), "bfloat16,f32,float32", ("bf16", "f32")),
]

REFUSED = [
    (Integers(), "abc", "'abc' is not an integer"),
    (Integers(), "1:2:3:4", "two colons"),
    (Integers(), "9:1", "9 is above 1"),
    (Integers(), "0:8:x2", "never reaches"),
    (Integers(), "1:8:x1", "never reaches"),
    (Integers(), "1:8:0", "never reaches"),
    (Integers(), f"0:{MAX_RANGE}", f"more than {MAX_RANGE}"),
    (Integers(), "1,,2", "'1,,2' has an empty item"),
    (Integers(), "", "empty item"),
    (Integers(), "4M", "'4M' is not an integer"),
    (Integers(), "4ki", "'4ki' is not an integer"),
    (Integers(), "1.5", "'1.5' is not an integer"),
    (Integers(), "64B", "'64B' is not an integer"),
    (Integers(minimum=1), "0", "of at least 1"),
    (Integers(allowed=(32, 64)), "48", "'48' is not one of 32, 64, all"),
    (Sizes(), "64M", "'64M' is not a size in bytes"),
    (Integers(1, maximum=8), "9", "of at least 1 and at most 8"),
    (MNK, "1:200x1:200x1", "'1:200x1:200x1' is 40000 shapes; at most 10000"),
    (Sizes(), "1.3B", "'1.3B' is not a size"),
    (Sizes(minimum=1), "0", "below 1 bytes"),
    (MNK, "4x4", "'4x4' is not a shape MxNxK (4096x4096x4096)"),
    (MNK, "4xax4", "'4xax4' is not a shape"),
    (Shapes(("M", "N"), minimum=1), "0x3", "'0x3' has a dimension below 1"),
    (Choices(("copy", "sqrt")), "cube", "'cube' is not one of copy, sqrt, all"),
    (DTypes(("f32", "bf16")), "f64", "'f64' is not one of f32, bf16, all"),
    (DTypes(("f32",)), "bf16", "'bf16' is not one of f32, all"),
]


@pytest.mark.parametrize(("parser", "text", "values"), ACCEPTED, ids=lambda v: str(v)[:30])
def test_accepts(parser, text, values):
    assert parser(text) == values


@pytest.mark.parametrize(("parser", "text", "words"), REFUSED, ids=lambda v: str(v)[:30])
def test_refuses_in_one_line_quoting_the_text(parser, text, words):
    with pytest.raises(ArgumentError) as caught:
        parser(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=8, unique=True))
def test_a_list_of_integers_comes_back(values):
    assert Integers()(",".join(map(str, values))) == tuple(values)


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused_as_an_argument(text):
    for parser in (Integers(), Sizes(), MNK, Choices(("a",)), DTypes(("f32",))):
        try:
            assert parser(text)
        except ArgumentError as refusal:
            assert str(refusal)


@pytest.mark.parametrize("parser", [Integers(), Sizes(), MNK, Choices(("a",)), DTypes(("f32",))])
def test_parsers_travel_to_a_worker_process(parser):
    assert pickle.loads(pickle.dumps(parser)) == parser
