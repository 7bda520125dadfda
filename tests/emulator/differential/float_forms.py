"""Floating-point instructions in all their forms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .alu import Form
from .model import Comparison, Ulps

ROUNDINGS = (".rn", ".rz", ".rm", ".rp")
HALVES = ("f16", "f16x2", "bf16", "bf16x2")


def _choices(*parts: str) -> list[str]:
    """All ways to have or leave out each modifier."""
    return ["".join(p) for p in product(*[("", part) for part in parts])]


def arithmetic() -> Iterator[Form]:
    """add, sub, mul, fma in every rounding."""
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        lanes = 768 if count == 3 else 512
        for rounding in ROUNDINGS:
            for tail in _choices(".ftz", ".sat"):
                yield Form(f"{op}{rounding}{tail}.f32", ("f32",) * count, ("f32",), lanes=lanes)
            yield Form(f"{op}{rounding}.f64", ("f64",) * count, ("f64",), lanes=lanes)
        for t in ("f16", "f16x2"):
            for tail in _choices(".ftz", ".sat"):
                yield Form(f"{op}.rn{tail}.{t}", (t,) * count, (t,), lanes=lanes)
        for t in ("bf16", "bf16x2"):
            yield Form(f"{op}.rn.{t}", (t,) * count, (t,), lanes=lanes)
    for t in ("f16", "f16x2"):
        for ftz in ("", ".ftz"):
            yield Form(f"fma.rn{ftz}.relu.{t}", (t,) * 3, (t,), lanes=768)
    for t in ("bf16", "bf16x2"):
        yield Form(f"fma.rn.relu.{t}", (t,) * 3, (t,), lanes=768)


def extremes() -> Iterator[Form]:
    """min, max, abs, neg, copysign, testp."""
    for op in ("min", "max"):
        for tail in (".NaN", "", ".NaN.xorsign.abs", ".xorsign.abs"):
            yield Form(f"{op}{tail}.f32", ("f32",) * 2, ("f32",))
            yield Form(f"{op}.ftz{tail}.f32", ("f32",) * 2, ("f32",))
            for t in HALVES:
                yield Form(f"{op}{tail}.{t}", (t, t), (t,))
            for t in ("f16", "f16x2"):
                yield Form(f"{op}.ftz{tail}.{t}", (t, t), (t,))
        yield Form(f"{op}.f64", ("f64",) * 2, ("f64",))
    for op in ("abs", "neg"):
        for t in ("f32", "f64", *HALVES):
            yield Form(f"{op}.{t}", (t,), (t,))
        for t in ("f32", "f16", "f16x2"):
            yield Form(f"{op}.ftz.{t}", (t,), (t,))
    for t in ("f32", "f64"):
        yield Form(f"copysign.{t}", (t, t), (t,))
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Form(f"testp.{test}.{t}", (t,), ("pred",))


def divisions() -> Iterator[Form]:
    """div, rcp, sqrt with IEEE rounding."""
    for rounding in ROUNDINGS:
        for tail in ("f32", "ftz.f32", "f64"):
            t = tail[-3:]
            yield Form(f"div{rounding}.{tail}", (t, t), (t,))
            yield Form(f"rcp{rounding}.{tail}", (t,), (t,))
            yield Form(f"sqrt{rounding}.{tail}", (t,), (t,))


# Errors that the PTX documentation states; where it gives none for the corner, absolute covers it.
# For cosines it states 2^-20.5, but an H200 was seen off by 2^-20.47 from the true value.
APPROXIMATE: dict[str, tuple[str, Comparison]] = {
    "rcp.approx": ("f32", Ulps("f4", 1)),
    "sqrt.approx": ("f32", Ulps("f4", 1)),
    "rsqrt.approx": ("f32", Ulps("f4", 2)),
    "ex2.approx": ("f32", Ulps("f4", 2)),
    "lg2.approx": ("f32", Ulps("f4", 2, 2.0**-22)),
    "sin.approx": ("trig", Ulps("f4", 0, 2.0**-20.5)),
    "cos.approx": ("trig", Ulps("f4", 0, 2.0**-20.4)),
}


def approximations() -> Iterator[Form]:
    """What the special-function unit computes."""
    for op, (source, bound) in APPROXIMATE.items():
        for ftz in ("", ".ftz"):
            yield Form(f"{op}{ftz}.f32", (source,), ("f32",), comparison=bound, lanes=768)
    yield Form("tanh.approx.f32", ("f32",), ("f32",), comparison=Ulps("f4", 4096), lanes=768)
    for op, ftz in product(("div.approx", "div.full"), ("", ".ftz")):
        yield Form(f"{op}{ftz}.f32", ("f32", "f32"), ("f32",), comparison=Ulps("f4", 2))
    yield Form("rcp.approx.ftz.f64", ("f64",), ("f64",), comparison=Ulps("f8", 2.0**33))
    for ftz in ("", ".ftz"):
        yield Form(f"rsqrt.approx{ftz}.f64", ("f64",), ("f64",), comparison=Ulps("f8", 2.0**33))
    for t in ("f16", "f16x2"):
        yield Form(f"ex2.approx.{t}", (t,), (t,), comparison=Ulps("f2", 2, 2.0**-15))
        yield Form(f"tanh.approx.{t}", (t,), (t,), comparison=Ulps("f2", 2, 2.0**-10.9))
    for t in ("bf16", "bf16x2"):
        yield Form(f"ex2.approx.ftz.{t}", (t,), (t,), comparison=Ulps("bf16", 2))
        yield Form(f"tanh.approx.{t}", (t,), (t,), comparison=Ulps("bf16", 2))
    yield from _special_points()


def _special_points() -> Iterator[Form]:
    """Zeros, infinities and NaN of the approximate functions, which are exact."""
    for op in ("sin.approx", "cos.approx"):
        for ftz in ("", ".ftz"):
            code = f"and.b32 %a, %a, 0xff800000; {op}{ftz}.f32 %d, %a;"
            keep = "and.b32 %e, %a, 0x7f800000; setp.eq.u32 %g, %e, 0x7f800000; "
            yield Form(
                f"{op}{ftz}.f32 infinities", ("f32",), ("f32",), lanes=256,
                code=f".reg .b32 %e; .reg .pred %g; {code} {keep} selp.b32 %d, %d, 0, %g;",
            )  # fmt: skip


FLOAT_TESTS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num",
               "nan")  # fmt: skip


def comparisons() -> Iterator[Form]:
    """setp and set on floats."""
    for test in FLOAT_TESTS:
        for t in ("f32", "ftz.f32", "f64", "f16", "ftz.f16", "bf16"):
            kind = t.removeprefix("ftz.")
            yield Form(f"setp.{test}.{t}", (kind, kind), ("pred",), lanes=512)
        for t in ("f16x2", "bf16x2"):
            yield Form(f"setp.{test}.{t}", (t, t), ("pred", "pred"), lanes=512)
        yield Form(f"set.{test}.u32.f32", ("f32", "f32"), ("u32",), lanes=512)
    for join in ("and", "or", "xor"):
        yield Form(f"setp.lt.{join}.f32", ("f32", "f32", "pred"), ("pred", "pred"))
        yield Form(f"setp.geu.{join}.f16x2", ("f16x2", "f16x2", "pred"), ("pred", "pred"))
    yield from _set()


def _set() -> Iterator[Form]:
    for d, t in product(("u32", "s32", "f32"), ("f32", "f64", "ftz.f32")):
        if (d, t) == ("u32", "f32"):
            continue
        kind = t.removeprefix("ftz.")
        ftz = ".ftz" if t != kind else ""
        yield Form(f"set.ltu{ftz}.{d}.{kind}", (kind, kind), (d,), lanes=512)
    for d, t in (("f16", "f16"), ("u16", "f16"), ("s16", "f16"), ("u32", "f16"), ("s32", "f16"),
                 ("f16", "f32"), ("bf16", "bf16"), ("u32", "bf16"), ("u16", "bf16"),
                 ("f16x2", "f16x2"), ("bf16x2", "bf16x2"), ("u32", "f16x2"),
                 ("s32", "f16x2")):  # fmt: skip
        yield Form(f"set.leu.{d}.{t}", (t, t), (d,), lanes=512)
