"""Helpers: wrap one PTX instruction in a kernel and run it on arrays; edge-case inputs."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

from gpukit import emulator

BF16 = np.dtype(ml_dtypes.bfloat16)
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
_LOADS = {1: ("b8", "b16"), 2: ("b16", "b16"), 4: ("b32", "b32"), 8: ("b64", "b64")}


def compute(body, *sources, out="u4", target="sm_90a", outs=1, **options):
    """Run ``body`` (registers %a, %b, ... in, %d, %e out) for each element of ``sources``."""
    n = sources[0].size
    out = np.dtype(out)
    names = "abcfghijk"
    text = [HEADER.replace("sm_90a", target)]
    params = ", ".join(f".param .u64 p{i}" for i in range(len(sources) + outs))
    text.append(
        f".visible .entry k({params})\n{{\n.reg .b64 %p<40>;\n.reg .b32 %t<8>;\n.reg .pred %q<8>;"
    )
    text.append("mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t0, %t1, 256, %t0;")
    text.append(f"setp.ge.u32 %q0, %t0, {n}; @%q0 exit;")
    for i, source in enumerate(sources):
        load, reg = _LOADS[source.dtype.itemsize]
        text.append(f".reg .{reg} %{names[i]}; ld.param.u64 %p{i}, [p{i}];")
        text.append(f"mad.wide.u32 %p{i}, %t0, {source.dtype.itemsize}, %p{i};")
        text.append(f"ld.global.{load} %{names[i]}, [%p{i}];")
    load, reg = _LOADS[out.itemsize]
    for d in "de"[:outs]:
        text.append(f".reg .{reg} %{d}; mov.{reg} %{d}, 0;")
    text.append(body)
    for k, d in enumerate("de"[:outs]):
        i = len(sources) + k
        text.append(f"ld.param.u64 %p{i}, [p{i}]; mad.wide.u32 %p{i}, %t0, {out.itemsize}, %p{i};")
        text.append(f"st.global.{load} [%p{i}], %{d};")
    text.append("ret;\n}")
    results = [np.zeros(n, out) for _ in range(outs)]
    emulator.run("\n".join(text), -(-n // 256), 256, [*sources, *results], **options)
    return results[0] if outs == 1 else results


def ptx_kernel(body, params="", declarations=""):
    """A module with one kernel ``k``."""
    return f"{HEADER}{declarations}\n.visible .entry k({params})\n{{\n{body}\n}}\n"


def integers(rng, dtype, n=1000):
    """Random bit patterns and the corners of the range."""
    info = np.iinfo(dtype)
    corners = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, info.max // 2]
    corners += [1 << k for k in range(info.bits - 1)]
    corners = np.array([c for c in corners if info.min <= c <= info.max], dtype)
    values = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    shifts = rng.integers(0, info.bits, n).astype(f"u{values.dtype.itemsize}")
    small = (values.view(shifts.dtype) >> shifts).view(dtype)
    every = np.concatenate([np.repeat(corners, 3), values[: n // 2], small])
    return rng.permutation(every)[:n]


def floats(rng, dtype, n=1000):
    """Random bit patterns, moderate numbers, and zeros, subnormals, infinities and NaN."""
    dtype = np.dtype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    raw = rng.integers(0, np.iinfo(bits).max, n, bits, endpoint=True).view(dtype)
    moderate = rng.standard_normal(n).astype(dtype)
    finfo = ml_dtypes.finfo(dtype)
    one = np.array(1, dtype).view(bits)
    special = np.array(
        [0.0, 1.0, -1.0, 0.5, 1.5, 2.5, np.inf, np.nan, float(finfo.max), float(finfo.tiny),
         float(finfo.smallest_subnormal), 3.0 * float(finfo.smallest_subnormal),
         float(finfo.tiny) - float(finfo.smallest_subnormal), 1 + float(finfo.eps)]
    ).astype(dtype)  # fmt: skip
    special = np.concatenate([special, -special, (one + np.arange(-3, 4)).astype(bits).view(dtype)])
    every = np.concatenate([np.tile(special, -(-n // (4 * special.size))), raw, moderate])
    return rng.permutation(every)[:n]


def pairs(rng, make, dtype, n=1000, count=2):
    """``count`` columns; the first rows are all combinations of a few values."""
    return [make(rng, dtype, n) for _ in range(count)]


def same_bits(got, want):
    """Assert bit equality; the message shows the first differences."""
    want = np.asarray(want, got.dtype)
    bits = f"u{got.dtype.itemsize}"
    wrong = np.flatnonzero(got.view(bits) != want.view(bits))
    assert wrong.size == 0, [
        (int(i), got[i], want[i], hex(got.view(bits)[i]), hex(want.view(bits)[i]))
        for i in wrong[:5]
    ] + [wrong.size]


_SHAPES = {
    np.dtype(np.float16): (10, -14, 15),
    BF16: (7, -126, 127),
    np.dtype(np.float32): (23, -126, 127),
    np.dtype(np.float64): (52, -1022, 1023),
}


def rounded(exact, dtype, mode="rn"):
    """A Fraction rounded to a float format by integer arithmetic, as a Python float."""
    mantissa, least, most = _SHAPES[np.dtype(dtype)]
    if exact == 0:
        return 0.0
    sign, size = (-1 if exact < 0 else 1), abs(exact)
    exponent = least
    while size >= Fraction(2) ** (exponent + 1):
        exponent += max(
            1, (size.numerator.bit_length() - size.denominator.bit_length() - exponent) // 2
        )
    while exponent > least and size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - mantissa)
    whole, rest = divmod(size, unit)
    rest /= unit
    if mode == "rn":
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    elif (mode == "rp" and sign > 0) or (mode == "rm" and sign < 0):
        whole += rest > 0
    value = whole * unit
    largest = (2 - Fraction(1, 2**mantissa)) * Fraction(2) ** most
    if value > largest:
        inward = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return sign * (float(largest) if inward else np.inf)
    return sign * float(value)


NAN = {np.dtype(np.float16): 0x7FFF, BF16: 0x7FFF, np.dtype(np.float32): 0x7FFFFFFF}


def with_canonical_nan(values, dtype):
    """An array of ``dtype`` whose NaNs have the hardware's bits."""
    dtype = np.dtype(dtype)
    result = np.array(values, np.float64).astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    result.view(bits)[np.isnan(result.astype(np.float64))] = NAN[dtype]
    return result
