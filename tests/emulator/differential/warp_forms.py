"""Warp-wide instructions, with all lanes and with the two halves of a diverged warp."""

from __future__ import annotations

from collections.abc import Iterator

from .alu import Form

EVEN, ODD, ALL = 0x55555555, 0xAAAAAAAA, 0xFFFFFFFF
LANES = 128


def forms() -> Iterator[Form]:
    """All of them."""
    yield from _shuffles()
    yield from _votes()
    yield from _matches()
    yield from _reductions()
    yield from _presence()


def _split(name: str, code: str, sources: tuple[str, ...], results: tuple[str, ...]) -> Form:
    """``code`` once for even and once for odd lanes, MASK being their member mask."""
    even, odd = code.replace("MASK", f"{EVEN:#x}"), code.replace("MASK", f"{ODD:#x}")
    text = f""".reg .pred %g; and.b32 %j, %i, 1; setp.eq.u32 %g, %j, 0; @%g bra EVEN;
{odd} bra JOIN;
EVEN: {even}
JOIN:"""
    return Form(f"{name} diverged", sources, results, text, lanes=LANES)


def _whole(name: str, code: str, sources: tuple[str, ...], results: tuple[str, ...]) -> Form:
    return Form(name, sources, results, code.replace("MASK", f"{ALL:#x}"), lanes=LANES)


def _shuffles() -> Iterator[Form]:
    for mode in ("up", "down", "bfly", "idx"):
        inside = ("0", "0x1f", "0x1f", "0x1f")[("up", "down", "bfly", "idx").index(mode)]
        for segment in (0, 16, 24, 28, 30):
            clamp = f"{int(inside, 16) | segment << 8:#x}"
            code = f"shfl.sync.{mode}.b32 %d|%e, %a, %b, {clamp}, MASK;"
            yield _whole(f"shfl.{mode} {clamp}", code, ("b32", "lane"), ("b32", "pred"))
        code = f"shfl.sync.{mode}.b32 %d|%e, %a, %b, %c, MASK;"
        name = f"shfl.{mode} any clamp"
        yield _whole(name, code, ("b32", "lane", "lane"), ("b32", "pred"))
        step = "2" if mode != "idx" else "%j"
        code = f"and.b32 %j, %i, 5; shfl.sync.{mode}.b32 %d|%e, %a, {step}, {inside}, MASK;"
        yield _split(f"shfl.{mode}", code, ("b32",), ("b32", "pred"))


def _votes() -> Iterator[Form]:
    few = "and.b32 %j, %a, %b; setp.ne.u32 %q, %j, 0; "
    head = ".reg .pred %q;"
    for mode in ("all", "any", "uni"):
        for negated in ("", "!"):
            code = f"{few}vote.sync.{mode}.pred %d, {negated}%q, MASK;"
            name = f"vote.{mode} {negated}"
            yield _whole(name, head + code, ("b32", "lane"), ("pred",))
            split = _split(name, code, ("b32", "lane"), ("pred",))
            yield Form(split.op, split.sources, split.results, head + split.code, lanes=LANES)
    code = f"{few}vote.sync.ballot.b32 %d, %q, MASK;"
    yield _whole("vote.ballot", head + code, ("b32", "lane"), ("b32",))
    split = _split("vote.ballot", code, ("b32", "lane"), ("b32",))
    yield Form(split.op, split.sources, split.results, head + split.code, lanes=LANES)
    for same in ("0", "-1"):  # warps that agree
        for mode in ("all", "any", "uni"):
            code = f"{head}setp.ne.s32 %q, {same}, %d; vote.sync.{mode}.pred %e, %q, MASK;"
            code = f"mov.b32 %d, 0; {code}"
            yield _whole(f"vote.{mode} of {same}", code, ("b32",), ("b32", "pred"))


def _matches() -> Iterator[Form]:
    for bits in (32, 64):
        kind = f"b{bits}"
        for keep in (0, 1, 3, 0x80000001):
            code = f"and.b{bits} %a, %a, {keep:#x}; match.any.sync.b{bits} %d, %a, MASK;"
            yield _whole(f"match.any.b{bits} {keep:#x}", code, (kind,), ("b32",))
            code = f"and.b{bits} %a, %a, {keep:#x}; match.all.sync.b{bits} %d|%e, %a, MASK;"
            yield _whole(f"match.all.b{bits} {keep:#x}", code, (kind,), ("b32", "pred"))
            yield _split(f"match.all.b{bits} {keep:#x}", code, (kind,), ("b32", "pred"))
    code = "and.b32 %a, %a, 1; match.any.sync.b32 %d, %a, MASK;"
    yield _split("match.any.b32", code, ("b32",), ("b32",))


def _reductions() -> Iterator[Form]:
    for kind, operations in (("u32", ("add", "min", "max")), ("s32", ("add", "min", "max")),
                             ("b32", ("and", "or", "xor"))):  # fmt: skip
        for operation in operations:
            mixed = {"and": "or.b32 %a, %a, 0xFFF0FFFF; ", "or": "and.b32 %a, %a, 0x00F11000; "}
            code = f"{mixed.get(operation, '')}redux.sync.{operation}.{kind} %d, %a, MASK;"
            yield _whole(f"redux.{operation}.{kind}", code, (kind,), (kind,))
            yield _split(f"redux.{operation}.{kind}", code, (kind,), (kind,))


def _presence() -> Iterator[Form]:
    """Who is here, and barriers that reduce."""
    yield _whole("activemask", "activemask.b32 %d;", ("b32",), ("b32",))
    yield _split("activemask", "activemask.b32 %d;", ("b32",), ("b32",))
    yield _whole("elect", "elect.sync %d|%e, MASK;", ("b32",), ("b32", "pred"))
    yield _split("elect", "elect.sync %d|%e, MASK;", ("b32",), ("b32", "pred"))
    head = ".reg .pred %q; setp.ne.u32 %q, %b, 5; "
    yield _whole("bar.red.popc", f"{head}bar.red.popc.u32 %d, 0, %q;", ("b32", "lane"), ("u32",))
    for mode in ("and", "or"):
        for negated in ("", "!"):
            code = f"{head}barrier.cta.red.{mode}.pred %d, 1, {negated}%q;"
            yield _whole(f"barrier.red.{mode} {negated}", code, ("b32", "lane"), ("pred",))
