"""tcgen05.mma.ws: weight stationary, zero-column masks, shifts of B, collector buffers of B."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import image_of, place, small_matrix
from tcgen05_multiply import cells_of, d_of, multiply, old, product
from tcgen05_words import idesc

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.tcgen05.zero_columns import ZeroColumnsError, decode


@pytest.mark.parametrize("n", [64, 128, 256])
@pytest.mark.parametrize("m", [32, 64, 128])
def test_shapes(rng, m, n):
    a, b = small_matrix(rng, (m, 16), "f16"), small_matrix(rng, (n, 16), "f16")
    c = old(rng, (m, n))
    d, _ = multiply("f16", (a, "f16"), (b, "f16"), c, ws=True)
    assert (d == product(a, b) + c).all()


# Zero columns


def word(starts=(), firsts=(), wanted=1, skip=0, use=0, shift=0):
    """A zero-column mask descriptor."""
    found = wanted << 39 | skip << 40 | use << 48 | shift << 56
    for i, (start, first) in enumerate(zip(starts, firsts, strict=True)):
        found |= start << 8 * i | first << 32 + i
    return found


def low_bits(mask):
    """A mask as the ISA prints it: column 0 on the right."""
    return "".join(str(int(bit)) for bit in mask[::-1])


def test_examples_of_the_isa():
    """9.7.16.4.3, examples 1 to 4, all with skip span 2 (4 in the first) and use span 3."""
    assert decode(word((0,), (0,), 0, 4, 3), 128, 64, 0).zero is None
    mask = decode(word((0,), (0,), 1, 2, 3), 128, 64, 0).zero
    assert low_bits(mask).endswith("11100001110000")
    mask = decode(word((0, 0), (1, 0), 1, 2, 3), 64, 64, 0).zero
    assert low_bits(mask[:32]).endswith("11100001110000111")
    assert low_bits(mask[32:]).endswith("000011100001110000")
    found = decode(word((0, 1, 2, 1), (1, 1, 0, 0), 1, 2, 3, shift=2), 32, 128, 8)
    ends = ("00001110000111", "0000111000011", "111000011100", "1110000111000")
    for part, end in zip(np.split(found.zero, 4), ends, strict=True):
        assert low_bits(part).endswith(end)
    assert found.shift == 2


@given(m=st.sampled_from([32, 64, 128]), n=st.sampled_from([64, 128, 256]), data=st.data())
def test_masks_are_runs_of_both_spans_in_turn(m, n, data):
    parts = 128 // m
    skip, use = (data.draw(st.integers(0, 255)) for _ in range(2))
    starts = [data.draw(st.integers(0, 255)) for _ in range(parts)]
    firsts = [data.draw(st.integers(0, 1)) for _ in range(parts)]
    mask = decode(word(starts, firsts, 1, skip, use), m, n, 0).zero
    for part, start, first in zip(np.split(mask, parts), starts, firsts, strict=True):
        spans = ["1" * (skip + 1), "0" * (use + 1)][:: 1 if first else -1]
        endless = "".join(spans) * (start + n)
        assert low_bits(part[::-1]) == endless[start : start + n // parts]


@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("mode", ["none", "128"])
@pytest.mark.parametrize(("m", "shift"), [(32, 0), (32, 13), (64, 8), (128, 27), (128, 32)])
def test_masked_and_shifted_columns(rng, m, shift, mode, k_major):
    a, b = small_matrix(rng, (m, 16), "f16"), small_matrix(rng, (128, 16), "f16")
    c = old(rng, (m, 64))
    pa = place(a, "f16", "f16")
    pb = place(b, "f16", "f16", mode, k_major, start=pa.tile.end)
    zeros = word((1, 0, 3, 0), (0, 1, 0, 1), skip=4, use=9, shift=shift)
    call = Call(0, pa.tile.descriptor(), pb.tile.descriptor(),
                idesc("f16", m, 64, "f16", shift=3, transpose=(0, int(not k_major))),
                zeros=zeros)  # fmt: skip
    cells, _ = run(Form("f16", ws=True, zeros=True), [call], [image_of(pa, pb)],
                   cells_of(c, ws=True))  # fmt: skip
    kept = ~decode(zeros, m, 64, 32).zero
    assert kept.any()
    assert not kept.all()
    want = product(a, b[shift : shift + 64]) * kept + c
    assert (d_of(cells, m, 64, c.dtype, ws=True) == want).all()


@pytest.mark.parametrize(("raw", "m", "max_shift", "why"), [
    (word(shift=17), 32, 32, "column shift 17; accepted with M = 32: 0 to 16"),
    (word(shift=33), 128, 32, "column shift 33; accepted with M = 128: 0 to 32"),
    (word(shift=9), 128, 8, "column shift 9, but the instruction descriptor allows up to 8"),
    (word() | 1 << 36, 128, 32, "reserved bits 0x1000000000 are set"),
    (word() | 1 << 63, 128, 32, "reserved bits 0x8000000000000000 are set"),
])  # fmt: skip
def test_wrong_zero_column_masks(raw, m, max_shift, why):
    with pytest.raises(ZeroColumnsError, match=why):
        decode(raw, m, 64, max_shift)


# Collector buffers


def test_four_buffers_of_b(rng):
    a, b = small_matrix(rng, (128, 16), "f16"), small_matrix(rng, (64, 16), "f16")
    pa = place(a, "f16", "f16")
    pb = place(b, "f16", "f16", start=pa.tile.end)
    call = Call(0, pa.tile.descriptor(), pb.tile.descriptor(), idesc("f16", 128, 64, "f16"))

    def chain(*uses):
        forms = [Form("f16", ws=True, collector=f"collector::{use}") for use in uses]
        issue = " ".join(form.text for form in forms)
        cells = np.zeros((1, 128, 64), np.float32)
        return run(forms[0], [call], [image_of(pa, pb)], cells, issue=issue)[0].view("f4")[0]

    got = chain("b0::fill", "b2::fill", "b0::use", "b2::lastuse", "b0::lastuse", "b3::discard")
    assert (got == 6 * product(a, b)).all()
    with pytest.raises(KernelFault, match=r"collector::b1::use of a matrix that the collector"):
        chain("b0::fill", "b1::use")
    with pytest.raises(KernelFault, match="it holds nothing"):
        chain("b1::fill", "b1::discard", "b1::lastuse")
