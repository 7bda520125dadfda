"""tcgen05.mma of a pair of CTAs: halves of A, B and D in each, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import (
    DTYPES,
    a_cells,
    codes,
    exact,
    image_of,
    place,
    random_matrix,
    small_matrix,
)
from tcgen05_words import CODES, K, idesc

from gpukit import emulator
from gpukit.emulator.errors import EmulatorError
from gpukit.emulator.policies import POLICIES
from gpukit.emulator.tcgen05.idesc import InstructionDescriptorError
from gpukit.layout import tmem

KINDS = [("f16", "f16"), ("f16", "bf16"), ("tf32", "tf32"), ("i8", "s8"), ("i8", "u8"),
         *[("f8f6f4", name) for name in CODES["f8f6f4"]]]  # fmt: skip


def accumulator_type(kind):
    return DTYPES["s32" if kind == "i8" else "f32"]


def cells_of(matrix, columns=None):
    """uint32 [2, lane, column]: each CTA has half of D's rows."""
    m, n = matrix.shape
    at = tmem.accumulator(m, n, group=2).table()
    width = columns or -(-n // 32) * 32
    cells = np.full((2, 128 * width), 0x5A5A5A5A, np.uint32)
    for half, part in zip(cells, np.split(codes(matrix), 2), strict=True):
        half[at % 128 * width + at // 128] = part
    return cells.reshape(2, 128, width)


def d_of(cells, m, n, dtype):
    at = tmem.accumulator(m, n, group=2).table()
    return np.concatenate([half[at % 128, at // 128] for half in cells]).view(dtype)


def halves(matrix, name, kind, mode="128", k_major=True, start=None):
    """The two CTAs' parts of A or B, at the same place."""
    where = {} if start is None else {"start": start}
    return [place(part, name, kind, mode, k_major, **where) for part in np.split(matrix, 2)]


def multiply(kind, name, a, b, c, modes=("128", "128"), majors=(True, True), form=None, call=None,
             **options):  # fmt: skip
    m, n = len(a), len(b)
    lefts = halves(a, name, kind, modes[0], majors[0])
    rights = halves(b, name, kind, modes[1], majors[1], start=lefts[0].tile.end)
    word = idesc(kind, m, n, name, d="s32" if kind == "i8" else "f32",
                 transpose=[int(not major) for major in majors])  # fmt: skip
    issued = Call(0, lefts[0].tile.descriptor(), rights[0].tile.descriptor(), word, **(call or {}))
    images = [image_of(*pair) for pair in zip(lefts, rights, strict=True)]
    cells, counters = run(form or Form(kind, 2), [issued], images, cells_of(c), **options)
    return d_of(cells, m, n, c.dtype), counters


def product(a, b):
    return exact(a) @ exact(b).T


def old(rng, shape, dtype=np.float32):
    return rng.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_kinds(rng, kind, name, m):
    a, b = random_matrix(rng, (m, K[kind]), name), random_matrix(rng, (64, K[kind]), name)
    c = old(rng, (m, 64), accumulator_type(kind))
    d, counters = multiply(kind, name, a, b, c)
    want = (product(a, b) + c).astype(c.dtype)
    assert np.array_equal(d, want, equal_nan=True)
    assert counters.extra["tcgen05.mma"] == 1
    assert counters.extra[f"flops {name if kind == 'f16' else kind}"] == 2 * m * 64 * K[kind]


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("n", [16, 48, 112, 192, 224, 240, 256])
def test_shapes(rng, m, n):
    """Each CTA reads its half of B only: half the wavefronts of two CTAs on their own."""
    a, b = small_matrix(rng, (m, 16), "bf16"), small_matrix(rng, (n, 16), "bf16")
    c = old(rng, (m, n))
    d, counters = multiply("f16", "bf16", a, b, c)
    assert (d == product(a, b) + c).all()
    assert counters.extra["tcgen05 shared wavefronts"] == (m + n) * 32 // 128


@pytest.mark.parametrize("majors", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("modes", [("128", "64"), ("none", "32"), ("64", "none")])
@pytest.mark.parametrize("m", [128, 256])
def test_swizzles_and_majors(rng, m, modes, majors):
    a, b = small_matrix(rng, (m, 16), "f16"), small_matrix(rng, (96, 16), "f16")
    c = old(rng, (m, 96))
    d, _ = multiply("f16", "f16", a, b, c, modes, majors)
    assert (d == product(a, b) + c).all()


@pytest.mark.parametrize(("m", "n"), [(256, 64), (128, 64), (128, 256), (256, 256), (128, 48)])
def test_every_element_of_d_has_its_cell_and_no_other_changes(m, n):
    a, b = np.zeros((m, 16), np.float16), np.zeros((n, 16), np.float16)
    a[:, 0], a[:, 1], b[:, 0], b[:, 1] = np.arange(m), 1, n, np.arange(n)
    lefts = halves(a, "f16", "f16")
    rights = halves(b, "f16", "f16", start=lefts[0].tile.end)
    call = Call(0, lefts[0].tile.descriptor(), rights[0].tile.descriptor(),
                idesc("f16", m, n, "f16"), add=False)  # fmt: skip
    images = [image_of(*pair) for pair in zip(lefts, rights, strict=True)]
    blank = np.full((2, 128, 256), 0x5A5A5A5A, np.uint32)
    cells, _ = run(Form("f16", 2), [call], images, blank)
    want = cells_of(np.arange(m * n).reshape(m, n).astype(np.float32), columns=256)
    assert (cells == want).all()


def test_a_k_loop_under_every_policy(rng):
    a, b = small_matrix(rng, (256, 64), "bf16"), small_matrix(rng, (256, 64), "bf16")
    lefts = halves(a, "bf16", "f16")
    rights = halves(b, "bf16", "f16", start=lefts[0].tile.end)
    images = [image_of(*pair) for pair in zip(lefts, rights, strict=True)]
    calls = [Call(0, lefts[0].tile.descriptor(k), rights[0].tile.descriptor(k),
                  idesc("f16", 256, 256, "bf16"), add=k > 0) for k in range(0, 64, 16)]  # fmt: skip
    for policy in POLICIES:
        garbage = np.full((2, 128, 256), np.nan, np.float32)
        cells, _ = run(Form("f16", 2), calls, images, garbage, policy=policy)
        assert (d_of(cells, 256, 256, np.dtype("f4")) == product(a, b)).all()


def test_either_cta_of_the_pair_may_issue(rng):
    a, b = small_matrix(rng, (256, 16), "f16"), small_matrix(rng, (32, 16), "f16")
    c = old(rng, (256, 32))
    for issuer in (0, 31, 128, 255):
        d, _ = multiply("f16", "f16", a, b, c, issuers=f"lane == {issuer}")
        assert (d == product(a, b) + c).all()


@pytest.mark.parametrize("m", [128, 256])
def test_disabled_lanes(rng, m):
    """Eight words: four of the even CTA, then four of the odd one."""
    a, b = small_matrix(rng, (m, 16), "bf16"), small_matrix(rng, (32, 16), "bf16")
    c = old(rng, (m, 32))
    mask = (0xFFFF, 0, 0xF0F0F0F0, 0, 0, 1, 0x80000000, 0xFFFFFFFF)
    d, _ = multiply("f16", "bf16", a, b, c, form=Form("f16", 2, disabled=True),
                    call={"disabled": mask})  # fmt: skip
    lanes = tmem.accumulator(m, 32, group=2).table() % 128
    kept = np.concatenate([[mask[4 * half + lane // 32] >> lane % 32 & 1 for lane in row]
                           for half in range(2) for row in lanes]).reshape(m, 32)  # fmt: skip
    assert (d == np.where(kept, c, product(a, b) + c)).all()


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_a_in_tensor_memory(rng, kind, name, m):
    """With M = 128 lanes 0-63 and 64-127 of a CTA compute different columns: each has a copy."""
    a, b = random_matrix(rng, (m, K[kind]), name), random_matrix(rng, (64, K[kind]), name)
    rights = halves(b, name, kind)
    dtype = accumulator_type(kind)
    cells = np.zeros((2, 128, 96), np.uint32)
    for half, part in zip(cells, np.split(a, 2), strict=True):
        half[:, 64:72] = a_cells(part, name, copies=True)
    word = idesc(kind, m, 64, name, d="s32" if kind == "i8" else "f32")
    call = Call(0, 64, rights[0].tile.descriptor(), word, add=False)
    form = Form(kind, 2, a_in_tensor_memory=True)
    found, _ = run(form, [call], [image_of(right) for right in rights], cells)
    want = product(a, b).astype(dtype)
    assert np.array_equal(d_of(found, m, 64, dtype), want, equal_nan=True)


# What is refused


@pytest.mark.parametrize(("m", "n", "why"), [
    (64, 32, "M = 64; accepted with .cta_group::2: 128, 256"),
    (256, 24, "N = 24; accepted with .cta_group::2: 16, 32, 48"),
])  # fmt: skip
def test_shapes_of_one_cta(rng, m, n, why):
    a, b = small_matrix(rng, (256, 16), "f16"), small_matrix(rng, (32, 16), "f16")
    lefts = halves(a, "f16", "f16")
    rights = halves(b, "f16", "f16", start=lefts[0].tile.end)
    call = Call(0, lefts[0].tile.descriptor(), rights[0].tile.descriptor(),
                idesc("f16", m, n, "f16"))  # fmt: skip
    images = [image_of(*pair) for pair in zip(lefts, rights, strict=True)]
    with pytest.raises(InstructionDescriptorError, match=why):
        run(Form("f16", 2), [call], images, np.zeros((2, 128, 32), np.uint32))


ALONE = r"""
extern "C" __global__ void k(unsigned long long a, unsigned long long b, unsigned idesc) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, 0, 0;"
    "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }"
    :: "r"(0), "l"(a), "l"(b), "r"(idesc));
}
"""


def test_a_cta_without_a_peer():
    word = 1 << 46 | 64 << 32 | 2 << 61 | 64
    with pytest.raises(EmulatorError, match="it has no peer"):
        emulator.run(ALONE, 1, 1, [np.uint64(word), np.uint64(word),
                     np.uint32(idesc("f16", 256, 32, "f16"))], arch="sm_100a",
                     shared_bytes=1 << 16)  # fmt: skip
