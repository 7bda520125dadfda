"""Instruction descriptors of tcgen05.mma: every field read, every wrong one refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tcgen05_words import CODES, K, idesc

from gpukit.emulator.tcgen05.idesc import InstructionDescriptorError, Target, decode
from gpukit.emulator.tcgen05.kinds import KINDS

VECTOR = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 4}
TYPES = [(kind, a, b) for kind, codes in CODES.items() for a in codes for b in codes]
FORMS = [
    (kind, cta_group, ws)
    for kind in CODES
    for cta_group, ws in ((1, False), (2, False), (1, True))
    if not (ws and kind.startswith("mx"))
]


def target(kind, cta_group=1, ws=False, a_in_tensor_memory=False, vector=None):
    vector = VECTOR.get(kind, 0) if vector is None else vector
    return Target(KINDS[kind], cta_group, ws, a_in_tensor_memory, vector)


def shapes(kind, cta_group, ws):
    """Table 39, once more and by other means: all (M, N)."""
    if ws:
        return {(m, n) for m in (32, 64, 128) for n in (64, 128, 256)}
    ms = {64, 128} if cta_group == 1 else {128, 256}
    if kind.startswith("mx"):
        ms -= {64}
    step = 8 if cta_group == 1 else 16
    ns = set(range(step, 257, step))
    if kind == "i8":
        ns = {n for n in range(8, 257, 8) if n <= 32 or n % 16 == 0} - {40}
        if cta_group == 2:
            ns = set(range(32, 257, 32))
    return {(m, n) for m in ms for n in ns}


def d_of(kind):
    return "s32" if kind == "i8" else "f32"


# What is accepted


def test_the_word_of_deep_learning():
    """bf16 in, f32 out, both K-major: 1 << 4 | 1 << 7 | 1 << 10 | N / 8 << 17 | M / 16 << 24."""
    word = idesc("f16", 128, 256, "bf16")
    assert word == 0x08400490
    found = decode(word, target("f16"))
    assert (found.m, found.n, found.a.name, found.b.name) == (128, 256, "bf16", "bf16")
    assert (found.result, found.a_k_major, found.b_k_major) == ("f32", True, True)
    assert not found.negative
    assert not found.saturate


@pytest.mark.parametrize(("kind", "a", "b"), TYPES)
def test_types(kind, a, b):
    n = 64
    for d in {"f16": ("f32",), "f8f6f4": ("f16", "f32"), "i8": ("s32",)}.get(kind, ("f32",)):
        found = decode(idesc(kind, 128, n, a, b, d), target(kind))
        assert (found.a.name, found.b.name, found.result) == (a, b, d)
        assert found.a.per_chunk == K[kind] // 2


@pytest.mark.parametrize(("kind", "cta_group", "ws"), FORMS)
def test_shapes_are_those_of_the_table(kind, cta_group, ws):
    accepted = shapes(kind, cta_group, ws)
    a, step = next(iter(CODES[kind])), 128 if kind.startswith("mx") else 16
    for m in range(step, 16 * 32 if step == 16 else 512, step):
        for n in range(0, 512, 8):
            word = idesc(kind, m, n, a, d=d_of(kind))
            if (m, n) in accepted:
                found = decode(word, target(kind, cta_group, ws))
                assert (found.m, found.n) == (m, n)
            else:
                with pytest.raises(InstructionDescriptorError, match="accepted with"):
                    decode(word, target(kind, cta_group, ws))


@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_operations(signs):
    found = decode(idesc("tf32", 64, 8, "tf32", negate=signs, transpose=signs), target("tf32"))
    assert found.negative == (signs[0] != signs[1])
    assert (found.a_k_major, found.b_k_major) == (not signs[0], not signs[1])


def test_other_fields():
    assert decode(idesc("i8", 64, 32, "s8", d="s32", saturate=1), target("i8")).saturate
    ws = [decode(idesc("f16", 32, 64, "f16", shift=code), target("f16", ws=True)) for code in
          range(4)]  # fmt: skip
    assert [found.max_shift for found in ws] == [0, 8, 16, 32]


@pytest.mark.parametrize(("kind", "vector", "scale", "accepted"), [
    ("mxf8f6f4", 1, "ue8m0", {0, 1, 2, 3}), ("mxf4", 2, "ue8m0", {0, 2}),
    ("mxf4nvf4", 2, "ue8m0", {0, 2}), ("mxf4nvf4", 4, "ue8m0", {0}),
    ("mxf4nvf4", 4, "ue4m3", {0}), ("mxf4nvf4", 2, "ue4m3", set()), ("mxf4", 2, "ue4m3", set()),
    ("mxf8f6f4", 1, "ue4m3", set()),
])  # fmt: skip
def test_scale_factors(kind, vector, scale, accepted):
    for a_id in range(4):
        for b_id in range(4):
            word = idesc(kind, 128, 64, "e2m1", scale=scale, ids=(a_id, b_id))
            if {a_id, b_id} <= accepted:
                found = decode(word, target(kind, vector=vector))
                assert (found.a_scale, found.b_scale, found.scale_type) == (a_id, b_id, scale)
            else:
                with pytest.raises(InstructionDescriptorError, match="scale"):
                    decode(word, target(kind, vector=vector))


@pytest.mark.parametrize("kind", CODES)
@given(raw=st.integers(0, 2**32 - 1))
def test_what_is_accepted_says_all_that_the_word_says(kind, raw):
    """No bit is ignored: the decoded fields give the same word again."""
    made = target(kind)
    try:
        found = decode(raw, made)
    except InstructionDescriptorError:
        return
    f = found
    again = idesc(kind, f.m, f.n, f.a.name, f.b.name, f.result, saturate=f.saturate,
                  transpose=(not f.a_k_major, not f.b_k_major), scale=f.scale_type,
                  ids=(f.a_scale, f.b_scale))  # fmt: skip
    assert again == raw & ~(3 << 13)  # only whether the signs differ is kept
    assert f.negative == ((raw >> 13 ^ raw >> 14) & 1)


@pytest.mark.parametrize("kind", CODES)
@given(flips=st.sets(st.integers(0, 31), min_size=1, max_size=2), n=st.integers(2, 16))
def test_what_is_accepted_after_flips_of_bits(kind, flips, n):
    """Around good words, where random ones are rarely good."""
    word = idesc(kind, 128, 16 * n, next(iter(CODES[kind])), d=d_of(kind))
    decode(word, target(kind))
    flipped = word ^ sum(1 << bit for bit in flips)
    test_what_is_accepted_says_all_that_the_word_says.hypothesis.inner_test(kind, flipped)


# What is refused


GOOD = idesc("f16", 128, 64, "f16")
BAD = [
    (GOOD | 1 << 6, "f16", r"reserved bits 0x40 are set"),
    (GOOD | 1 << 23, "f16", r"reserved bits 0x800000 are set"),
    (GOOD | 1 << 29, "f16", r"reserved bits 0x20000000 are set"),
    (GOOD | 1 << 2, "f16", r"A is sparse, but the instruction is dense"),
    (GOOD | 1, "f16", r"sparsity selector \(bits 0-1\) needs a sparse A"),
    (GOOD | 1 << 3, "f16", r"saturation \(bit 3\) is for integers"),
    (GOOD | 2 << 4, "f16", r"type code 3 of D; accepted: 0 \(f16\), 1 \(f32\)"),
    (GOOD | 2 << 7, "f16", r"type code 2 of A; accepted: 0 \(f16\), 1 \(bf16\)"),
    (GOOD | 7 << 10, "f16", r"type code 7 of B; accepted"),
    (idesc("f16", 128, 64, "bf16", d="f16"), "f16", r"D can be f16 only if A and B are f16"),
    (idesc("f16", 128, 64, "f16", "bf16", d="f16"), "f16", r"D can be f16 only if"),
    (GOOD | 1 << 30, "f16", r"maximum shift of B \(bits 30-31\) is for \.ws"),
    (idesc("tf32", 128, 64, "tf32", d="f16"), "tf32", r"type code 0 of D; accepted: 1 \(f32\)"),
    (GOOD, "tf32", r"type code 0 of A; accepted: 2 \(tf32\)"),
    (idesc("f8f6f4", 128, 64, "e4m3") | 2 << 7, "f8f6f4", r"type code 2 of A"),
    (idesc("i8", 128, 64, "s8", d="s32", negate=(1, 0)), "i8", r"cannot negate"),
    (idesc("i8", 128, 40, "s8", d="s32"), "i8", r"N = 40; accepted with \.cta_group::1: 8, 16, 24"),
    (idesc("mxf4", 128, 64, "e2m1", transpose=(0, 1)), "mxf4", r"cannot transpose"),
    (idesc("mxf4", 128, 64, "e2m1") | 1 << 31, "mxf4", r"K = 96 \(bit 31\) is for sm_103a"),
    (idesc("mxf4", 128, 64, "e2m1") | 1 << 12, "mxf4", r"reserved bits 0x1000"),
    (idesc("mxf8f6f4", 128, 64, "e4m3") | 1 << 24, "mxf8f6f4", r"reserved bits 0x1000000 are"),
    (idesc("mxf8f6f4", 128, 64, "e4m3") | 1 << 31, "mxf8f6f4", r"reserved bits 0x80000000 are"),
    (idesc("f8f6f4", 128, 24, "e4m3", transpose=(0, 1)), "f8f6f4",
     r"N = 24; accepted with \.cta_group::1 and B N-major: 16, 32, 48, ... 256 \(steps of 16\)"),
]  # fmt: skip


@pytest.mark.parametrize(("word", "kind", "why"), BAD, ids=range(len(BAD)))
def test_wrong_fields_are_refused_with_the_word_decoded(word, kind, why):
    with pytest.raises(InstructionDescriptorError, match=why) as caught:
        decode(word, target(kind))
    assert f"0x{word:08x} (kind::{kind}: M 128, N " in str(caught.value)


def test_the_message_in_full():
    word = idesc("f16", 192, 64, "bf16", "f16", negate=(1, 0), transpose=(0, 1))
    with pytest.raises(InstructionDescriptorError) as caught:
        decode(word, target("f16"))
    assert str(caught.value) == (
        f"instruction descriptor 0x{word:08x} (kind::f16: M 192, N 64, A -bf16 K-major, B f16 "
        "N-major, D f32): M = 192; accepted with .cta_group::1: 64, 128"
    )


def test_a_in_tensor_memory_is_k_major():
    word = idesc("f16", 128, 64, "f16", transpose=(1, 0))
    decode(word, target("f16"))
    with pytest.raises(InstructionDescriptorError, match="A in tensor memory is K-major"):
        decode(word, target("f16", a_in_tensor_memory=True))


def test_eight_bit_n_major_b_takes_steps_of_16_or_32():
    for cta_group, m in ((1, 128), (2, 256)):
        step = 16 * cta_group
        good = idesc("i8", m, 3 * step, "u8", d="s32", transpose=(0, 1))
        assert decode(good, target("i8", cta_group)).n == 3 * step
        bad = idesc("f8f6f4", m, 3 * step + step // 2, "e4m3", transpose=(0, 1))
        with pytest.raises(InstructionDescriptorError, match="B N-major"):
            decode(bad, target("f8f6f4", cta_group))
        assert decode(bad & ~(1 << 16), target("f8f6f4", cta_group)).n == 3 * step + step // 2
