"""Block-scaled tcgen05.mma: mxf8f6f4, mxf4 and mxf4nvf4 with scale factors in tensor memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import a_cells, codes, exact, image_of, place, random_matrix
from tcgen05_words import CODES, K, idesc

from gpukit.emulator.errors import (
    KernelFault,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES
from gpukit.layout import tmem

SCALE_TYPES = {
    "ue8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "ue4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}
A_COLUMN, B_COLUMN, COLUMNS = 256, 264, 288  # of the scale factors; D begins at 0
VARIANTS = [  # kind, qualifier, scales per row, their type
    ("mxf8f6f4", "", 1, "ue8m0"), ("mxf8f6f4", "scale_vec::1X", 1, "ue8m0"),
    ("mxf8f6f4", "block32", 1, "ue8m0"), ("mxf4", "", 2, "ue8m0"), ("mxf4", "block32", 2, "ue8m0"),
    ("mxf4", "scale_vec::2X", 2, "ue8m0"), ("mxf4nvf4", "scale_vec::2X", 2, "ue8m0"),
    ("mxf4nvf4", "scale_vec::4X", 4, "ue8m0"), ("mxf4nvf4", "block16", 4, "ue4m3"),
    ("mxf4nvf4", "scale_vec::4X", 4, "ue4m3"),
]  # fmt: skip


def random_scales(rng, rows, vector, type_):
    """Powers of two around 1, or positive e4m3 numbers."""
    if type_ == "ue8m0":
        return rng.integers(120, 136, (rows, vector)).astype(np.uint8)
    return rng.integers(0, 0x7F, (rows, vector)).astype(np.uint8)


def scale_values(scales, type_):
    return scales.view(SCALE_TYPES[type_]).astype(np.float64)


def put_scales(cells, layout, column, scales, first):
    """Write the codes [row, vector] from byte ``first`` of the cells on, in every copy."""
    at = layout.table()[: len(scales)]
    octets = cells.view(np.uint8).reshape(*cells.shape, 4)
    for copy in at.T:
        for i in range(scales.shape[1]):
            octets[copy % 128, column + copy // 128, first + i] = scales[:, i]


def scaled(values, scales, type_):
    """float64: every run of K / vector elements of a row times its scale factor."""
    k = values.shape[1]
    return exact(values) * np.repeat(scale_values(scales, type_), k // scales.shape[1], axis=1)


class Problem:
    """A and B with scale factors, shared and tensor memory of one CTA or of a pair."""

    def __init__(self, rng, variant, m, n, names=("e2m1", "e2m1"), ids=(0, 0), group=1,
                 a_in_tensor_memory=False, majors=(True, True), **word):  # fmt: skip
        kind, qualifier, vector, type_ = variant
        self.m, self.n, self.group, self.type = m, n, group, type_
        self.form = Form(kind, group, vector=qualifier, a_in_tensor_memory=a_in_tensor_memory)
        self.a, self.b = (random_matrix(rng, (rows, K[kind]), name)
                          for rows, name in zip((m, n), names, strict=True))  # fmt: skip
        self.a_scales, self.b_scales = (random_scales(rng, rows, vector, type_) for rows in (m, n))
        self.c = rng.integers(-9, 9, (m, n)).astype(np.float32)
        lefts = [place(part, names[0], kind, k_major=majors[0]) for part in np.split(self.a, group)]
        rights = [place(part, names[1], kind, k_major=majors[1], start=lefts[0].tile.end)
                  for part in np.split(self.b, group)]  # fmt: skip
        self.images = [image_of(*pair) for pair in zip(lefts, rights, strict=True)]
        self.cells = np.stack([self._memory(i, ids) for i in range(group)])
        a = lefts[0].tile.descriptor()
        if a_in_tensor_memory:
            a = 272
            for half, part in zip(self.cells, np.split(self.a, group), strict=True):
                half[:, 272:280] = self._a_in_tensor_memory(part, names[0], kind)
        word = idesc(kind, m, n, *names, scale=type_, ids=ids,
                     transpose=[int(not major) for major in majors], **word)  # fmt: skip
        self.call = Call(0, a, rights[0].tile.descriptor(), word, scales=(A_COLUMN, B_COLUMN))

    @staticmethod
    def _a_in_tensor_memory(part, name, kind):
        if kind == "mxf8f6f4":
            return a_cells(part, name, copies=True)
        nibbles = codes(part).astype(np.uint8)
        packed = np.ascontiguousarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4)
        return np.tile(packed.view(np.uint32), (128 // len(part), 1))

    def _memory(self, member, ids):
        cells = np.full((128, COLUMNS), 0x5A5A5A5A, np.uint32)
        at = tmem.accumulator(self.m, self.n, self.group).table()
        cells[at % 128, at // 128] = codes(np.split(self.c, self.group)[member])
        rows = self.m // self.group
        split = self.group == 2 and rows == 64
        b_layout = (tmem.split_scale_factors if split else tmem.scale_factors)(self.n)
        mine = np.split(self.a_scales, self.group)[member]
        put_scales(cells, tmem.scale_factors(rows), A_COLUMN, mine, ids[0])
        put_scales(cells, b_layout, B_COLUMN, self.b_scales, ids[1])
        return cells

    @property
    def product(self):
        return scaled(self.a, self.a_scales, self.type) @ scaled(self.b, self.b_scales, self.type).T

    def run(self, **options):
        """D and the counters."""
        cells, counters = run(self.form, [self.call], self.images, self.cells, **options)
        at = tmem.accumulator(self.m, self.n, self.group).table()
        parts = [half[at % 128, at // 128] for half in cells]
        return np.concatenate(parts).view(np.float32), counters


def same(d, want):
    return np.array_equal(d, want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v)))
def test_variants(rng, variant):
    problem = Problem(rng, variant, 128, 64)
    d, counters = problem.run()
    assert same(d, problem.product + problem.c)
    assert counters.extra[f"flops {variant[0]}"] == 2 * 128 * 64 * K[variant[0]]
    assert counters.extra["tcgen05 shared wavefronts"] == (128 + 64) * 32 // 128


@pytest.mark.parametrize("a", CODES["mxf8f6f4"])
@pytest.mark.parametrize("b", CODES["mxf8f6f4"])
def test_types_of_mxf8f6f4(rng, a, b):
    problem = Problem(rng, VARIANTS[0], 128, 32, (a, b))
    assert same(problem.run()[0], problem.product + problem.c)


@pytest.mark.parametrize(("variant", "ids"), [
    *[(VARIANTS[1], (i, 3 - i)) for i in range(4)], *[(VARIANTS[5], ids) for ids in
      ((0, 2), (2, 0), (2, 2))],
], ids=str)  # fmt: skip
def test_scale_factor_ids_choose_the_bytes(rng, variant, ids):
    """All other bytes of the cells hold something else."""
    problem = Problem(rng, variant, 128, 48, ids=ids)
    assert same(problem.run()[0], problem.product + problem.c)


@pytest.mark.parametrize("n", [8, 40, 96, 128, 192, 256])
@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[9]], ids=["mxf8f6f4", "mxf4nvf4"])
def test_shapes(rng, variant, n):
    problem = Problem(rng, variant, 128, n)
    assert same(problem.run()[0], problem.product + problem.c)


@pytest.mark.parametrize("n", [64, 128, 192, 256])
@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[3], VARIANTS[8]], ids=str)
def test_pairs(rng, variant, m, n):
    """Each CTA has the scale factors of its rows of A, and of all columns that it computes."""
    problem = Problem(rng, variant, m, n, group=2)
    assert same(problem.run()[0], problem.product + problem.c)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("variant", "name"), [
    (VARIANTS[0], "e4m3"), (VARIANTS[0], "e3m2"), (VARIANTS[0], "e2m1"), (VARIANTS[4], "e2m1"),
    (VARIANTS[9], "e2m1"),
], ids=str)  # fmt: skip
def test_a_in_tensor_memory(rng, variant, name, group):
    problem = Problem(rng, variant, 128 * group, 64, (name, "e2m1"), group=group,
                      a_in_tensor_memory=True)  # fmt: skip
    assert same(problem.run()[0], problem.product + problem.c)


@pytest.mark.parametrize("majors", [(True, False), (False, True), (False, False)])
def test_transposed_and_negated(rng, majors):
    problem = Problem(rng, VARIANTS[0], 128, 64, ("e4m3", "e2m3"), majors=majors, negate=(1, 0))
    assert same(problem.run()[0], problem.c - problem.product)


@pytest.mark.parametrize("policy", POLICIES)
def test_policies(rng, policy):
    problem = Problem(rng, VARIANTS[8], 128, 256)
    problem.call.add = False
    assert same(problem.run(policy=policy)[0], problem.product)


def test_not_a_number_and_the_ends_of_the_range(rng):
    """ue8m0 is 2 to the power of code - 127; code 255 is NaN."""
    problem = Problem(rng, VARIANTS[0], 128, 32, ("e4m3", "e4m3"))
    codes_a = np.full((128, 1), 127, np.uint8)
    codes_a[0], codes_a[1], codes_a[2] = 255, 0, 254
    put_scales(problem.cells[0], tmem.scale_factors(128), A_COLUMN, codes_a, 0)
    problem.a_scales, problem.c[:] = codes_a, 0
    problem.call.add = False
    d, _ = problem.run()
    assert np.isnan(d[0]).all()
    assert same(d, problem.product)


# What is refused


@pytest.mark.parametrize("name", ["A", "B"])
def test_copies_that_differ(rng, name):
    problem = Problem(rng, VARIANTS[0], 128, 64)
    column = {"A": A_COLUMN, "B": B_COLUMN}[name]
    problem.run()
    problem.cells[0, 64 + 7, column + 1] ^= 0x100  # a byte that is not used
    problem.run()
    problem.cells[0, 64 + 7, column + 1] ^= 1
    with pytest.raises(KernelFault, match=(
        f"scale factors of {name} must be the same in all quarters of tensor memory; those of row "
        f"39 differ in lanes 7 and 71 of column {column + 1}"
    )):  # fmt: skip
        problem.run()


def test_the_upper_bit_of_ue4m3(rng):
    problem = Problem(rng, VARIANTS[9], 128, 32)
    for copy in range(4):
        problem.cells[0, 32 * copy + 5, B_COLUMN] |= 0x80000000
    with pytest.raises(KernelFault, match="scale factor of B, row 5: the upper bit of a ue4m3"):
        problem.run()


def test_scale_factors_begin_at_lane_0(rng):
    problem = Problem(rng, VARIANTS[0], 128, 32)
    problem.call.scales = (32 << 16 | A_COLUMN, B_COLUMN)
    with pytest.raises(KernelFault, match="scale factors of A at lane 32; accepted: lane 0"):
        problem.run()


def test_addresses_that_name_the_byte_too(rng):
    """As CUTLASS writes them: the byte in the upper two bits, which is also the descriptor's."""
    problem = Problem(rng, VARIANTS[0], 128, 32, ids=(3, 1))
    problem.call.scales = (3 << 30 | A_COLUMN, 1 << 30 | B_COLUMN)
    d, _ = problem.run()
    assert same(d, problem.product + problem.c)
    problem.call.scales = (A_COLUMN, 2 << 30 | B_COLUMN)
    with pytest.raises(KernelFault, match=(
        "scale factors of B at byte 2 by bits 30 and 31 of their address; accepted: 0, or the 1 of"
    )):  # fmt: skip
        problem.run()


def test_scale_factors_in_the_columns_of_d(rng):
    problem = Problem(rng, VARIANTS[0], 128, 64)
    problem.call.scales = (A_COLUMN, 63)
    with pytest.raises(KernelFault, match=(
        "scale factors of B in columns 63 to 64 of tensor memory overlap D of the same "
        r"tcgen05\.mma, in columns 0 to 63"
    )):  # fmt: skip
        problem.run()


def test_scale_factors_that_nothing_has_written(rng):
    problem = Problem(rng, VARIANTS[0], 128, 32)
    problem.call.scales = (A_COLUMN, 300)
    with pytest.raises(UninitializedReadError, match="lane 0, column 300"):
        problem.run()


@pytest.mark.parametrize(("kind", "qualifier", "why"), [
    ("mxf4nvf4", "", "needs .scale_vec::NX or .blockN"),
    ("mxf8f6f4", "scale_vec::2X", "does not take .scale_vec::2X"),
    ("mxf4", "block16", "does not take .block16"),
])  # fmt: skip
def test_vector_sizes(rng, kind, qualifier, why):
    variant = (kind, "", 1 if kind == "mxf8f6f4" else 2, "ue8m0")
    problem = Problem(rng, variant, 128, 32)
    issue = Form(kind, vector=qualifier).text
    with pytest.raises(UnsupportedInstructionError, match=why):
        problem.run(issue=issue)
