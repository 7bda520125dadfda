"""Shared-memory descriptors of tcgen05: layouts against the layout algebra, wrong words refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tcgen05_matrices import START, container_bits, exact, image_of, place, random_matrix
from tcgen05_words import CODES, K

from gpukit.emulator.mem.store import Store
from gpukit.emulator.tcgen05.descriptors import DescriptorError, decode
from gpukit.emulator.tcgen05.kinds import KINDS
from gpukit.emulator.tcgen05.operands import operand
from gpukit.layout.algebra import Layout
from gpukit.layout.shared import ATOMS, TCGEN05_CODES, SharedTile

END = 200 * 1024
PLAIN = ("none", "32", "64", "128")


def element_of(kind, name):
    return next(e for e in KINDS[kind].codes.values() if e.name == name)


def fetched(placed, kind, k):
    """What the tensor core finds for the instruction that begins at column ``k``."""
    data = np.zeros(END, np.uint8)
    image = image_of(placed)
    data[START : START + image.size] = image
    tile = placed.tile
    found = operand(tile.descriptor(k), element_of(kind, placed.name), tile.k_major, tile.rows, END)
    return found.values(Store(data))


# Layouts


TYPES = sorted({(kind, name) for kind, names in CODES.items() for name in names})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("mode", PLAIN)
@pytest.mark.parametrize(("kind", "name"), TYPES)
def test_k_major(rng, kind, name, mode, order):
    """Four steps of K; the swizzle atoms follow each other along the rows, or along K."""
    values = random_matrix(rng, (72, 4 * K[kind]), name)
    placed = place(values, name, kind, mode, order=order)
    for step in range(4):
        part = slice(K[kind] * step, K[kind] * (step + 1))
        got = fetched(placed, kind, part.start)
        assert np.array_equal(got, exact(values[:, part]), equal_nan=True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("kind", "name", "mode"), [
    *[(k, n, mode) for k, n in TYPES for mode in PLAIN if not k.startswith("mxf4") and k != "tf32"],
    ("tf32", "tf32", "128/32"),
])  # fmt: skip
def test_mn_major(rng, kind, name, mode, order):
    values = random_matrix(rng, (208, 3 * K[kind]), name)
    placed = place(values, name, kind, mode, k_major=False, order=order)
    for step in range(3):
        part = slice(K[kind] * step, K[kind] * (step + 1))
        got = fetched(placed, kind, part.start)
        assert np.array_equal(got, exact(values[:, part]), equal_nan=True)


@given(mode=st.sampled_from(PLAIN), k_major=st.booleans(), rows=st.integers(1, 32),
       start=st.integers(0, 8), seed=st.integers(0, 99), data=st.data())  # fmt: skip
def test_any_strides(mode, k_major, rows, start, seed, data):
    """LBO and SBO need not be dense: the canonical layouts of the ISA with any strides."""
    rng = np.random.default_rng(seed)
    rows, start = 8 * rows, START + 1024 * start
    lbo, sbo = (16 * data.draw(st.integers(0, 200)) for _ in range(2))
    (b, m, s), span, _ = ATOMS[mode]
    t, w = 8, span // 128
    if k_major:
        steps = (1, lbo // 2 if mode == "none" else t)
        layout = Layout(((8, rows // 8), (t, 2)), ((w * t, sbo // 2), steps))
    elif mode == "none":
        layout = Layout(((t, rows // t), (8, 2)), ((1, sbo // 2), (t, lbo // 2)))
    else:
        groups = -(-rows // (w * t))
        layout = Layout(((t, w, groups), (8, 2)), ((1, t, lbo // 2), (w * t, sbo // 2)))
    at = start + 2 * layout.table()[:rows]
    at ^= (at & ((1 << b) - 1) << (m + s)) >> s
    memory = rng.integers(0, 0x7C00, END // 2).astype(np.uint16)  # every finite half
    word = start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | 1 << 46 | TCGEN05_CODES[mode] << 61
    found = operand(word, element_of("f16", "f16"), k_major, rows, END)
    values = found.values(Store(memory.view(np.uint8)))
    assert np.array_equal(values, memory[at // 2].view(np.float16).astype(np.float64))


@pytest.mark.parametrize(("mode", "k_major", "bits", "lbo", "sbo"), [
    ("none", True, 32, 256, 128), ("32", True, 32, None, 256), ("none", False, 16, 256, 128),
    ("32", False, 16, 256, 512), ("64", False, 16, 512, 1024),
])  # fmt: skip
def test_numbers_worked_in_the_isa(mode, k_major, bits, lbo, sbo):
    """9.7.16.3.3: two atoms along each dimension (m = k = 2), copies along M or N first."""
    _, span, deep = ATOMS[mode]
    rows, k = (16, 2 * span // bits) if k_major else (2 * span // bits, 2 * deep)
    tile = SharedTile(mode, k_major, rows, k, bits, START)
    found = tile.steps()
    assert found[1] == sbo
    assert lbo is None or found[0] == lbo
    word = decode(tile.descriptor())
    assert (word.start, word.leading, word.stride) == (START, *found)


def test_base_offset_shifts_the_pattern(rng):
    """A pattern that starts 384 bytes above a multiple of 1024."""
    values = random_matrix(rng, (8, 16), "bf16")
    placed = place(values, "bf16", "f16")
    image = np.zeros(END, np.uint8)
    part = image_of(placed)
    image[START + 384 : START + 384 + part.size] = part
    word = placed.tile.descriptor() + (384 >> 4) + (3 << 49)
    found = operand(word, element_of("f16", "bf16"), True, 8, END).values(Store(image))
    assert np.array_equal(found, exact(values))


# Cost


@pytest.mark.parametrize(("mode", "k_major", "name"), [
    *[(mode, k_major, "bf16") for mode in PLAIN for k_major in (True, False)],
    ("128", True, "tf32"), ("128/32", False, "tf32"), ("128", False, "e4m3"),
])  # fmt: skip
def test_no_canonical_layout_has_bank_conflicts(mode, k_major, name):
    """Whatever the swizzle: core matrices of unswizzled layouts are 128 contiguous bytes."""
    kind = {"bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4"}[name]
    tile = SharedTile(mode, k_major, 128, K[kind], container_bits(kind, name), START)
    found = operand(tile.descriptor(), element_of(kind, name), k_major, 128, END).layout
    assert found.wavefronts == found.ideal == 128 * 32 // 128


def test_eight_rows_in_the_same_banks_are_eight_wavefronts():
    """Rows 128 bytes apart without a swizzle, which no descriptor can say."""
    from gpukit.emulator.tcgen05.operands import wavefronts

    rows = np.arange(8) * 128
    assert wavefronts(rows[None]) == 8
    assert wavefronts((rows ^ rows >> 3 & 0x70)[None]) == 1
    assert wavefronts((rows // 2)[None]) == 4
    assert wavefronts(np.stack([rows, rows // 8])) == 8 + 1


# What is refused


GOOD = SharedTile("128", True, 64, 16, 16, START).descriptor()
BAD = [
    (GOOD & ~(1 << 46), r"bits 46-48 are 0b000; tcgen05 wants 0b001"),
    (GOOD | 1 << 47, r"bits 46-48 are 0b011"),
    (GOOD | 1 << 52, r"absolute leading dimension address \(bit 52\) is for sm_103a"),
    (GOOD | 1 << 53, r"bits 53-60 are 0x1 and must be 0"),
    (GOOD | 1 << 60, r"bits 53-60 are 0x80 and must be 0"),
    (GOOD | 1 << 14, r"reserved bits 0x4000 are set"),
    (GOOD | 1 << 31, r"reserved bits 0x80000000 are set"),
    (GOOD | 1 << 61, r"swizzle code 3 \(bits 61-63\); accepted: 0, 1, 2, 4, 6"),
    (GOOD | 5 << 61, r"swizzle code 7"),
    (GOOD & ~(7 << 61) | 1 << 49, r"base offset \(bits 49-51\) needs a swizzle"),
    (GOOD & ~(7 << 61) | 1 << 61, r"32-byte atoms is for M- or N-major tf32"),
    (GOOD + (112 >> 4), r"32 bytes of K from byte 112 of a 128-byte swizzle row run over its end"),
    (GOOD & ~0x3FFF, r"takes offsets 0x0 to 0x2000, the CTA has shared memory from 0x400"),
    (GOOD | 0x3F00, r"the CTA has shared memory from 0x400 to 0x32000"),
]


@pytest.mark.parametrize(("word", "why"), BAD, ids=range(len(BAD)))
def test_wrong_words_are_refused_and_shown_decoded(word, why):
    operand(GOOD, element_of("f16", "f16"), True, 64, END)
    with pytest.raises(DescriptorError, match=why) as caught:
        operand(word, element_of("f16", "f16"), True, 64, END)
    assert f"matrix descriptor 0x{word:016x}: start 0x" in str(caught.value)


def test_transposed_tf32_takes_one_swizzle_only():
    for mode in PLAIN:
        word = SharedTile(mode, False, 64, 8, 32, START).descriptor()
        with pytest.raises(DescriptorError, match="must have the 128B swizzle with 32-byte atoms"):
            operand(word, element_of("tf32", "tf32"), False, 64, END)


def test_an_mn_major_operand_may_begin_inside_a_row_but_not_leave_it():
    word = SharedTile("128", False, 64, 16, 16, START).descriptor()
    operand(word + 2, element_of("f16", "f16"), False, 48, END)
    with pytest.raises(DescriptorError, match="128 bytes of M or N from byte 32"):
        operand(word + 2, element_of("f16", "f16"), False, 64, END)


@given(raw=st.integers(0, 2**64 - 1) | st.integers(0, 2**46 - 1).map(lambda low: low | 1 << 46))
def test_what_is_accepted_says_all_that_the_word_says(raw):
    try:
        d = decode(raw)
    except DescriptorError:
        return
    again = d.start >> 4 | d.leading >> 4 << 16 | d.stride >> 4 << 32 | 1 << 46 | d.base << 49
    assert raw == again | d.code << 61
