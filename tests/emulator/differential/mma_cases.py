"""ldmatrix, stmatrix, movmatrix and mma.sync in every shape and type of sm_90."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from .elements import (
    BITS,
    SMALLEST,
    encode,
    random_numbers,
    small_integers,
    subnormals,
    with_specials,
)
from .model import Argument, Array, Buffer, Case, Comparison, Exact, Within, output
from .ptx import kernel_case, numbered, pointer, words_in, words_out
from .values import integers, random_bits

WARP = 32


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _transfers()
    for form in _forms():
        yield from _products(form)


def _transfers() -> Iterator[Case]:
    """8 x 8 matrices between shared memory and registers, rows in a scrambled order."""
    image = Buffer(random_bits("matrices", 64).view(np.uint32))
    for count, trans in product((1, 2, 4), ("", ".trans")):
        tile = ".shared .align 16 .b8 tile[512];"
        registers = numbered("%r", count)
        row = "mul.lo.u32 %r10, %l, 11; and.b32 %r10, %r10, 31; mov.u32 %r11, tile;\n"
        row += "mad.lo.u32 %r11, %r10, 16, %r11;\n"
        fill = pointer("%x1", 0, 16) + "ld.global.v2.b64 {%x2, %x3}, [%x1]; mov.u32 %r12, tile;\n"
        fill += "mad.lo.u32 %r12, %t, 16, %r12; st.shared.v2.b64 [%r12], {%x2, %x3};\n"
        load = f"bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
        body = f"{row}{fill}{load} {registers}, [%r11];\n" + words_out("%r", count, 1, WARP)
        args: list[Argument] = [image, output(count * WARP)]
        yield kernel_case(f"ldmatrix.x{count}{trans}", body, args, declarations=tile, block=WARP)
        store = f"bar.warp.sync -1; stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
        body = row + fill + words_in("%r", count, 0, WARP) + f"{store} [%r11], {registers};\n"
        body += "bar.warp.sync -1; ld.shared.v2.b64 {%x2, %x3}, [%r12];\n" + pointer("%x1", 1, 16)
        body += "st.global.v2.b64 [%x1], {%x2, %x3};"
        args = [image, output(4 * WARP)]
        yield kernel_case(f"stmatrix.x{count}{trans}", body, args, declarations=tile, block=WARP)
    body = words_in("%r", 1, 0, WARP) + "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;\n"
    body += words_out("%r1", 1, 1, WARP).replace("%r10", "%r1")
    yield kernel_case("movmatrix", body, [image, output(WARP)], block=WARP)


@dataclass(frozen=True)
class Form:
    """One mma.sync: shape, types of D, A, B and C, layouts and what follows in the opcode."""

    shape: tuple[int, int, int]
    types: tuple[str, str, str, str]
    layouts: str = "row.col"
    tail: str = ""
    saturate: str = ""
    copies: int = 1  # m8n8k4 of f16 multiplies four pairs of matrices

    @property
    def text(self) -> str:
        m, n, k = self.shape
        types = ".".join(self.types)
        shape = f"m{m}n{n}k{k}.{self.layouts}{self.saturate}"
        return f"mma.sync.aligned.{shape}.{types}{self.tail}"

    def elements(self) -> tuple[int, int, int]:
        """How many A, B and D have."""
        m, n, k = self.shape
        return m * k * self.copies, n * k * self.copies, m * n * self.copies


def _forms() -> Iterator[Form]:
    for k in (8, 16):
        yield Form((16, 8, k), ("f16",) * 4)
        yield Form((16, 8, k), ("f32", "f16", "f16", "f32"))
        yield Form((16, 8, k), ("f32", "bf16", "bf16", "f32"))
        yield Form((16, 8, k // 2), ("f32", "tf32", "tf32", "f32"))
    for a, b in product(("e4m3", "e5m2"), repeat=2):
        yield Form((16, 8, 32), ("f32", a, b, "f32"))
    for layouts in ("row.col", "row.row", "col.col", "col.row"):
        for d, c in (("f32", "f32"), ("f16", "f16"), ("f32", "f16")):
            yield Form((8, 8, 4), (d, "f16", "f16", c), layouts, copies=4)
    for shape in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)):
        yield Form(shape, ("f64",) * 4, tail=".rn" if shape[0] == 16 else "")
    yield from _integer_forms()


def _integer_forms() -> Iterator[Form]:
    for bits, shapes in ((8, ((8, 8, 16), (16, 8, 16), (16, 8, 32))),
                         (4, ((8, 8, 32), (16, 8, 32), (16, 8, 64)))):  # fmt: skip
        for shape, saturate in product(shapes, ("", ".satfinite")):
            for a, b in product("su", repeat=2):
                yield Form(shape, ("s32", f"{a}{bits}", f"{b}{bits}", "s32"), saturate=saturate)
    for shape in ((8, 8, 128), (16, 8, 128), (16, 8, 256)):
        for operation in ("xor", "and"):
            yield Form(shape, ("s32", "b1", "b1", "s32"), tail=f".{operation}.popc")


def _products(form: Form) -> Iterator[Case]:
    d, a, b, c = form.types
    na, nb, nd = form.elements()
    whole = [small_integers(a, f"{form.text}A", na), small_integers(b, f"{form.text}B", nb)]
    yield _case(form, "integers", *whole, _addend(c, form.text, nd), Exact())
    if d == "s32":
        return
    numbers = [random_numbers(a, f"{form.text}a", na), random_numbers(b, f"{form.text}b", nb),
               random_numbers(c, f"{form.text}c", nd)]  # fmt: skip
    yield _case(form, "random", *numbers, tolerance(d, a, form.shape[2]))
    if d == "f64":
        return
    special = with_specials(whole[0], a, form.text), with_specials(whole[1], b, form.text + "b")
    yield _case(form, "specials", *special, _addend(c, form.text, nd), Exact())
    if a in SMALLEST:
        scaled = encode(integers(form.text, -3, 4, nb) * 2.0 ** (0 if a == "f16" else 20), b)
        zero = np.zeros(nd * BITS[c] // 8, np.uint8)
        yield _case(form, "subnormals", subnormals(a, form.text, na), scaled, zero, Exact())


def _addend(kind: str, seed: str, count: int) -> Array:
    """Small integers; of s32 half lie close to the ends of the range."""
    if kind == "s32":
        ends = np.where(integers(seed, 0, 2, count), 2**31 - 1, -(2**31))
        far = ends + np.sign(-ends) * integers(seed + "far", 0, 3000, count)
        near = integers(seed + "near", -1000, 1000, count)
        return np.where(np.arange(count) % 2, far, near).astype(np.int32).view(np.uint8)
    return encode(integers(seed + "C", -50, 51, count), kind)


def tolerance(result: str, operand: str, k: int) -> Comparison:
    """The stated bound for operands below 2 and an addend below 2 (see mma/arithmetic.py)."""
    largest = 4.0
    if result == "f64":
        return Within("f8", (k + 1) * 2.0**-52 * largest * k)
    kept = 13 if operand in ("e4m3", "e5m2") else 23
    relative = 2.0**-23 if result == "f32" else 2.0**-10
    return Within("f4" if result == "f32" else "f2", (k + 1) * 2.0**-kept * largest, relative)


def _case(form: Form, what: str, a: Array, b: Array, c: Array, comparison: Comparison) -> Case:
    """Registers are filled from arrays [register, lane] as they come: no layout is assumed."""
    width = 64 if form.types[1] == "f64" else 32
    sizes = [v.size * 8 // (width * WARP) for v in (a, b, c)]
    counts = [*sizes, form.elements()[2] * BITS[form.types[0]] // (width * WARP)]
    kind = f".reg .b{width}"
    body = "".join(f"{kind} %{n}<{m}>;" for n, m in zip(("A", "B", "C", "D"), counts, strict=True))
    for i, name in enumerate("ABC"):
        body += "\n" + words_in(f"%{name}", counts[i], i, WARP, width)
    operands = ", ".join(numbered(f"%{n}", counts["ABCD".index(n)]) for n in "DABC")
    body += f"{form.text} {operands};\n" + words_out("%D", counts[3], 3, WARP, width)
    arrays = [v.view(f"u{width // 8}") for v in (a, b, c)]
    args: list[Argument] = [*map(Buffer, arrays), output(counts[3] * WARP, width // 8)]
    return kernel_case(f"{form.text} {what}", body, args, block=WARP, comparison=comparison)
