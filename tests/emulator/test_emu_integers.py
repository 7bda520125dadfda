"""Integer instructions against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import compute, integers, same_bits

TYPES = {"u16": "u2", "s16": "i2", "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8"}


def wrap(value, dtype):
    bits = np.dtype(dtype).itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value


def expect(fn, dtype, *columns):
    rows = zip(*(c.tolist() for c in columns), strict=True)
    return np.array([wrap(int(fn(*row)), dtype) for row in rows], dtype)


def rows(*columns):
    return zip(*(c.tolist() for c in columns), strict=True)


def clamp(value, dtype):
    info = np.iinfo(dtype)
    return min(max(value, info.min), info.max)


def c_div(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


TWO = {
    "add.{}": lambda a, b: a + b,
    "sub.{}": lambda a, b: a - b,
    "mul.lo.{}": lambda a, b: a * b,
    "min.{}": min,
    "max.{}": max,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("op", TWO)
def test_two_sources(rng, op, name):
    dtype = np.dtype(TYPES[name])
    a, b = integers(rng, dtype), integers(rng, dtype)
    got = compute(f"{op.format(name)} %d, %a, %b;", a, b, out=dtype)
    same_bits(got, expect(TWO[op], dtype, a, b))


@pytest.mark.parametrize("name", TYPES)
def test_high_products(rng, name):
    dtype = np.dtype(TYPES[name])
    bits = dtype.itemsize * 8
    a, b, c = (integers(rng, dtype) for _ in range(3))
    same_bits(compute(f"mul.hi.{name} %d, %a, %b;", a, b, out=dtype),
              expect(lambda x, y: (x * y) >> bits, dtype, a, b))  # fmt: skip
    same_bits(compute(f"mad.hi.{name} %d, %a, %b, %c;", a, b, c, out=dtype),
              expect(lambda x, y, z: ((x * y) >> bits) + z, dtype, a, b, c))  # fmt: skip
    same_bits(compute(f"mad.lo.{name} %d, %a, %b, %c;", a, b, c, out=dtype),
              expect(lambda x, y, z: x * y + z, dtype, a, b, c))  # fmt: skip


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32"])
def test_wide_products(rng, name):
    dtype = np.dtype(TYPES[name])
    wide = np.dtype(f"{dtype.kind}{dtype.itemsize * 2}")
    a, b, c = integers(rng, dtype), integers(rng, dtype), integers(rng, wide)
    same_bits(compute(f"mul.wide.{name} %d, %a, %b;", a, b, out=wide),
              expect(lambda x, y: x * y, wide, a, b))  # fmt: skip
    same_bits(compute(f"mad.wide.{name} %d, %a, %b, %c;", a, b, c, out=wide),
              expect(lambda x, y, z: x * y + z, wide, a, b, c))  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_division_truncates(rng, name):
    dtype = np.dtype(TYPES[name])
    a, b = integers(rng, dtype), integers(rng, dtype)
    b[b == 0] = 7
    same_bits(compute(f"div.{name} %d, %a, %b;", a, b, out=dtype), expect(c_div, dtype, a, b))
    same_bits(compute(f"rem.{name} %d, %a, %b;", a, b, out=dtype),
              expect(lambda x, y: x - y * c_div(x, y), dtype, a, b))  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("op", ["div", "rem"])
def test_division_by_zero_gives_all_ones(op, name):
    a = np.array([0, 1, 7, 0], TYPES[name])
    a[3] = ~a[3]
    got = compute(f"{op}.{name} %d, %a, %b;", a, np.zeros_like(a), out=a.dtype)
    assert (got == ~a.dtype.type(0)).all()


@pytest.mark.parametrize("name", ["s16", "s32", "s64"])
def test_abs_and_neg(rng, name):
    dtype = np.dtype(TYPES[name])
    a = integers(rng, dtype)
    same_bits(compute(f"abs.{name} %d, %a;", a, out=dtype), expect(abs, dtype, a))
    same_bits(compute(f"neg.{name} %d, %a;", a, out=dtype), expect(lambda x: -x, dtype, a))


def test_saturating(rng):
    a, b, c = (integers(rng, np.int32) for _ in range(3))
    same_bits(compute("add.sat.s32 %d, %a, %b;", a, b, out="i4"),
              expect(lambda x, y: clamp(x + y, np.int32), np.int32, a, b))  # fmt: skip
    same_bits(compute("sub.sat.s32 %d, %a, %b;", a, b, out="i4"),
              expect(lambda x, y: clamp(x - y, np.int32), np.int32, a, b))  # fmt: skip
    want = expect(lambda x, y, z: clamp(((x * y) >> 32) + z, np.int32), np.int32, a, b, c)
    same_bits(compute("mad.hi.sat.s32 %d, %a, %b, %c;", a, b, c, out="i4"), want)


def test_sum_of_absolute_differences(rng):
    a, b, c = (integers(rng, np.uint32) for _ in range(3))
    same_bits(compute("sad.u32 %d, %a, %b, %c;", a, b, c),
              expect(lambda x, y, z: z + abs(x - y), np.uint32, a, b, c))  # fmt: skip


@pytest.mark.parametrize("form", ["lo", "hi"])
def test_24_bit_products(rng, form):
    a, b = integers(rng, np.int32), integers(rng, np.int32)

    def product(x, y):
        x, y = (wrap(v << 8, np.int32) >> 8 for v in (x, y))
        return (x * y) >> (16 if form == "hi" else 0)

    got = compute(f"mul24.{form}.s32 %d, %a, %b;", a, b, out="i4")
    same_bits(got, expect(product, np.int32, a, b))


def parts(value, dtype):
    return np.array([value], np.uint32).view(dtype).tolist()


@pytest.mark.parametrize("ta", ["u32", "s32"])
@pytest.mark.parametrize("tb", ["u32", "s32"])
def test_dot_products(rng, ta, tb):
    a, b, c = (integers(rng, np.uint32) for _ in range(3))
    a8, b8 = (np.int8 if t == "s32" else np.uint8 for t in (ta, tb))
    a16 = np.int16 if ta == "s32" else np.uint16

    def dp4a(x, y, z):
        return z + sum(p * q for p, q in zip(parts(x, a8), parts(y, b8), strict=True))

    def dp2a(x, y, z):
        return z + sum(p * q for p, q in zip(parts(x, a16), parts(y, b8)[2:], strict=True))

    same_bits(compute(f"dp4a.{ta}.{tb} %d, %a, %b, %c;", a, b, c), expect(dp4a, np.uint32, a, b, c))
    same_bits(compute(f"dp2a.hi.{ta}.{tb} %d, %a, %b, %c;", a, b, c),
              expect(dp2a, np.uint32, a, b, c))  # fmt: skip


def test_carry_chains_make_128_bit_sums(rng):
    a, b, c, d = (integers(rng, np.uint64) for _ in range(4))
    low, high = compute("add.cc.u64 %d, %a, %c; addc.u64 %e, %b, %f;", a, b, c, d, out="u8", outs=2)
    want = [(x | y << 64) + (z | w << 64) for x, y, z, w in rows(a, b, c, d)]
    same_bits(low, np.array([w & (2**64 - 1) for w in want], np.uint64))
    same_bits(high, np.array([(w >> 64) & (2**64 - 1) for w in want], np.uint64))
    low, high = compute("sub.cc.u64 %d, %a, %c; subc.u64 %e, %b, %f;", a, b, c, d, out="u8", outs=2)
    want = [(x | y << 64) - (z | w << 64) for x, y, z, w in rows(a, b, c, d)]
    same_bits(low, np.array([w & (2**64 - 1) for w in want], np.uint64))
    same_bits(high, np.array([(w >> 64) & (2**64 - 1) for w in want], np.uint64))


def test_mad_with_carry_makes_a_wide_sum(rng):
    a, b, c, d = (integers(rng, np.uint32) for _ in range(4))
    low, high = compute(
        "mad.lo.cc.u32 %d, %a, %b, %c; madc.hi.u32 %e, %a, %b, %f;", a, b, c, d, outs=2
    )
    want = [x * y + (z | w << 32) for x, y, z, w in rows(a, b, c, d)]
    same_bits(low, np.array([w & (2**32 - 1) for w in want], np.uint32))
    same_bits(high, np.array([(w >> 32) & (2**32 - 1) for w in want], np.uint32))


def test_packed_halfwords(rng):
    a, b = integers(rng, np.int32), integers(rng, np.int32)
    want = (a.view(np.int16) + b.view(np.int16)).view(np.int32)
    same_bits(compute("add.s16x2 %d, %a, %b;", a, b, out="i4"), want)
    want = np.maximum(a.view(np.int16), b.view(np.int16))
    same_bits(compute("max.s16x2 %d, %a, %b;", a, b, out="i4"), want.view(np.int32))
    same_bits(compute("max.relu.s16x2 %d, %a, %b;", a, b, out="i4"),
              np.maximum(want, 0).view(np.int32))  # fmt: skip
    want = np.minimum(a.view(np.uint16), b.view(np.uint16)).view(np.int32)
    same_bits(compute("min.u16x2 %d, %a, %b;", a, b, out="i4"), want)


COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("relation", COMPARISONS)
def test_comparisons(rng, relation, name):
    dtype = np.dtype(TYPES[name])
    a, b = integers(rng, dtype), integers(rng, dtype)
    b[::3] = a[::3]
    got = compute(f"setp.{relation}.{name} %q1, %a, %b; selp.u32 %d, 1, 0, %q1;", a, b)
    same_bits(got, COMPARISONS[relation](a, b))
    if dtype.itemsize > 1:
        got = compute(f"set.{relation}.s32.{name} %d, %a, %b;", a, b, out="i4")
        same_bits(got, -COMPARISONS[relation](a, b).astype(np.int32))


def test_setp_combines_and_complements(rng):
    a, b, c = (integers(rng, np.int32) for _ in range(3))
    body = (
        "setp.gt.s32 %q1, %c, 0; setp.lt.and.s32 %q2|%q3, %a, %b, !%q1;"
        "selp.u32 %d, 1, 0, %q2; selp.u32 %e, 1, 0, %q3;"
    )
    got, other = compute(body, a, b, c, outs=2)
    same_bits(got, (a < b) & ~(c > 0))
    same_bits(other, ~(a < b) & ~(c > 0))
