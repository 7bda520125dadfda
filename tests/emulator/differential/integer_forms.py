"""Integer, bit and predicate instructions in all their forms."""

from __future__ import annotations

from collections.abc import Iterator

from .alu import Form

WIDTHS = (16, 32, 64)
INTS = tuple(f"{k}{b}" for b in WIDTHS for k in "us")


def arithmetic() -> Iterator[Form]:
    """add, sub, mul, mad, min, max, div, rem and their relatives."""
    for t in INTS:
        for op in ("add", "sub", "min", "max", "div", "rem", "mul.lo", "mul.hi"):
            yield Form(f"{op}.{t}", (t, t), (t,))
        for op in ("mad.lo", "mad.hi", "sad"):
            yield Form(f"{op}.{t}", (t, t, t), (t,), lanes=768)
    for t in ("s16", "s32", "s64"):
        yield Form(f"abs.{t}", (t,), (t,))
        yield Form(f"neg.{t}", (t,), (t,))
    for t, wide in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        yield Form(f"mul.wide.{t}", (t, t), (wide,))
        yield Form(f"mad.wide.{t}", (t, t, wide), (wide,), lanes=768)
    for op in ("add.sat", "sub.sat", "min.relu", "max.relu"):
        yield Form(f"{op}.s32", ("s32", "s32"), ("s32",))
    yield Form("mad.hi.sat.s32", ("s32",) * 3, ("s32",), lanes=768)
    yield Form("mad24.hi.sat.s32", ("s32",) * 3, ("s32",), lanes=768)
    for t in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield Form(f"mul24.{half}.{t}", (t, t), (t,))
            yield Form(f"mad24.{half}.{t}", (t,) * 3, (t,), lanes=768)
    yield from _packed()


def _packed() -> Iterator[Form]:
    for t in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            yield Form(f"{op}.{t}", (t, t), (t,))
    for op in ("min.relu", "max.relu"):
        yield Form(f"{op}.s16x2", ("s16x2",) * 2, ("s16x2",))
    for a in "us":
        for b in "us":
            d = "s32" if "s" in (a, b) else "u32"
            yield Form(f"dp4a.{a}32.{b}32", ("b32", "b32", d), (d,))
            for half in ("lo", "hi"):
                yield Form(f"dp2a.{half}.{a}32.{b}32", ("b32", "b32", d), (d,))
    for t in ("u16", "s16"):
        yield Form(f"cvt.pack.sat.{t}.s32", ("s32", "s32"), ("b32",))
    for t in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield Form(f"cvt.pack.sat.{t}.s32.b32", ("s32", "s32", "b32"), ("b32",))


def carries() -> Iterator[Form]:
    """Chains through the carry flag; the last result shows it."""
    for b in (32, 64):
        u = f"u{b}"
        for op in ("add", "sub"):
            yield Form(
                f"{op}.cc.{u} {op}c.cc {op}c", (u, u, u), (u, u), lanes=768,
                code=f"{op}.cc.{u} %d, %a, %b; {op}c.cc.{u} %e, %c, %a; {op}c.{u} %d, %d, %b;",
            )  # fmt: skip
        for t in (u, f"s{b}"):
            yield Form(
                f"mad.lo.cc.{t} madc.hi", (t, t, t), (t, t), lanes=768,
                code=f"mad.lo.cc.{t} %d, %a, %b, %c; madc.hi.{t} %e, %a, %b, %c;",
            )  # fmt: skip
            yield Form(
                f"mad.hi.cc.{t} madc.lo.cc addc", (t, t, t), (t, t), lanes=768,
                code=f"mad.hi.cc.{t} %d, %a, %b, %c; madc.lo.cc.{t} %e, %a, %c, %d;"
                f" addc.{t} %d, %d, 0;",
            )  # fmt: skip


def logic() -> Iterator[Form]:
    """Logic, shifts, permutation, counting and bit fields."""
    for b in WIDTHS:
        t = f"b{b}"
        for op in ("and", "or", "xor"):
            yield Form(f"{op}.{t}", (t, t), (t,))
        yield Form(f"not.{t}", (t,), (t,))
        yield Form(f"cnot.{t}", (t,), (t,))
        yield Form(f"shl.{t}", (t, "count"), (t,))
        for k in "usb":
            yield Form(f"shr.{k}{b}", (f"{k}{b}", "count"), (t,))
    for op in ("and", "or", "xor"):
        yield Form(f"{op}.pred", ("pred", "pred"), ("pred",), lanes=256)
    yield Form("not.pred", ("pred",), ("pred",), lanes=256)
    for side in "lr":
        for mode in ("wrap", "clamp"):
            yield Form(f"shf.{side}.{mode}.b32", ("b32", "b32", "count"), ("b32",))
    yield from _counting()
    yield from _fields()


def _counting() -> Iterator[Form]:
    for b in (32, 64):
        for op in ("popc", "clz", "brev"):
            yield Form(f"{op}.b{b}", (f"b{b}",), (f"b{b}" if op == "brev" else "u32",))
        for k in "us":
            for tail in ("", ".shiftamt"):
                yield Form(f"bfind{tail}.{k}{b}", (f"{k}{b}",), ("u32",))
    offsets = "add.s32 %c, %c, -35;"
    yield Form("fns.b32", ("b32", "lane", "count"), ("b32",), lanes=256,
               code=f"{offsets} fns.b32 %d, %a, %b, %c;")  # fmt: skip


def _fields() -> Iterator[Form]:
    for b in (32, 64):
        for k in "us":
            yield Form(f"bfe.{k}{b}", (f"{k}{b}", "count", "count"), (f"b{b}",), lanes=768)
        yield Form(f"bfi.b{b}", (f"b{b}",) * 2 + ("count",) * 2, (f"b{b}",), lanes=768)
    for mode in ("wrap", "clamp"):
        yield Form(f"bmsk.{mode}.b32", ("count", "count"), ("b32",))
        for k in "us":
            yield Form(f"szext.{mode}.{k}32", (f"{k}32", "count"), ("b32",))


TABLES = (0x00, 0xFF, 0x80, 0xFE, 0x96, 0xF8, 0xEA, 0x78, 0xCA, 0xE8, 0x1B, 0x2D, 0x6A, 0x35, 0xF0,
          0xCC, 0xAA, 0x01, 0x7E)  # fmt: skip


def selection() -> Iterator[Form]:
    """lop3, prmt, selp, slct and packing moves."""
    for table in TABLES:
        yield Form(f"lop3.b32 0x{table:02x}", ("b32",) * 3, ("b32",), lanes=256,
                   code=f"lop3.b32 %d, %a, %b, %c, {table};")  # fmt: skip
    for op in ("and", "or"):
        yield Form(f"lop3.{op}.b32", ("b32", "b32", "b32", "pred"), ("b32", "pred"),
                   code=f"lop3.{op}.b32 %d|%e, %a, %b, %c, 0x68, %f;")  # fmt: skip
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield Form(f"prmt.b32{mode}", ("b32", "b32", "b32"), ("b32",))
    for selector in (0x3210, 0x7654, 0x5410, 0x9BDF, 0x0123, 0x8888):
        yield Form(f"prmt.b32 0x{selector:04x}", ("b32", "b32"), ("b32",), lanes=256,
                   code=f"prmt.b32 %d, %a, %b, 0x{selector:04x};")  # fmt: skip
    for t in ("b16", "s32", "b64", "f32", "f64"):
        yield Form(f"selp.{t}", (t, t, "pred"), (t,), lanes=256)
        for by in (".s32", ".f32", ".ftz.f32"):
            op = f"slct{by[:-4]}.{t}{by[-4:]}"
            yield Form(op, (t, t, by[-3:]), (t,), lanes=256)
    yield from _moves()


def _moves() -> Iterator[Form]:
    yield Form("mov.b32 pack", ("b16", "b16"), ("b32",), "mov.b32 %d, {%a, %b};", lanes=256)
    yield Form("mov.b64 pack", ("b32", "b32"), ("b64",), "mov.b64 %d, {%a, %b};", lanes=256)
    yield Form("mov.b64 pack4", ("b16",) * 4, ("b64",), "mov.b64 %d, {%a, %b, %c, %f};", lanes=256)
    yield Form("mov.b32 unpack", ("b32",), ("b16", "b16"), "mov.b32 {%d, %e}, %a;", lanes=256)
    yield Form("mov.b64 unpack", ("b64",), ("b32", "b32"), "mov.b64 {%d, %e}, %a;", lanes=256)


INTEGER_TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def comparisons() -> Iterator[Form]:
    """setp and set on integers."""
    for t in (*INTS, "b16", "b32", "b64"):
        tests = INTEGER_TESTS[:2] if t[0] == "b" else INTEGER_TESTS
        for test in (*tests, *(("lo", "ls", "hi", "hs") if t[0] == "u" else ())):
            yield Form(f"setp.{test}.{t}", (t, t), ("pred",))
    for join in ("and", "or", "xor"):
        yield Form(f"setp.lt.{join}.s32", ("s32", "s32", "pred"), ("pred", "pred"))
    for d in ("u32", "s32", "f32"):
        for t in (*INTS, "b32"):
            yield Form(f"set.ne.{d}.{t}", (t, t), (d,), lanes=256)
    yield Form("set.gt.xor.u32.s32", ("s32", "s32", "pred"), ("u32",), lanes=256)
