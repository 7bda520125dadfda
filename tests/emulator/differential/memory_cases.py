"""Loads and stores of every width and state space, and atomics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import Argument, Array, Buffer, Case, output
from .ptx import kernel_case, pointer
from .values import columns, random_bits

THREADS = 128


def _random(seed: str, size: int) -> Array:
    return random_bits(seed, size // 8).view(np.uint8)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _extending_loads()
    yield from _vectors()
    yield from _shared()
    yield from _local()
    yield from _atomics()
    yield from _vector_reductions()


def _extending_loads() -> Iterator[Case]:
    """Narrow loads extend to the register; stores take its low bits."""
    for kind in ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32"):
        size = int(kind[1:]) // 8
        body = pointer("%x1", 0, 8) + pointer("%x2", 1, 16)
        body += f"ld.global.{kind} %x3, [%x1+{size}]; ld.global.{kind} %r1, [%x1];\n"
        body += "st.global.b64 [%x2], %x3; st.global.b32 [%x2+8], %r1;\n"
        body += f"st.global.{kind} [%x2+12], %x3;"
        args: list[Argument] = [Buffer(_random(kind, 8 * THREADS)), output(4 * THREADS)]
        yield kernel_case(f"ld/st.{kind}", body, args)


_VECTORS = [(n, bits) for bits in (8, 16, 32, 64) for n in (2, 4) if n * bits <= 128]
_MODES = ("", ".volatile", ".relaxed.gpu", ".nc", ".cg", ".L1::no_allocate", ".acquire.sys")


def _vectors() -> Iterator[Case]:
    for n, bits in _VECTORS:
        prefix = {8: "%h", 16: "%h", 32: "%r", 64: "%x1"}[bits]
        registers = "{" + ", ".join(f"{prefix}{i}" for i in range(n)) + "}"
        back = "{" + ", ".join(f"{prefix}{i}" for i in reversed(range(n))) + "}"
        size = n * bits // 8
        body = pointer("%x1", 0, size) + pointer("%x2", 1, size)
        body += f"ld.global.v{n}.b{bits} {registers}, [%x1];\n"
        body += f"st.global.v{n}.b{bits} [%x2], {back};"
        args: list[Argument] = [Buffer(_random(f"v{n}", size * THREADS)), output(size * THREADS, 1)]
        yield kernel_case(f"ld/st.v{n}.b{bits}", body, args)
    for mode in _MODES:
        body = pointer("%x1", 0, 4) + pointer("%x2", 1, 4)
        store = mode if mode in _MODES[:3] else ""
        body += f"ld{mode}.global{'' if mode else '.ca'}.b32 %r1, [%x1];"
        body = body.replace("ld.nc.global", "ld.global.nc").replace("ld.cg.global", "ld.global.cg")
        body = body.replace("ld.L1::no_allocate.global", "ld.global.L1::no_allocate")
        body += f" not.b32 %r1, %r1; st{store}.global.b32 [%x2], %r1;"
        args = [Buffer(_random(mode, 4 * THREADS)), output(THREADS)]
        yield kernel_case(f"ld{mode} st{store}", body, args)


def _shared() -> Iterator[Case]:
    """Bytes written one way, read another; also through generic addresses."""
    declaration = ".shared .align 16 .b8 tile[2048];"
    for n, bits in _VECTORS:
        prefix = {8: "%h", 16: "%h", 32: "%r", 64: "%x1"}[bits]
        registers = "{" + ", ".join(f"{prefix}{i}" for i in range(n)) + "}"
        size = n * bits // 8
        for generic in (False, True):
            space = "" if generic else ".shared"
            body = pointer("%x1", 0, 16) + "ld.global.v2.b64 {%x5, %x6}, [%x1];\n"
            body += "mov.u64 %x3, tile;" + (" cvta.shared.u64 %x3, %x3;" if generic else "")
            body += "xor.b32 %r20, %t, 37; mad.wide.u32 %x4, %r20, 16, %x3;\n"
            body += f"st{space}.v2.b64 [%x4], {{%x5, %x6}}; bar.sync 0;\n"
            body += f"setp.gt.u32 %q1, %t, {THREADS - 9}; @%q1 exit;\n"
            body += f"mad.wide.u32 %x4, %t, {size}, %x3;\n" + pointer("%x2", 1, size)
            body += f"ld{space}.v{n}.b{bits} {registers}, [%x4+16];\n"
            body += f"st.global.v{n}.b{bits} [%x2], {registers};"
            args: list[Argument] = [Buffer(_random("shared", 16 * THREADS)),
                                    output(size * (THREADS - 8), 1)]  # fmt: skip
            name = f"{'generic' if generic else 'shared'} v{n}.b{bits}"
            yield kernel_case(name, body, args, declarations=declaration)


def _local() -> Iterator[Case]:
    body = """.local .align 16 .b8 stack[64];
mov.u64 %x3, stack; cvta.local.u64 %x4, %x3;
""" + pointer("%x1", 0, 64) + pointer("%x2", 1, 64)  # fmt: skip
    body += "".join(
        f"ld.global.v2.b64 {{%x5, %x6}}, [%x1+{16 * i}]; "
        f"st.local.v2.b64 [%x3+{16 * i}], {{%x5, %x6}};\n"
        for i in range(4)
    )
    for i in range(16):  # dynamic indices, alternating local and generic loads
        body += f"add.u32 %r1, %t, {7 * i}; and.b32 %r1, %r1, 15;\n"
        space, base = (".local", "%x3") if i % 2 else ("", "%x4")
        body += f"mad.wide.u32 %x7, %r1, 4, {base}; ld{space}.b32 %r2, [%x7];\n"
        body += f"st.global.b32 [%x2+{4 * i}], %r2;\n"
    args: list[Argument] = [Buffer(_random("local", 64 * THREADS)), output(16 * THREADS)]
    yield kernel_case("local memory", body, args)


_ATOMICS: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16", "noftz.f16x2",
            "noftz.bf16x2"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
}  # fmt: skip


def _atomics() -> Iterator[Case]:
    for operation, kinds in _ATOMICS.items():
        for kind in kinds:
            for space in ("global", "shared"):
                yield _unique(operation, kind, space)
            plain = kind.removeprefix("noftz.")
            if plain[0] in "usb" and plain[:2] != "bf" and operation not in ("exch", "cas"):
                for space in ("global", "shared"):
                    yield _contended(operation, kind, space)


def _operands(operation: str, kind: str, seed: str) -> list[Array]:
    """Memory contents and one or two operands; half of the cas comparisons succeed."""
    count = 3 if operation == "cas" else 2
    found = columns((kind.removeprefix("noftz."),) * count, seed, THREADS)
    if operation == "cas":
        found[1][::2] = found[0][::2]
    return found


def _unique(operation: str, kind: str, space: str) -> Case:
    """Every thread has its own address: what it found and what it left."""
    name = f"atom.{space}.{operation}.{kind}"
    values = _operands(operation, kind, name)
    size = values[0].itemsize
    prefix = {2: "%h", 4: "%r", 8: "%x1"}[size]
    bits = 8 * size
    body = pointer("%x1", 0, size) + pointer("%x2", 1, size) + pointer("%x3", 2, size)
    body += pointer("%x4", len(values), 2 * size)
    body += f"ld.global.b{bits} {prefix}5, [%x1]; ld.global.b{bits} {prefix}6, [%x2];\n"
    body += f"ld.global.b{bits} {prefix}7, [%x3];\n" if len(values) == 3 else ""
    address, setup = "%x4", f"st.global.b{bits} [%x4], {prefix}5;\n"
    if space == "shared":
        setup = f"mov.u64 %x5, cells; mad.wide.u32 %x5, %t, {size}, %x5;\n"
        setup += f"st.shared.b{bits} [%x5], {prefix}5;\n"
        address = "%x5"
    extra = f", {prefix}7" if len(values) == 3 else ""
    body += f"{setup}atom.{space}.{operation}.{kind} {prefix}8, [{address}], {prefix}6{extra};\n"
    body += f"ld.{space}.b{bits} {prefix}9, [{address}];\n"
    body += f"st.global.b{bits} [%x4+{size}], {prefix}8; st.global.b{bits} [%x4], {prefix}9;"
    args: list[Argument] = [*map(Buffer, values), output(2 * THREADS, size)]
    body = body.replace(pointer("%x3", 2, size), "") if len(values) == 2 else body
    return kernel_case(name, body, args, declarations=".shared .align 8 .b8 cells[1024];")


def _contended(operation: str, kind: str, space: str) -> Case:
    """All threads update four cells by red; inc and dec by the same operand."""
    size = int(kind[1:]) // 8
    name = f"red.{space}.{operation}.{kind} contended"
    values = columns((kind,), name, THREADS)[0]
    if operation in ("inc", "dec"):
        values[:] = 11
    prefix, bits = ("%r" if size == 4 else "%x1"), 8 * size
    body = pointer("%x1", 0, size) + "and.b32 %r20, %t, 3;\n" + pointer("%x2", 1, size, "%r20")
    body += f"ld.global.b{bits} {prefix}5, [%x1]; setp.lt.u32 %q1, %t, 4;\n"
    if space == "global":
        body += f"red.global.{operation}.{kind} [%x2], {prefix}5;"
    else:
        body += f"mov.u64 %x3, cells; mad.wide.u32 %x3, %r20, {size}, %x3;\n"
        body += f"ld.global.b{bits} {prefix}6, [%x2]; @%q1 st.shared.b{bits} [%x3], {prefix}6;\n"
        body += f"bar.sync 0; red.shared.{operation}.{kind} [%x3], {prefix}5; bar.sync 0;\n"
        body += f"ld.shared.b{bits} {prefix}7, [%x3]; @%q1 st.global.b{bits} [%x2], {prefix}7;"
    cells = Buffer(columns((kind,), name + "cells", 4)[0].copy(), output=True)
    args: list[Argument] = [Buffer(values), cells]
    return kernel_case(name, body, args, declarations=".shared .align 8 .b8 cells[64];")


_VECTOR_KINDS = [("v2.f32", "f32", 2), ("v4.f32", "f32", 4), ("noftz.v2.f16", "f16", 2),
                 ("noftz.v4.bf16", "bf16", 4), ("noftz.v2.bf16x2", "bf16x2", 2),
                 ("noftz.v4.f16x2", "f16x2", 4)]  # fmt: skip


def _vector_reductions() -> Iterator[Case]:
    for text, kind, n in _VECTOR_KINDS:
        old, new = columns((kind, kind), text, n * THREADS)
        size, prefix = old.itemsize, ("%h" if old.itemsize == 2 else "%r")
        registers = "{" + ", ".join(f"{prefix}{i}" for i in range(n)) + "}"
        body = pointer("%x1", 0, n * size) + pointer("%x2", 1, n * size)
        body += f"ld.global.v{n}.b{8 * size} {registers}, [%x1];\n"
        body += f"red.global.add.{text} [%x2], {registers};"
        args: list[Argument] = [Buffer(new), Buffer(old, output=True)]
        yield kernel_case(f"red.global.add.{text}", body, args)
