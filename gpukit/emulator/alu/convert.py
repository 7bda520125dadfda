"""cvt between integers and floats of 16, 32 and 64 bits, and cvt.pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.alu.formats import (
    BF16,
    F16,
    F32,
    F64,
    canonical,
    converted_nan,
    finfo,
    flush,
    quantize,
    relu,
    round_to,
    saturate,
    to_integral,
    to_odd,
    two_sum,
)
from gpukit.emulator.alu.narrow import packed_conversion
from gpukit.emulator.alu.stochastic import stochastic_conversion
from gpukit.emulator.instructions import Expr, Modifiers, Op, op
from gpukit.emulator.ptx.ir import Instr
from gpukit.emulator.ptx.types import TYPES, PtxType

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler

_INTEGRAL = ("rni", "rzi", "rmi", "rpi")
_ROUNDINGS = (*_INTEGRAL, "rn", "rz", "rm", "rp", "rna")


@op("cvt")
def cvt(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    mode = modifiers.pick(*_ROUNDINGS, default="")
    stochastic = modifiers.flag("rs")
    to, from_ = modifiers.type(), modifiers.type()
    if stochastic:
        return assembler.bind(instr, stochastic_conversion(modifiers, to))
    if to.pack > 1 or from_.pack > 1 or to.name.endswith(("x2", "x4")) or from_.name == "e2m1x2":
        expr = packed_conversion(modifiers, mode, to, from_)
    else:
        expr = Expr(_scalar(modifiers, mode, to, from_), (from_,), to, category="convert")
    return assembler.bind(instr, expr)


def _scalar(modifiers: Modifiers, mode: str, to: PtxType, from_: PtxType) -> Any:
    if not to.is_float and not from_.is_float:
        return _between_integers(modifiers.flag("sat"), to.dtype, from_.dtype)
    if not from_.is_float:
        return _from_integer(modifiers, mode or "rn", to.dtype)
    if not to.is_float:
        ftz = modifiers.flag("ftz")
        modifiers.flag("sat")  # float to integer always clamps
        return _to_integer(ftz, mode or "rzi", to.dtype, from_.dtype)
    if to.name == "tf32":
        return _to_tf32(modifiers, mode)
    return _between_floats(modifiers, mode, to.dtype, from_.dtype)


def _between_integers(sat: bool, to: Any, from_: Any) -> Any:
    if not sat:
        return lambda a: a.astype(to)
    wanted, held = np.iinfo(to), np.iinfo(from_)
    low, high = max(wanted.min, held.min), min(wanted.max, held.max)
    return lambda a: np.clip(a, from_.type(low), from_.type(high)).astype(to)


# Integer to float


def _from_integer(modifiers: Modifiers, mode: str, to: Any) -> Any:
    sat = modifiers.flag("sat")
    modifiers.flag("ftz")

    def run(a: Any) -> Any:
        if mode == "rn" and to in (F32, F64):
            result = a.astype(to)
        elif a.dtype.itemsize < 8:
            result = round_to(a.astype(F64), to, mode)
        else:
            result = _from_long(a, mode, to)
        return saturate(result) if sat else result

    return run


def _from_long(a: Any, mode: str, to: Any) -> Any:
    """64-bit integers: the two halves are exact in binary64, their sum may not be."""
    high = (a >> a.dtype.type(32)).astype(F64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(F64)
    total, error = two_sum(high, low)
    if to != F64:
        return round_to(to_odd(total, error), to, mode)
    above = {"rz": (error < 0) == (total > 0), "rm": error < 0, "rp": error > 0}[mode]
    target = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    return np.where((error != 0) & above, np.nextafter(total, target), total)


# Float to integer


def _to_integer(ftz: bool, mode: str, to: Any, from_: Any) -> Any:
    info = np.iinfo(to)
    low, high = float(info.min), float(info.max)  # of 64 bits: one past the largest
    odd_nan = from_ == F64 or to.itemsize == 8
    nan_value = to.type(1 << (to.itemsize * 8 - 1) if to.kind == "u" else info.min)
    nan_value = nan_value if odd_nan else to.type(0)

    def run(a: Any) -> Any:
        x = (flush(a) if ftz else a).astype(F64)
        y = to_integral(x, mode)
        inside = (y >= low) & (y < high)
        result = np.where(inside, y, 0).astype(to)
        if b"\x00" in inside.tobytes():
            result = np.where(y >= high, to.type(info.max), result)
            result = np.where(y < low, to.type(info.min), result)
            result = np.where(x != x, nan_value, result)
        return result

    return run


# Float to float


def _between_floats(modifiers: Modifiers, mode: str, to: Any, from_: Any) -> Any:
    ftz, sat = modifiers.flag("ftz"), modifiers.flag("sat")
    clamp, finite = modifiers.flag("relu"), modifiers.flag("satfinite")
    core = _resize(mode, to, from_)
    keeps_nan = _keeps_nan(to, from_) and not (ftz and from_ == F32)
    steps: list[Any] = [clamp_finite] * finite + [saturate] * sat + [relu] * clamp
    if ftz and to == F32:
        steps.insert(0, flush)

    def run(a: Any) -> Any:
        a = canonical(flush(a).copy()) if ftz and from_ == F32 else a
        result = core(a)
        if keeps_nan or to == F64:
            result = np.where(a != a, converted_nan(a, to, (to, from_) != (F32, BF16)), result)
        else:
            result = canonical(result)
        for step in steps:
            result = step(result)
        return result

    return run


def _resize(mode: str, to: Any, from_: Any) -> Any:
    if mode in _INTEGRAL:
        return lambda a: to_integral(a.astype(F64), mode).astype(to)
    if to == from_:
        return lambda a: a.copy()
    if to.itemsize > from_.itemsize or (mode == "rn" and (to in (F16, F32) or from_ == F32)):
        return lambda a: a.astype(to)
    return lambda a: round_to(a.astype(F64), to, mode or "rn")


def _keeps_nan(to: Any, from_: Any) -> bool:
    """Whether sign and payload survive: around binary64, and where bf16 is only shifted."""
    return F64 in (to, from_) or (to, from_) == (F32, BF16)


def clamp_finite(r: Any) -> Any:
    """``.satfinite``: beyond the largest number stays the largest number; NaN passes."""
    largest = r.dtype.type(finfo(r.dtype).max)
    return np.where(np.abs(r) > largest, np.copysign(largest, r), r)


def _to_tf32(modifiers: Modifiers, mode: str) -> Any:
    clamp, finite = modifiers.flag("relu"), modifiers.flag("satfinite")
    if mode == "rna":
        return lambda a: _nearest_away_tf32(a, finite)
    largest = float(_LARGEST_TF32.view(F32))

    def run(a: Any) -> Any:
        y = quantize(a.astype(F64), 10, -126, mode)
        if finite:
            y = np.where(np.isnan(y), y, np.clip(y, -largest, largest))
        result = relu(y.astype(F32)) if clamp else y.astype(F32)
        return np.where(a != a, _NAN_TF32.view(F32), result)

    return run


_NAN_TF32, _LARGEST_TF32 = np.uint32(0x7FFFE000), np.uint32(0x7F7FE000)
_INFINITY, _TF32_BITS = np.uint32(0x7F800000), np.uint32(0xFFFFE000)


def _nearest_away_tf32(a: Any, finite: bool) -> Any:
    """Half a unit is added to the bits; infinities and NaN are only cut, or put below infinity."""
    raw = a.view(np.uint32)
    special = (raw & _INFINITY) == _INFINITY
    raw = np.where(special, raw, raw + np.uint32(0x1000)) & _TF32_BITS
    if finite:
        raw = np.where((raw & _INFINITY) == _INFINITY, raw - np.uint32(0x2000), raw)
    return raw.view(F32)


# cvt.pack


@op("cvt.pack")
def cvt_pack(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    """Clamp two integers and put them below the low bits of a third."""
    modifiers.flag("sat")
    name = modifiers.pick("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")
    modifiers.drop("s32", "b32")
    bits, signed = int(name[1:]), name[0] == "s"
    low = -(1 << (bits - 1)) if signed else 0
    high = low + (1 << bits) - 1
    s32, u32 = TYPES["s32"], TYPES["u32"]

    def run(a: Any, b: Any, *c: Any) -> Any:
        upper, lower = (np.clip(v.astype(np.int64), low, high) & ((1 << bits) - 1) for v in (a, b))
        rest = c[0].astype(np.int64) << (2 * bits) if c else 0
        return (upper << bits | lower | rest) & 0xFFFFFFFF

    third = (u32,) if len(instr.operands) == 4 else ()
    return assembler.bind(instr, Expr(run, (s32, s32, *third), u32, category="convert"))
