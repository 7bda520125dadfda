"""cvt against exact arithmetic and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import BF16, compute, floats, integers, rounded, same_bits, with_canonical_nan

INTS = {"u16": "u2", "s16": "i2", "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8"}
FLOATS = {"f16": np.dtype("f2"), "bf16": BF16, "f32": np.dtype("f4"), "f64": np.dtype("f8")}
N = 500


@pytest.mark.parametrize("to", ["u8", "s8", *INTS])
@pytest.mark.parametrize("from_", INTS)
def test_between_integers(rng, from_, to):
    a = integers(rng, INTS[from_], N)
    bits = int(to[1:])
    out = np.dtype(f"{'i' if to[0] == 's' else 'u'}{max(bits, 16) // 8}")
    got = compute(f"cvt.{to}.{from_} %d, %a;", a, out=out)
    same_bits(got, a.astype(f"{'i' if to[0] == 's' else 'u'}{bits // 8}").astype(out))
    got = compute(f"cvt.sat.{to}.{from_} %d, %a;", a, out=out)
    info = np.iinfo(f"{'i' if to[0] == 's' else 'u'}{bits // 8}")
    want = [min(max(x, info.min), info.max) for x in a.tolist()]
    same_bits(got, np.array(want, out))


def test_narrow_sources_are_extended_into_wide_registers(rng):
    a = integers(rng, np.uint32, N)
    same_bits(compute("cvt.s32.s8 %d, %a;", a, out="i4"), a.view(np.int8)[::4])
    same_bits(compute("cvt.s8.s32 %d, %a;", a, out="i4"), a.view(np.int8)[::4])
    same_bits(compute("cvt.u64.u8 %d, %a;", a, out="u8"), a & 0xFF)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("from_", INTS)
def test_integer_to_float(rng, from_, to, mode):
    a = integers(rng, INTS[from_], N)
    got = compute(f"cvt.{mode}.{to}.{from_} %d, %a;", a, out=FLOATS[to])
    want = [rounded(Fraction(x), FLOATS[to], mode) for x in a.tolist()]
    same_bits(got, np.array(want).astype(FLOATS[to]))


ROUND = {
    "rni": lambda x: round(x), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
}  # fmt: skip


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("from_", FLOATS)
@pytest.mark.parametrize("to", INTS)
def test_float_to_integer(rng, to, from_, mode):
    dtype, info = np.dtype(INTS[to]), np.iinfo(INTS[to])
    a = floats(rng, FLOATS[from_], N)
    a[:60] = (rng.integers(-40, 40, 60) / 4).astype(a.dtype)
    odd = from_ == "f64" or info.bits == 64
    nan = (1 << (info.bits - 1) if to[0] == "u" else info.min) if odd else 0

    def convert(x):
        if math.isnan(x):
            return nan
        if math.isinf(x):
            return info.max if x > 0 else info.min
        return min(max(ROUND[mode](Fraction(x)), info.min), info.max)

    got = compute(f"cvt.{mode}.{to}.{from_} %d, %a;", a, out=dtype)
    same_bits(got, np.array([convert(x) for x in a.astype("f8").tolist()], dtype))


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("to", "from_"),
    [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64"),
     ("bf16", "f16")],
)  # fmt: skip
def test_narrowing(rng, to, from_, mode):
    a = floats(rng, FLOATS[from_], 2 * N)
    around = floats(rng, FLOATS[to], N).astype("f8")
    half = around + np.nextafter(FLOATS[to].type(0), FLOATS[to].type(1)).astype("f8") / 2
    a = np.concatenate([a, around.astype(a.dtype), half.astype(a.dtype)])
    got = compute(f"cvt.{mode}.{to}.{from_} %d, %a;", a, out=FLOATS[to])

    def convert(x):
        if not math.isfinite(x) or x == 0:
            return x
        return rounded(Fraction(x), FLOATS[to], mode) or math.copysign(0.0, x)

    want = with_canonical_nan([convert(x) for x in a.astype("f8").tolist()], FLOATS[to])
    same_bits(got, with_narrowed_nan(want, a) if from_ == "f64" else want)


def with_narrowed_nan(values, a):
    """Where binary64 ``a`` is NaN: its sign and upper payload bits, and quiet."""
    bits, mantissa = 8 * values.itemsize, ml_dtypes.finfo(values.dtype).nmant
    result = values.copy()
    for i in np.flatnonzero(np.isnan(a)):
        raw = int(a.view("u8")[i])
        code = (raw >> 63 << (bits - 1)) | ((1 << (bits - 1)) - (1 << (mantissa - 1)))
        code |= (raw & ((1 << 52) - 1)) >> (52 - mantissa)
        result.view(f"u{values.itemsize}")[i] = code
    return result


def test_nan_payloads_move_to_wider_formats():
    half, brain = np.array([0x7C01, 0xFC03], "u2"), np.array([0x7F81, 0xFFC5], "u2")
    got = compute("cvt.f64.f16 %d, %a;", np.tile(half, 256).view("f2"), out="f8")
    assert [hex(v) for v in got.view("u8")[:2]] == ["0x7ff8040000000000", "0xfff80c0000000000"]
    got = compute("cvt.f32.bf16 %d, %a;", np.tile(brain, 256).view(FLOATS["bf16"]), out="f4")
    assert [hex(v) for v in got.view("u4")[:2]] == ["0x7f810000", "0xffc50000"]
    single = np.tile(np.array([0x7F800001, 0xFFC00005], "u4"), 256).view("f4")
    got = compute("cvt.ftz.f64.f32 %d, %a;", single, out="f8")
    assert {hex(v) for v in got.view("u8")} == {"0x7fffffffe0000000"}


@pytest.mark.parametrize(
    ("to", "from_"),
    [("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "f32"), ("f64", "bf16")],
)
def test_widening_is_exact(rng, to, from_):
    a = floats(rng, FLOATS[from_], N)
    got = compute(f"cvt.{to}.{from_} %d, %a;", a, out=FLOATS[to])
    want = a.astype(FLOATS[to])
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all()
    same_bits(np.where(nan, 0, got), np.where(nan, 0, want))


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("name", ["f32", "f64", "f16"])
def test_rounding_to_integral_values(rng, name, mode):
    a = floats(rng, FLOATS[name], N)
    a[:60] = rng.integers(-40, 40, 60) / 4

    def convert(x):
        if not math.isfinite(x):
            return x
        return math.copysign(float(ROUND[mode](Fraction(x))), x)

    got = compute(f"cvt.{mode}.{name}.{name} %d, %a;", a, out=a.dtype)
    want = np.array([convert(x) for x in a.astype("f8").tolist()])
    if name == "f64":
        assert (np.isnan(got) == np.isnan(want)).all()
        got, want = np.where(np.isnan(got), 0, got), np.where(np.isnan(want), 0, want)
        same_bits(got, want)
    else:
        same_bits(got, with_canonical_nan(want, a.dtype))


def test_flush_and_saturate(rng):
    a = floats(rng, "f8", N)
    a[:50] = rng.standard_normal(50) * 1e-39
    got = compute("cvt.rn.ftz.f32.f64 %d, %a;", a, out="f4")
    want = with_narrowed_nan(a.astype("f4"), a)
    want = np.where(np.abs(want) < 2.0**-126, np.copysign(np.float32(0), want), want)
    same_bits(got, want)
    got = compute("cvt.rn.sat.f32.f64 %d, %a;", a, out="f4")
    same_bits(got, np.where(a > 0, np.minimum(a, 1), 0.0).astype("f4"))


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_relu_and_satfinite(rng, to):
    a = floats(rng, "f4", N)
    dtype = FLOATS[to]
    plain = a.astype(dtype)
    got = compute(f"cvt.rn.relu.{to}.f32 %d, %a;", a, out=dtype)
    same_bits(got, with_canonical_nan(np.where(a <= 0, 0.0, plain.astype("f8")), dtype))
    got = compute(f"cvt.rn.satfinite.{to}.f32 %d, %a;", a, out=dtype)
    most = float(ml_dtypes.finfo(dtype).max)
    want = np.where(np.isnan(a), np.nan, np.clip(plain.astype("f8"), -most, most))
    same_bits(got, with_canonical_nan(want, dtype))


def test_tf32_keeps_ten_bits(rng):
    a = floats(rng, "f4", N)
    got = compute("cvt.rna.tf32.f32 %d, %a;", a, out="f4")
    finite, kept = np.isfinite(a), np.uint32(0xFFFFE000)
    bits = np.where(finite, a.view("u4") + np.uint32(0x1000), a.view("u4")) & kept
    same_bits(got, bits.view("f4"))  # half away, then cut; infinities and NaN are only cut
    got = compute("cvt.rna.satfinite.tf32.f32 %d, %a;", a, out="f4")
    over = bits & np.uint32(0x7F800000) == 0x7F800000
    same_bits(got, np.where(over, bits - np.uint32(0x2000), bits).view("f4"))
    got = compute("cvt.rz.tf32.f32 %d, %a;", a, out="f4")
    cut = (a.view("u4") & np.uint32(0xFFFFE000)).view("f4")
    nan = np.uint32(0x7FFFE000).view("f4")
    same_bits(got, np.where(np.isnan(a), nan, cut))


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_pairs_put_the_first_source_on_top(rng, to):
    a, b = floats(rng, "f4", N), floats(rng, "f4", N)
    got = compute(f"cvt.rn.{to}x2.f32 %d, %a, %b;", a, b).view(FLOATS[to])
    same_bits(got[1::2], with_canonical_nan(a.astype(FLOATS[to]), FLOATS[to]))
    same_bits(got[::2], with_canonical_nan(b.astype(FLOATS[to]), FLOATS[to]))
    got = compute(f"cvt.rz.relu.{to}x2.f32 %d, %a, %b;", a, b).view(FLOATS[to])
    values = [rounded(Fraction(x), FLOATS[to], "rz") if math.isfinite(x) else x for x in a.tolist()]
    values = np.array(values)
    same_bits(got[1::2], with_canonical_nan(np.where(values <= 0, 0.0, values), FLOATS[to]))


SMALL = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 448), "e5m2": (ml_dtypes.float8_e5m2, 57344),
    "e2m3": (ml_dtypes.float6_e2m3fn, 7.5), "e3m2": (ml_dtypes.float6_e3m2fn, 28),
}  # fmt: skip


def encoded(a, name):
    """Codes by ml_dtypes, which rounds from binary32 to nearest even; saturated beforehand."""
    dtype, most = SMALL[name]
    codes = np.clip(a.astype("f4"), -most, most).astype(dtype).view("u1")
    return np.where(np.isnan(a), 0x7F if name in ("e4m3", "e5m2") else codes_of_max(name), codes)


def codes_of_max(name):
    dtype, most = SMALL[name]
    return np.array([most], "f4").astype(dtype).view("u1")[0]


def narrow_inputs(rng, most):
    a = floats(rng, "f4", N)
    a[::2] = (rng.standard_normal(a[::2].size) * most / 3).astype("f4")
    a[1::5] = (rng.integers(-64, 64, a[1::5].size) / 32).astype("f4")
    return a


@pytest.mark.parametrize("name", SMALL)
def test_eight_and_six_bits(rng, name):
    a, b = narrow_inputs(rng, SMALL[name][1]), narrow_inputs(rng, SMALL[name][1])
    got = compute(f"cvt.rn.satfinite.{name}x2.f32 %d, %a, %b;", a, b, out="u2")
    same_bits(got, encoded(a, name).astype("u2") << 8 | encoded(b, name))
    halves = a.astype("f2")
    got = compute(f"cvt.rn.satfinite.{name}x2.f16x2 %d, %a;", halves.view("u4"), out="u2")
    same_bits(got.view("u1"), encoded(halves.astype("f4"), name))


@pytest.mark.parametrize("name", SMALL)
def test_decoding_small_formats(name):
    codes = np.arange(256 if name.startswith(("e4", "e5")) else 64, dtype=np.uint8)
    words = codes.astype("u2") << 8 | codes[::-1]
    got = compute(f"cvt.rn.f16x2.{name}x2 %d, %a;", words).view("f2")
    want = codes.view(SMALL[name][0]).astype("f2")
    same_bits(got[1::2], with_canonical_nan(want, "f2"))
    same_bits(got[::2], with_canonical_nan(want[::-1], "f2"))


def test_four_bits(rng):
    a, b = narrow_inputs(rng, 6), narrow_inputs(rng, 6)
    body = ".reg .b8 y; cvt.rn.satfinite.e2m1x2.f32 y, %a, %b; cvt.u32.u8 %d, y;"
    body += "cvt.rn.f16x2.e2m1x2 %e, y;"
    codes, back = compute(body, a, b, outs=2, target="sm_100a")
    most = np.float32(6)
    nearest = [np.clip(x, -most, most).astype(ml_dtypes.float4_e2m1fn) for x in (a, b)]
    values = [
        np.where(np.isnan(x), 6, n.astype("f4")) for x, n in zip((a, b), nearest, strict=True)
    ]
    same_bits(back.view("f2")[1::2], values[0].astype("f2"))
    same_bits(back.view("f2")[::2], values[1].astype("f2"))
    signs = np.signbit(values[0]).astype("u4") << 7 | np.signbit(values[1]).astype("u4") << 3
    assert (codes & 0x88 == signs).all()
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    assert (grid[codes >> 4 & 7] == np.abs(values[0])).all()


def test_scale_exponents(rng):
    a = np.abs(floats(rng, "f4", N))
    a = a[np.isfinite(a) & (a > 0)]
    got = compute("cvt.rp.satfinite.ue8m0x2.f32 %d, %a, %a;", a, out="u2", target="sm_100a")
    want = np.clip(np.ceil(np.log2(a.astype("f8"))) + 127, 0, 254)
    same_bits(got, want.astype("u2") * 257)
    got = compute("cvt.rn.bf16x2.ue8m0x2 %d, %a;", got, target="sm_100a").view(BF16)
    assert (got[::2].astype("f8") == 2.0 ** (want - 127)).all()


def test_pack_clamps(rng):
    a, b, c = (integers(rng, np.int32, N) for _ in range(3))
    a[::2] %= 300
    got = compute("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", a, b, c)
    clamped = [np.clip(x, 0, 255).astype("u4") for x in (a, b)]
    same_bits(got, clamped[0] << 8 | clamped[1] | c.view("u4") << 16)
    got = compute("cvt.pack.sat.s16.s32 %d, %a, %b;", a, b)
    clamped = [np.clip(x, -32768, 32767).astype("i2").view("u2").astype("u4") for x in (a, b)]
    same_bits(got, clamped[0] << 16 | clamped[1])
