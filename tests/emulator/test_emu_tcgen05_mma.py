"""tcgen05.mma of one CTA against float64, operands and results laid out by the layout algebra."""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import (
    DTYPES,
    START,
    a_cells,
    exact,
    image_of,
    place,
    random_matrix,
    small_matrix,
)
from tcgen05_multiply import accumulator_type, cells_of, d_of, multiply, old, product
from tcgen05_words import CODES, K, idesc

from gpukit.emulator.policies import POLICIES
from gpukit.layout import tmem

MODES = ("none", "32", "64", "128")
UNSCALED = [(k, a, b) for k in ("f16", "tf32", "f8f6f4", "i8") for a in CODES[k] for b in CODES[k]]


# Types and shapes


@pytest.mark.parametrize(("kind", "a_name", "b_name"), UNSCALED)
def test_types(rng, kind, a_name, b_name):
    a, b = small_matrix(rng, (128, K[kind]), a_name), small_matrix(rng, (48, K[kind]), b_name)
    c = old(rng, (128, 48), DTYPES[accumulator_type(kind)])
    d, counters = multiply(kind, (a, a_name), (b, b_name), c)
    assert (d == product(a, b) + c).all()
    family = a_name if kind == "f16" else kind
    assert counters.extra[f"flops {family}"] == 2 * 128 * 48 * K[kind]
    assert counters.extra["tcgen05.mma"] == 1


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, n, b in UNSCALED if n == b])
def test_random_values_are_rounded_once(rng, kind, name):
    """The exact sum with D, rounded to nearest; NaN and infinities included."""
    a, b = (random_matrix(rng, (rows, K[kind]), name) for rows in (64, 80))
    c = old(rng, (64, 80), DTYPES[accumulator_type(kind)])
    if c.dtype.kind == "f":
        c += rng.standard_normal(c.shape).astype("f4")
    d, _ = multiply(kind, (a, name), (b, name), c)
    assert np.array_equal(d, (product(a, b) + c).astype(c.dtype), equal_nan=True)


@pytest.mark.parametrize("name", ["f16", "e5m2", "e2m1"])
def test_d_of_half_precision_takes_the_low_half_of_a_cell(rng, name):
    kind = "f16" if name == "f16" else "f8f6f4"
    a, b = (random_matrix(rng, (rows, K[kind]), name) for rows in (128, 32))
    c = rng.standard_normal((128, 32)).astype(np.float16)
    d, _ = multiply(kind, (a, name), (b, name), c)
    assert (d == (product(a, b) + exact(c)).astype(np.float16)).all()


@pytest.mark.parametrize("m", [64, 128])
@pytest.mark.parametrize("n", [8, 24, 40, 104, 136, 192, 224, 256])
def test_shapes(rng, m, n):
    a, b = small_matrix(rng, (m, 16), "bf16"), small_matrix(rng, (n, 16), "bf16")
    c = old(rng, (m, n))
    d, counters = multiply("f16", (a, "bf16"), (b, "bf16"), c)
    assert (d == product(a, b) + c).all()
    assert counters.extra["tcgen05 shared wavefronts"] == (m + n) * 32 // 128
    assert counters.extra["tcgen05 shared wavefronts ideal"] == (m + n) * 32 // 128


@pytest.mark.parametrize("majors", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("b_mode", MODES)
@pytest.mark.parametrize("a_mode", MODES)
def test_swizzles_and_majors(rng, a_mode, b_mode, majors):
    a, b = small_matrix(rng, (128, 16), "f16"), small_matrix(rng, (72, 16), "f16")
    c = old(rng, (128, 72))
    d, _ = multiply("f16", (a, "f16"), (b, "f16"), c, a_mode=a_mode, b_mode=b_mode, majors=majors)
    assert (d == product(a, b) + c).all()


@pytest.mark.parametrize(("kind", "name", "mode"), [
    ("tf32", "tf32", "128/32"), ("f8f6f4", "e4m3", "64"), ("f8f6f4", "e2m3", "128"),
    ("i8", "s8", "none"),
])  # fmt: skip
def test_transposed_operands_of_other_kinds(rng, kind, name, mode):
    a, b = small_matrix(rng, (64, K[kind]), name), small_matrix(rng, (96, K[kind]), name)
    c = old(rng, (64, 96), DTYPES[accumulator_type(kind)])
    d, _ = multiply(kind, (a, name), (b, name), c, a_mode=mode, b_mode=mode, majors=(False,) * 2)
    assert (d == product(a, b) + c).all()


# Where D lies


@pytest.mark.parametrize(("m", "n", "ws", "lane"), [
    (128, 64, False, 0), (64, 64, False, 0), (64, 64, False, 16), (128, 64, True, 0),
    (64, 64, True, 0), (32, 128, True, 0), (64, 256, True, 0), (32, 256, True, 0),
])  # fmt: skip
def test_every_element_of_d_has_its_cell_and_no_other_changes(rng, m, n, ws, lane):
    """Unique values: A picks out rows of integers, B scales columns."""
    a, b = np.zeros((m, 16), np.float16), np.zeros((n, 16), np.float16)
    a[:, 0], a[:, 1], b[:, 0], b[:, 1] = np.arange(m), 1, n, np.arange(n)
    pa = place(a, "f16", "f16")
    pb = place(b, "f16", "f16", start=pa.tile.end)
    blank = np.full((1, 128, 256), 0x5A5A5A5A, np.uint32)
    call = Call(lane << 16, pa.tile.descriptor(), pb.tile.descriptor(),
                idesc("f16", m, n, "f16"), add=False)  # fmt: skip
    cells, _ = run(Form("f16", ws=ws), [call], [image_of(pa, pb)], blank)
    want = cells_of((np.arange(m * n).reshape(m, n)).astype(np.float32), ws, lane, columns=256)
    assert (cells == want).all()


def test_two_tiles_of_64_rows_share_columns(rng):
    """Layout F uses 16 lanes of each quarter, from 0 or from 16 on."""
    a, b = small_matrix(rng, (128, 16), "bf16"), small_matrix(rng, (32, 16), "bf16")
    upper, lower = place(a[:64], "bf16", "f16"), place(a[64:], "bf16", "f16", start=START + 8192)
    right = place(b, "bf16", "f16", start=START + 16384)
    word = idesc("f16", 64, 32, "bf16")
    calls = [Call(lane << 16, p.tile.descriptor(), right.tile.descriptor(), word, add=False)
             for p, lane in ((upper, 0), (lower, 16))]  # fmt: skip
    cells, _ = run(Form("f16"), calls, [image_of(upper, lower, right)],
                   np.zeros((1, 128, 32), np.uint32))  # fmt: skip
    for part, lane in ((a[:64], 0), (a[64:], 16)):
        assert (d_of(cells, 64, 32, np.dtype("f4"), lane=lane) == product(part, b)).all()


# Chains


def test_a_k_loop_under_every_policy(rng):
    """64 columns of K in one 128-byte row; the first step ignores what D holds."""
    a, b = small_matrix(rng, (128, 64), "bf16"), small_matrix(rng, (256, 64), "bf16")
    pa = place(a, "bf16", "f16")
    pb = place(b, "bf16", "f16", start=pa.tile.end)
    calls = [Call(0, pa.tile.descriptor(k), pb.tile.descriptor(k), idesc("f16", 128, 256, "bf16"),
                  add=k > 0) for k in range(0, 64, 16)]  # fmt: skip
    for policy in POLICIES:
        garbage = np.full((1, 128, 256), np.nan, np.float32)
        cells, counters = run(Form("f16"), calls, [image_of(pa, pb)], garbage, policy=policy)
        assert (d_of(cells, 128, 256, np.dtype("f4")) == product(a, b)).all()
        assert counters.extra["flops bf16"] == 2 * 128 * 256 * 64
        assert counters.extra["tcgen05 shared wavefronts"] == (128 + 256) * 4 * 32 // 128


def test_accumulators_side_by_side(rng):
    a, b = small_matrix(rng, (128, 8), "tf32"), small_matrix(rng, (64, 8), "tf32")
    pa = place(a, "tf32", "tf32", "32")
    pb = place(b, "tf32", "tf32", "32", start=pa.tile.end)
    calls = [Call(column, pa.tile.descriptor(), pb.tile.descriptor(),
                  idesc("tf32", 128, 64, "tf32", negate=(0, i)), add=False)
             for i, column in enumerate((64, 192))]  # fmt: skip
    cells, _ = run(Form("tf32"), calls, [image_of(pa, pb)], np.zeros((1, 128, 256), np.uint32))
    for column, sign in ((64, 1), (192, -1)):
        part = cells[:, :, column : column + 64]
        assert (d_of(part, 128, 64, np.dtype("f4")) == sign * product(a, b)).all()
    assert not cells[:, :, :64].any()
    assert not cells[:, :, 128:192].any()


# Operations


@pytest.mark.parametrize("signs", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_negated_operands(rng, signs):
    a, b = small_matrix(rng, (64, 32), "e4m3"), small_matrix(rng, (16, 32), "e4m3")
    c = old(rng, (64, 16))
    word = idesc("f8f6f4", 64, 16, "e4m3", negate=signs)
    d, _ = multiply("f8f6f4", (a, "e4m3"), (b, "e4m3"), c, word=word)
    assert (d == (-1) ** sum(signs) * product(a, b) + c).all()


@pytest.mark.parametrize("saturate", [0, 1])
def test_integers_wrap_or_saturate(rng, saturate):
    a, b = (random_matrix(rng, (rows, 32), "u8") for rows in (128, 32))
    c = rng.choice(np.array([2**31 - 5, -(2**31), 7], np.int32), (128, 32))
    word = idesc("i8", 128, 32, "u8", d="s32", saturate=saturate)
    d, _ = multiply("i8", (a, "u8"), (b, "u8"), c, word=word)
    sums = product(a, b).astype(np.int64) + c
    want = np.clip(sums, -(2**31), 2**31 - 1) if saturate else sums
    assert (d == want.astype(np.int32)).all()
    assert (sums != d).any() == (not saturate or (sums > 2**31 - 1).any())


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("kind", "name", "shift"), [
    ("f16", "f16", 0), ("f16", "bf16", 3), ("tf32", "tf32", 15),
])  # fmt: skip
def test_scale_input_d(rng, kind, name, shift, add):
    a, b = random_matrix(rng, (128, K[kind]), name), random_matrix(rng, (32, K[kind]), name)
    c = rng.standard_normal((128, 32)).astype(np.float32)
    d, _ = multiply(kind, (a, name), (b, name), c, form=Form(kind, input_shift=shift),
                    call={"add": add})  # fmt: skip
    want = product(a, b) + (exact(c) * 2.0**-shift if add else 0)
    assert (d == want.astype(np.float32)).all()


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("m", "lane"), [(128, 0), (64, 0), (64, 16)])
def test_disabled_lanes_keep_what_they_hold(rng, m, lane, add):
    a, b = small_matrix(rng, (m, 16), "bf16"), small_matrix(rng, (40, 16), "bf16")
    c = old(rng, (m, 40))
    mask = (0x0000FFFF, 0xF0F0F0F0, 0, 0xFFFFFFFF)
    d, _ = multiply("f16", (a, "bf16"), (b, "bf16"), c, lane=lane, form=Form("f16", disabled=True),
                    call={"add": add, "disabled": mask})  # fmt: skip
    rows = tmem.accumulator(m, 40).table()[:, 0] % 128 + lane
    kept = np.array([mask[row // 32] >> row % 32 & 1 for row in rows], bool)
    assert kept.any()
    assert not kept.all()
    assert (d == np.where(kept[:, None], c, product(a, b) + (c if add else 0))).all()


# A in tensor memory


@pytest.mark.parametrize(("kind", "name"), [
    ("f16", "f16"), ("f16", "bf16"), ("tf32", "tf32"), ("i8", "s8"), ("i8", "u8"),
    *[("f8f6f4", name) for name in CODES["f8f6f4"]],
])  # fmt: skip
@pytest.mark.parametrize(("m", "lane", "ws"), [
    (128, 0, False), (64, 0, False), (64, 16, False), (128, 0, True), (64, 0, True), (32, 0, True),
])  # fmt: skip
def test_a_in_tensor_memory(rng, kind, name, m, lane, ws):
    """With .ws and fewer than 128 rows every part of the data path needs its copy of A."""
    a, b = (random_matrix(rng, (rows, K[kind]), name) for rows in (m, 64))
    pb = place(b, name, kind)
    cells = np.concatenate([np.zeros((128, 64), np.uint32), a_cells(a, name, ws, lane),
                            np.zeros((128, 24), np.uint32)], axis=1)  # fmt: skip
    d_name = accumulator_type(kind)
    call = Call(lane << 16, lane << 16 | 64, pb.tile.descriptor(),
                idesc(kind, m, 64, name, d=d_name), add=False)  # fmt: skip
    form = Form(kind, ws=ws, a_in_tensor_memory=True)
    found, counters = run(form, [call], [image_of(pb)], cells[None])
    d = d_of(found, m, 64, DTYPES[d_name], ws, lane)
    assert np.array_equal(d, product(a, b).astype(d.dtype), equal_nan=True)
    assert counters.extra["tcgen05 shared wavefronts"] == 64 * 32 // 128
