"""Float arithmetic against exact rational arithmetic rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import BF16, NAN, compute, floats, rounded, same_bits, with_canonical_nan

FORMATS = {"f16": np.dtype(np.float16), "bf16": BF16, "f32": np.dtype("f4"), "f64": np.dtype("f8")}
N = 600


def exactly(fn, dtype, mode, *columns):
    """Round ``fn`` of Fractions; IEEE rules (by binary64) where an operand is not finite."""
    rows = zip(*(c.astype(np.float64).tolist() for c in columns), strict=True)
    return np.array([one(fn, dtype, mode, row) for row in rows], np.float64)


def one(fn, dtype, mode, row):
    with np.errstate(all="ignore"):
        plain = float(fn(*map(np.float64, row)))
    if not all(map(math.isfinite, row)) or math.isnan(plain):
        return plain
    try:
        exact = fn(*map(Fraction, row))
    except ZeroDivisionError:
        return plain
    if exact == 0:
        return signed_zero(fn, row, mode)
    value = rounded(exact, dtype, mode)
    return value if value else math.copysign(0.0, exact)


def signed_zero(fn, row, mode):
    with np.errstate(all="ignore"):
        zero = float(fn(*map(np.float64, row)))
    if zero != 0:  # binary64 could not represent the operands' exact zero: cannot happen here
        raise AssertionError(row)
    cancelled = getattr(fn, "sums", lambda *a: None)(*row)
    return -0.0 if mode == "rm" and cancelled else zero


def add(a, b):
    return a + b


def sub(a, b):
    return a - b


def mul(a, b):
    return a * b


def fma(a, b, c):
    return a * b + c


def signs_differ(x, y):
    return math.copysign(1, x) != math.copysign(1, y)


add.sums = signs_differ
sub.sums = lambda a, b: signs_differ(a, -b)
fma.sums = lambda a, b, c: signs_differ(math.copysign(1, a) * math.copysign(1, b), c)
TWO = {"add": add, "sub": sub, "mul": mul}


def check(got, want, dtype):
    """Bit equality; NaNs must be canonical, except in binary64 where any NaN will do."""
    if dtype == np.float64:
        assert (np.isnan(got) == np.isnan(want)).all()
        same_bits(np.where(np.isnan(got), 0, got), np.where(np.isnan(want), 0, want))
    else:
        same_bits(got, with_canonical_nan(want, dtype))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("op", TWO)
def test_nearest(rng, op, name):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    got = compute(f"{op}.{'rn.' if name != 'f16' else ''}{name} %d, %a, %b;", a, b, out=dtype)
    check(got, exactly(TWO[op], dtype, "rn", a, b), dtype)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", TWO)
def test_directed(rng, op, name, mode):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    b[:50] = -a[:50]
    got = compute(f"{op}.{mode}.{name} %d, %a, %b;", a, b, out=dtype)
    check(got, exactly(TWO[op], dtype, mode, a, b), dtype)


def near_ties(rng, dtype, n):
    """Products close to half an ulp of the addend: where rounding twice goes wrong."""
    bits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[str(dtype)]
    a = (1 + rng.integers(0, 1 << min(bits, 30), n) * 2.0 ** -min(bits, 30)).astype(dtype)
    b = rng.choice(np.array([0.5, 1, 1.5, 1 + 2.0**-bits, 1 - 2.0**-bits]), n).astype(dtype)
    scale = rng.integers(bits - 2, bits + 4, n)
    c = (rng.choice([-1, 1], n) * 2.0**scale * (1 + rng.integers(0, 4, n) * 2.0**-bits)).astype(
        dtype
    )
    return a, b, c


@pytest.mark.parametrize(
    ("name", "mode"),
    [("f16", "rn"), ("bf16", "rn")]
    + [(name, mode) for name in ("f32", "f64") for mode in ("rn", "rz", "rm", "rp")],
)
def test_fused_multiply_add(rng, name, mode):
    dtype = FORMATS[name]
    random = [floats(rng, dtype, N) for _ in range(3)]
    random[2][:30] = -(random[0][:30].astype("f8") * random[1][:30].astype("f8")).astype(dtype)
    a, b, c = (np.concatenate(p) for p in zip(random, near_ties(rng, dtype, N), strict=True))
    got = compute(f"fma.{mode}.{name} %d, %a, %b, %c;", a, b, c, out=dtype)
    check(got, exactly(fma, dtype, mode, a, b, c), dtype)


def test_double_rounding_is_avoided():
    """1 + 2**-24 + 2**-60: binary64 drops the last term and would round the tie to even."""
    a = np.array([2.0**-30], "f4")
    b = np.array([2.0**-30], "f4")
    c = np.array([1 + 2.0**-23], "f4")
    tie = compute(
        "fma.rn.f32 %d, %a, %b, %c;",
        np.array([2.0**-24 + 2.0**-47], "f4"),
        np.ones(1, "f4"),
        c,
        out="f4",
    )
    assert tie[0] == np.float32(1 + 2.0**-22)
    assert compute("fma.rn.f32 %d, %a, %b, %c;", a, b, c, out="f4")[0] == c[0]


def divide(a, b):
    return a / b


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_division_and_reciprocal(rng, name, mode):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    got = compute(f"div.{mode}.{name} %d, %a, %b;", a, b, out=dtype)
    check(got, exactly(divide, dtype, mode, a, b), dtype)
    got = compute(f"rcp.{mode}.{name} %d, %a;", b, out=dtype)
    check(got, exactly(divide, dtype, mode, np.ones_like(b), b), dtype)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_square_root(rng, name, mode):
    dtype = FORMATS[name]
    a = floats(rng, dtype, N)
    got = compute(f"sqrt.{mode}.{name} %d, %a;", a, out=dtype)
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        if not (math.isfinite(x) and x > 0):
            assert (math.isnan(y) and not x >= 0) or y == x
            continue
        below, above = (float(np.nextafter(dtype.type(y), dtype.type(d))) for d in (0, np.inf))
        root, square = Fraction(y), Fraction(x)
        if mode in ("rz", "rm"):
            assert root**2 <= square < Fraction(above) ** 2
        elif mode == "rp":
            assert Fraction(below) ** 2 < square <= root**2
        else:
            low, high = (root + Fraction(below)) / 2, (root + Fraction(above)) / 2
            assert low**2 <= square <= high**2


def flushed(x):
    tiny = ml_dtypes.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)


@pytest.mark.parametrize("op", TWO)
@pytest.mark.parametrize("name", ["f32", "f16"])
def test_flush_to_zero(rng, op, name):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    got = compute(f"{op}.ftz.{name} %d, %a, %b;", a, b, out=dtype)
    want = exactly(TWO[op], dtype, "rn", flushed(a), flushed(b))
    check(got, flushed(with_canonical_nan(want, dtype)), dtype)


def test_fma_flushes(rng):
    a, b, c = (floats(rng, "f4", N) for _ in range(3))
    got = compute("fma.rn.ftz.f32 %d, %a, %b, %c;", a, b, c, out="f4")
    want = exactly(fma, "f4", "rn", flushed(a), flushed(b), flushed(c))
    same_bits(got, flushed(with_canonical_nan(want, "f4")))


@pytest.mark.parametrize("name", ["f16", "f32"])
def test_saturation(rng, name):
    dtype = FORMATS[name]
    a, b, c = (floats(rng, dtype, N) for _ in range(3))
    got = compute(f"fma.rn.sat.{name} %d, %a, %b, %c;", a, b, c, out=dtype)
    want = exactly(fma, dtype, "rn", a, b, c)
    want = np.where(want > 0, np.minimum(want, 1), 0.0)
    same_bits(got, want.astype(dtype))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_relu(rng, name):
    dtype = FORMATS[name]
    a, b, c = (floats(rng, dtype, N) for _ in range(3))
    got = compute(f"fma.rn.relu.{name} %d, %a, %b, %c;", a, b, c, out=dtype)
    want = exactly(fma, dtype, "rn", a, b, c)
    same_bits(got, with_canonical_nan(np.where(want <= 0, 0.0, want), dtype))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_packed_halves(rng, name):
    dtype = FORMATS[name]
    a, b, c = (floats(rng, dtype, 2 * N) for _ in range(3))
    words = [x.view(np.uint32) for x in (a, b, c)]
    got = compute(f"fma.rn.{name}x2 %d, %a, %b, %c;", *words).view(dtype)
    check(got, exactly(fma, dtype, "rn", a, b, c), dtype)
    got = compute(f"add.{'rn.' if name == 'bf16' else ''}{name}x2 %d, %a, %b;", *words[:2]).view(
        dtype
    )
    check(got, exactly(add, dtype, "rn", a, b), dtype)
    body = f"setp.gt.s32 %q1, %c, 0; mov.b32 %d, %a; @%q1 mul.{name}x2 %d, %a, %b;"
    got = compute(body, *words).view(dtype)
    product = with_canonical_nan(exactly(mul, dtype, "rn", a, b), dtype)
    same_bits(got, np.where(np.repeat(words[2].view("i4") > 0, 2), product, a))


def test_packed_binary32(rng):
    a, b, c = (floats(rng, "f4", 2 * N) for _ in range(3))
    words = [x.view(np.uint64) for x in (a, b, c)]
    got = compute("fma.rn.f32x2 %d, %a, %b, %c;", *words, out="u8", target="sm_100a").view("f4")
    check(got, exactly(fma, "f4", "rn", a, b, c), "f4")


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_mixed_precision(rng, name):
    a, b = floats(rng, FORMATS[name], N), floats(rng, FORMATS[name], N)
    c = floats(rng, "f4", N)
    got = compute(f"fma.rn.f32.{name} %d, %a, %b, %c;", a, b, c, out="f4", target="sm_100a")
    check(got, exactly(fma, "f4", "rn", a, b, c), "f4")
    got = compute(
        f"add.rz.f32.{name} %d, %a, %c;".replace("%c", "%b"), a, c, out="f4", target="sm_100a"
    )
    check(got, exactly(add, "f4", "rz", a, c), "f4")


def number(a, b, pick):
    """The ISA's max_num / min_num."""
    if math.isnan(a):
        return b
    if math.isnan(b):
        return a
    if a == b == 0:
        signs = math.copysign(1, a), math.copysign(1, b)
        return math.copysign(0.0, pick(signs))
    return pick((a, b))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extrema(rng, op, name):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    b[:40] = -a[:40]
    pick = min if op == "min" else max
    rows = list(zip(a.astype("f8").tolist(), b.astype("f8").tolist(), strict=True))
    want = np.array([number(x, y, pick) for x, y in rows])
    check(compute(f"{op}.{name} %d, %a, %b;", a, b, out=dtype), want, dtype)
    if name != "f64":
        got = compute(f"{op}.NaN.{name} %d, %a, %b;", a, b, out=dtype)
        either = np.isnan(a.astype("f8")) | np.isnan(b.astype("f8"))
        check(got, np.where(either, np.nan, want), dtype)


def test_extremum_of_magnitudes(rng):
    a, b, c = (floats(rng, "f4", N) for _ in range(3))
    got = compute("max.xorsign.abs.f32 %d, %a, %b;", a, b, out="f4")
    size = np.fmax(np.abs(a), np.abs(b))
    sign = np.where(np.signbit(a) != np.signbit(b), -1, 1)
    same_bits(got, with_canonical_nan(np.copysign(size, sign), "f4"))
    got = compute("min.abs.f32 %d, %a, %b, %c;", a, b, c, out="f4", target="sm_100a")
    want = np.fmin(np.fmin(np.abs(a), np.abs(b)), np.abs(c))
    same_bits(got, with_canonical_nan(want, "f4"))


@pytest.mark.parametrize("name", FORMATS)
def test_sign_manipulation(rng, name):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    bits = np.dtype(f"u{dtype.itemsize}")
    top = bits.type(1 << (8 * dtype.itemsize - 1))
    nan = np.isnan(a)
    kept = a.view(bits) | bits.type(1 << 51) if name == "f64" else bits.type(int(top) - 1)
    for op, changed in (("neg", a.view(bits) ^ top), ("abs", a.view(bits) & ~top)):
        want = np.where(nan, kept, changed)
        same_bits(compute(f"{op}.{name} %d, %a;", a, out=dtype), want.view(dtype))
    if name in ("f32", "f64"):
        want = (a.view(bits) & top) | (b.view(bits) & ~top)
        same_bits(compute(f"copysign.{name} %d, %a, %b;", a, b, out=dtype), want.view(dtype))


NANS64 = np.array([0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000005], "u8")


@pytest.mark.parametrize(
    ("op", "first"),
    [("add.rn", 1), ("sub.rm", 1), ("mul.rz", 1), ("min", 1), ("div.rn", 0), ("div.rp", 0)],
)
def test_one_of_two_double_precision_nans_stays(op, first):
    """The second operand's, or a division's first, always as a quiet NaN."""
    a, b = (np.tile(v.ravel(), 60) for v in np.meshgrid(NANS64, NANS64))
    got = compute(f"{op}.f64 %d, %a, %b;", a.view("f8"), b.view("f8"), out="f8")
    same_bits(got, ((a, b)[first] | np.uint64(1 << 51)).view("f8"))


def test_fused_double_precision_keeps_the_addend_s_nan():
    a, b, c = np.zeros(512), np.full(512, np.inf), np.full(512, 0x7FF0000000000007, "u8").view("f8")
    for mode in ("rn", "rz"):
        got = compute(f"fma.{mode}.f64 %d, %a, %b, %c;", a, b, c, out="f8")
        assert {hex(v) for v in got.view("u8")} == {"0x7ff8000000000007"}
        got = compute(f"fma.{mode}.f64 %d, %a, %b, %c;", a, b, a, out="f8")
        assert {hex(v) for v in got.view("u8")} == {"0xfff8000000000000"}


def test_approximate_division_by_the_largest_numbers():
    """Their reciprocal is zero."""
    a = np.tile(np.array([1, -3, np.inf, 2.0**120], "f4"), 128)
    b = np.full(512, np.float32(2.0**126) * np.float32(1.5))
    got = compute("div.approx.f32 %d, %a, %b;", a, b, out="f4")
    same_bits(got, with_canonical_nan(np.tile([0.0, -0.0, np.nan, 0.0], 128), "f4"))
    got = compute("div.full.f32 %d, %a, %b;", a, b, out="f4")
    same_bits(got, a / b)


def test_division_flushes_what_was_subnormal_before_rounding():
    tiny, above = np.full(512, 2.0**-126, "f4"), np.full(512, np.nextafter(np.float32(1), 2), "f4")
    same_bits(compute("div.rp.ftz.f32 %d, %a, %b;", tiny, above, out="f4"), np.zeros(512, "f4"))
    same_bits(compute("div.rp.f32 %d, %a, %b;", tiny, above, out="f4"), tiny)


RELATIONS = {
    "eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a < b or a > b,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("relation", [*RELATIONS, *(f"{r}u" for r in RELATIONS), "num", "nan"])
def test_comparisons(rng, relation, name):
    dtype = FORMATS[name]
    a, b = floats(rng, dtype, N), floats(rng, dtype, N)
    b[::4] = a[::4]

    def holds(x, y):
        unordered = math.isnan(x) or math.isnan(y)
        if relation in ("num", "nan"):
            return unordered == (relation == "nan")
        plain = RELATIONS[relation.removesuffix("u") if relation not in RELATIONS else relation]
        return plain(x, y) or (unordered and relation not in RELATIONS)

    body = f"setp.{relation}.{name} %q1, %a, %b; selp.u32 %d, 1, 0, %q1;"
    want = [
        holds(x, y) for x, y in zip(a.astype("f8").tolist(), b.astype("f8").tolist(), strict=True)
    ]
    same_bits(compute(body, a, b), np.array(want))


def test_comparison_flushes():
    a = np.array([1e-40, -1e-40, 2e-38], "f4")
    b = np.zeros(3, "f4")
    body = "setp.eq.ftz.f32 %q1, %a, %b; selp.u32 %d, 1, 0, %q1;"
    assert compute(body, a, b).tolist() == [1, 1, 0]


def test_packed_comparisons(rng):
    a, b = floats(rng, "f2", 2 * N), floats(rng, "f2", 2 * N)
    body = "setp.lt.f16x2 %q1|%q2, %a, %b; selp.u32 %d, 1, 0, %q1; selp.u32 %e, 1, 0, %q2;"
    low, high = compute(body, a.view("u4"), b.view("u4"), outs=2)
    same_bits(low, (a < b)[::2])
    same_bits(high, (a < b)[1::2])
    got = compute("set.lt.f16x2.f16x2 %d, %a, %b;", a.view("u4"), b.view("u4"))
    same_bits(got.view("f2"), (a < b).astype("f2"))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_classification(rng, name):
    a = floats(rng, FORMATS[name], N)
    tiny = np.finfo(a.dtype).tiny
    subnormal = (a != 0) & (np.abs(a) < tiny)
    want = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a),
        "notanumber": np.isnan(a), "subnormal": subnormal,
        "normal": np.isfinite(a) & ~subnormal,  # hardware counts zeros
    }  # fmt: skip
    for test, holds in want.items():
        got = compute(f"testp.{test}.{name} %q1, %a; selp.u32 %d, 1, 0, %q1;", a)
        same_bits(got, holds)


APPROXIMATE = {
    "ex2.approx.f32": (np.exp2, 2.0**-22), "lg2.approx.f32": (np.log2, 2.0**-22),
    "sin.approx.f32": (np.sin, 2.0**-20), "cos.approx.f32": (np.cos, 2.0**-20),
    "tanh.approx.f32": (np.tanh, 2.0**-11), "rcp.approx.ftz.f32": (lambda x: 1 / x, 2.0**-23),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 2.0**-22.9),
    "sqrt.approx.f32": (np.sqrt, 2.0**-23),
}  # fmt: skip


@pytest.mark.parametrize("op", APPROXIMATE)
def test_approximations_stay_within_the_documented_error(rng, op):
    fn, bound = APPROXIMATE[op]
    a = rng.uniform(-3, 3, N).astype("f4")
    if fn is np.log2 or "sqrt" in op:
        a = np.abs(a)
    got = compute(f"{op} %d, %a;", a, out="f4").astype("f8")
    want = fn(a.astype("f8"))
    assert np.allclose(got, want, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        ("ex2.approx.f32", [-np.inf, -0.0, 0.0, np.inf, np.nan], [0.0, 1.0, 1.0, np.inf, np.nan]),
        ("lg2.approx.f32", [-np.inf, -0.0, 0.0, np.inf], [np.nan, -np.inf, -np.inf, np.inf]),
        ("rcp.approx.f32", [-np.inf, -0.0, 0.0, np.inf], [-0.0, -np.inf, np.inf, 0.0]),
        ("rsqrt.approx.f32", [-1.0, -0.0, 0.0, np.inf], [np.nan, -np.inf, np.inf, 0.0]),
        ("tanh.approx.f32", [-np.inf, -0.0, 0.0, np.inf], [-1.0, -0.0, 0.0, 1.0]),
        ("ex2.approx.ftz.f32", [-126.5, 1e-40], [0.0, 1.0]),
        ("rcp.approx.ftz.f32", [1e-40, -1e-40, 2e38], [np.inf, -np.inf, 0.0]),
    ],
)
def test_corner_cases_of_the_tables(op, inputs, outputs):
    got = compute(f"{op} %d, %a;", np.array(inputs, "f4"), out="f4")
    same_bits(got, with_canonical_nan(outputs, "f4"))


def test_gross_reciprocal_uses_upper_words(rng):
    a = rng.standard_normal(N)
    got = compute("rcp.approx.ftz.f64 %d, %a;", a, out="f8")
    assert np.allclose(got, 1 / a, rtol=2.0**-18)
    assert not (got.view("u8") & 0xFFFFFFFF).any()
    assert NAN  # canonical patterns are part of the helpers' contract


def test_half_precision_functions(rng):
    a = rng.uniform(-4, 4, 2 * N).astype("f2")
    got = compute("ex2.approx.f16x2 %d, %a;", a.view("u4")).view("f2").astype("f8")
    assert np.allclose(got, np.exp2(a.astype("f8")), rtol=2.0**-9.9)
    b = rng.uniform(-4, 4, 2 * N).astype(BF16)
    got = compute("tanh.approx.bf16x2 %d, %a;", b.view("u4")).view(BF16).astype("f8")
    assert np.allclose(got, np.tanh(b.astype("f8")), rtol=2.0**-8, atol=2.0**-8)
