"""What sm_100 adds to ordinary code: pairs of f32, 256-bit accesses, float reductions, .rs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import BF16, HEADER, compute, floats, same_bits

from gpukit import emulator
from gpukit.emulator.errors import MisalignedError, UnsupportedInstructionError

ARCH = "sm_100a"
N = 2000


# f32x2


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_pairs_of_floats_are_two_scalars(name, mode, ftz, rng):
    args = [floats(rng, "f4", 2 * N) for _ in range(3 if name == "fma" else 2)]
    names = "%a, %b, %c"[: 4 * len(args) - 2]
    pairs = [arg[: arg.size // 2 * 2].view("u8") for arg in args]
    pairs = [p[: min(q.size for q in pairs)] for p in pairs]
    got = compute(f"{name}.{mode}{ftz}.f32x2 %d, {names};", *pairs, out="u8", target=ARCH)
    scalars = [p.view("f4") for p in pairs]
    want = compute(f"{name}.{mode}{ftz}.f32 %d, {names};", *scalars, target=ARCH)
    same_bits(got.view("u4"), want)


# 256 bits at once

WIDE = (
    HEADER.replace("sm_90a", ARCH)
    + """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z)
{ .reg .b64 %a<8>; .reg .b32 %r<12>; .reg .b64 %d<4>;
  ld.param.u64 %a0, [x]; ld.param.u64 %a1, [y]; ld.param.u64 %a2, [z];
  mov.u32 %r8, %tid.x; mul.wide.u32 %a3, %r8, 32;
  add.u64 %a0, %a0, %a3; add.u64 %a1, %a1, %a3; add.u64 %a2, %a2, %a3;
  ld.global.L1::no_allocate.L2::evict_first.v8.f32 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%a0+OFF];
  st.global.v8.b32 [%a1], {%r7,%r6,%r5,%r4,%r3,%r2,%r1,%r0};
  ld.global.nc.L2::256B.v4.b64 {%d0,%d1,%d2,%d3}, [%a0];
  st.global.v4.u64 [%a2], {%d3,%d2,%d1,%d0};
  ret; }
"""
)


def test_accesses_of_32_bytes(rng):
    x = rng.standard_normal((64, 8), "f4")
    y, z = np.zeros_like(x), np.zeros((64, 4), "u8")
    counters = emulator.run(WIDE.replace("OFF", "0"), 1, 64, [x, y, z]).counters
    assert (y == x[:, ::-1]).all()
    assert (z == x.view("u8")[:, ::-1]).all()
    assert counters.global_loads.requests == 4
    assert counters.global_loads.sectors_per_request == 32
    with pytest.raises(MisalignedError):
        emulator.run(WIDE.replace("OFF", "16"), 1, 32, [x, y, z])


# redux.sync of floats

REDUX = (
    HEADER.replace("sm_90a", ARCH)
    + """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 mask)
{ .reg .b64 %a<4>; .reg .b32 %r<8>; .reg .pred %p;
  ld.param.u64 %a0, [x]; ld.param.u64 %a1, [y]; ld.param.u32 %r0, [mask];
  mov.u32 %r1, %tid.x; mul.wide.u32 %a2, %r1, 4;
  and.b32 %r4, %r1, 31; shr.u32 %r5, %r0, %r4; and.b32 %r5, %r5, 1; setp.eq.u32 %p, %r5, 0;
  @%p ret;
  add.u64 %a0, %a0, %a2; add.u64 %a1, %a1, %a2; ld.global.u32 %r2, [%a0];
  redux.sync.FORM.f32 %r3, %r2, %r0;
  st.global.u32 [%a1], %r3; ret; }
"""
)


def reduced(form, x, mask):
    y = np.zeros_like(x)
    emulator.run(REDUX.replace("FORM", form), 1, x.size, [x, y, np.uint32(mask)])
    return y.reshape(-1, 32)


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00F0F00F, 1 << 31])
@pytest.mark.parametrize("form", ["min", "max", "min.abs", "max.abs"])
def test_float_reductions(form, mask, rng):
    x = rng.standard_normal(128, "f4")
    x[::7] = np.nan
    x[64:96] = np.where(np.arange(32) % 2, 0.0, -0.0)
    x[96:] = np.nan
    lanes = mask >> np.arange(32) & 1 == 1
    pick, skip = (np.fmin, np.fmax)[form.startswith("max")], np.abs if "abs" in form else np.array
    want = pick.reduce(skip(x).reshape(-1, 32)[:, lanes], axis=1)
    got = reduced(form, x, mask)
    assert not got[:, ~lanes].any()
    assert (got[:, lanes].view("u4") == got[:, lanes].view("u4")[:, :1]).all()
    numbers = ~np.isnan(want)
    assert (got[:, lanes][numbers, 0] == want[numbers]).all()
    assert (got[:, lanes][~numbers].view("u4") == 0x7FFFFFFF).all()
    zeros = got[2, lanes][0]
    there = x[64:96][lanes]
    negative = (
        np.signbit(there).all() if form == "max" else np.signbit(there).any() & (form == "min")
    )
    assert np.signbit(zeros) == negative


def test_float_reductions_that_keep_nan(rng):
    x = rng.standard_normal(64, "f4")
    x[40] = -np.nan
    for form, pick in (("min.NaN", np.min), ("max.NaN", np.max)):
        got = reduced(form, x, 0xFFFFFFFF)
        assert (got[0] == pick(x[:32])).all()
        assert (got[1].view("u4") == 0x7FFFFFFF).all()
    with pytest.raises(UnsupportedInstructionError, match="no float form"):
        reduced("add", x, 0xFFFFFFFF)


# Stochastic rounding


def rounded(name, a, b, random, flags=""):
    got = compute(f"cvt.rs{flags}.{name}x2.f32 %d, %a, %b, %c;", a, b, random, target=ARCH)
    return got.view("u2").reshape(-1, 2)[:, ::-1]


@pytest.mark.parametrize(("name", "bits"), [("f16", 13), ("bf16", 16)])
def test_random_bits_carry_into_what_stays(name, bits, rng):
    """Added to the low bits of the pattern, a carry runs on into mantissa and exponent."""
    a, b = (np.ldexp(rng.uniform(0.5, 1, N), rng.integers(-12, 15, N)).astype("f4") for _ in "ab")
    a, b = a * rng.choice([-1, 1], N).astype("f4"), b * rng.choice([-1, 1], N).astype("f4")
    random = rng.integers(0, 1 << 32, N, dtype="u4")
    got = rounded(name, a, b, random)
    dtype = np.dtype("f2") if name == "f16" else BF16
    for column, (x, r) in enumerate(((a, random >> 16), (b, random))):
        pattern = x.view("u4") + (r & (1 << bits) - 1)
        want = (pattern >> bits << bits).view("f4")
        assert (got[:, column].copy().view(dtype).astype("f4") == want).all()


def test_stochastic_rounding_is_right_on_average():
    x = np.full(1 << 13, 1 + 2.0**-12, "f4")  # a quarter of the way between two f16
    random = np.arange(x.size, dtype="u4")
    got = rounded("f16", x, x, random << 16 | random).view("f2").astype("f8")
    assert (got.mean(axis=0) == 1 + 2.0**-12).all()
    exact = np.arange(1, 1 + x.size, dtype="f4").clip(0, 2048)
    got = rounded("f16", exact, -exact, np.full(x.size, 0xFFFFFFFF, "u4")).view("f2")
    assert (got[:, 0] == exact).all()
    assert (got[:, 1] == -exact).all()


def test_ends_of_the_range_and_flags():
    x = np.array([70000, 65519, np.inf, np.nan, -3, -70000, 2.0**-25], "f4")
    none, all_ = np.zeros(x.size, "u4"), np.full(x.size, 0xFFFFFFFF, "u4")
    down = [0x7C00, 0x7BFF, 0x7C00, 0x7FFF, 0xC200, 0xFC00, 0]
    up = [0x7C00, 0x7C00, 0x7C00, 0x7FFF, 0xC200, 0xFC00, 1]
    assert rounded("f16", x, x, none)[:, 0].tolist() == down
    assert rounded("f16", x, x, all_)[:, 1].tolist() == up
    finite = [0x7BFF, 0x7BFF, 0x7BFF, 0x7FFF, 0xC200, 0xFBFF, 0]
    assert rounded("f16", x, x, none, ".satfinite")[:, 0].tolist() == finite
    clamped = [0x7C00, 0x7BFF, 0x7C00, 0x7FFF, 0, 0, 0]
    assert rounded("f16", x, x, none, ".relu")[:, 1].tolist() == clamped


def test_stochastic_rounding_to_small_formats_is_refused():
    body = ".reg .b32 y; cvt.rs.satfinite.e4m3x4.f32 y, {%a, %a, %a, %a}, %b;"
    with pytest.raises(UnsupportedInstructionError, match="stochastic rounding to"):
        compute(body, np.ones(4, "f4"), np.ones(4, "u4"), target=ARCH)


# Scale factors


@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_scale_factors_of_pairs(mode):
    values = np.arange(0x8000, dtype="u2").view(BF16)  # all that are not negative
    values = values[np.isfinite(values.astype("f4"))]
    got = compute(f"cvt.{mode}.satfinite.ue8m0x2.bf16x2 %d, %a;",
                  values[: values.size // 2 * 2].view("u4"), out="u2", target=ARCH)  # fmt: skip
    with np.errstate(divide="ignore"):
        exponents = np.log2(values.astype("f8"))
    exponents = np.floor(exponents) if mode == "rz" else np.ceil(exponents)
    want = np.clip(exponents + 127, 0, 254).astype("u1")
    assert (got.view("u1") == want).all()
    back = compute("cvt.rn.bf16x2.ue8m0x2 %d, %a;", got, target=ARCH).view(BF16)
    assert (back == want.view(ml_dtypes.float8_e8m0fnu).astype("f4")).all()
