"""cvt in all forms of sm_90."""

from __future__ import annotations

from collections.abc import Iterator

from .alu import Form

INTS = tuple(f"{k}{b}" for b in (8, 16, 32, 64) for k in "us")
FLOATS = ("f16", "bf16", "f32", "f64")
ROUNDINGS = ("rn", "rz", "rm", "rp")
SIZE = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def _form(op: str, to: str, *sources: str, lanes: int = 512) -> Form:
    """8-bit results go to a 32-bit register, which shows how they are extended."""
    return Form(op, sources, ("b32" if to in ("u8", "s8") else to,), lanes=lanes)


def integers() -> Iterator[Form]:
    """Between integers, and from integers to floats."""
    for to in INTS:
        for source in INTS:
            if to != source:
                yield _form(f"cvt.{to}.{source}", to, source, lanes=256)
            if not _holds(to, source):
                yield _form(f"cvt.sat.{to}.{source}", to, source, lanes=256)
    for to in FLOATS:
        for source in INTS[2:] if to == "bf16" else INTS:
            for rounding in ROUNDINGS:
                yield _form(f"cvt.{rounding}.{to}.{source}", to, source, lanes=256)
            if to != "bf16":
                yield _form(f"cvt.rn.sat.{to}.{source}", to, source, lanes=256)


def _holds(to: str, source: str) -> bool:
    """Whether ``to`` has every value of ``source``; .sat is refused there."""
    wider = int(to[1:]) - int(source[1:])
    return wider >= 0 if to[0] == source[0] else source[0] == "u" and wider > 0


def to_integers() -> Iterator[Form]:
    """From floats to integers, in every rounding."""
    for source in FLOATS:
        for to in INTS[2:] if source == "bf16" else INTS:
            for rounding in ("rni", "rzi", "rmi", "rpi"):
                yield _form(f"cvt.{rounding}.{to}.{source}", to, source)
                if source == "f32":
                    yield _form(f"cvt.{rounding}.ftz.{to}.f32", to, source)
            if source != "bf16":
                yield _form(f"cvt.rzi.sat.{to}.{source}", to, source)


def floats() -> Iterator[Form]:
    """Between floats of 16, 32 and 64 bits."""
    for to in FLOATS:
        for source in FLOATS:
            if SIZE[to] > SIZE[source]:
                yield _form(f"cvt.{to}.{source}", to, source)
                if to == "f32" and source == "f16":
                    yield _form("cvt.ftz.f32.f16", to, source)
                if source != "bf16":
                    yield _form(f"cvt.sat.{to}.{source}", to, source)
            elif SIZE[to] < SIZE[source]:
                for rounding in ROUNDINGS:
                    yield _form(f"cvt.{rounding}.{to}.{source}", to, source)
                    if to != "bf16":
                        yield _form(f"cvt.{rounding}.sat.{to}.{source}", to, source)
            elif to == source:
                yield from _integral(to)
    for tail in ("ftz.f32.f64", "ftz.sat.f32.f64"):
        yield _form(f"cvt.rn.{tail}", "f32", "f64")
    yield _form("cvt.ftz.f64.f32", "f64", "f32")
    yield _form("cvt.rn.ftz.f16.f32", "f16", "f32")
    yield _form("cvt.rn.f16.bf16", "f16", "bf16")
    yield _form("cvt.rn.bf16.f16", "bf16", "f16")


def _integral(t: str) -> Iterator[Form]:
    """Rounding to an integral value in the same format."""
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        yield _form(f"cvt.{rounding}.{t}.{t}", t, t)
    if t != "bf16":
        yield _form(f"cvt.sat.{t}.{t}", t, t)
    if t == "f32":
        yield _form("cvt.rni.ftz.f32.f32", t, t)
        yield _form("cvt.ftz.f32.f32", t, t)
        yield _form("cvt.ftz.sat.f32.f32", t, t)


def narrow() -> Iterator[Form]:
    """Packed halves, fp8 and tf32, with relu and satfinite."""
    for to in ("f16", "bf16"):
        for rounding in ("rn", "rz"):
            for tail in ("", ".relu", ".satfinite", ".relu.satfinite"):
                yield _form(f"cvt.{rounding}{tail}.{to}.f32", to, "f32")
                yield _form(f"cvt.{rounding}{tail}.{to}x2.f32", f"{to}x2", "f32", "f32")
    for to in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            yield _form(f"cvt.rn.satfinite{relu}.{to}.f32", to, "f32", "f32")
            yield _form(f"cvt.rn.satfinite{relu}.{to}.f16x2", to, "f16x2")
            yield _form(f"cvt.rn{relu}.f16x2.{to}", "f16x2", to)
    for mode in ("rna", "rna.satfinite", "rn", "rz", "rn.relu", "rz.relu"):
        yield _form(f"cvt.{mode}.tf32.f32", "b32", "f32")
