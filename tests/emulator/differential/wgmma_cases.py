"""wgmma: descriptors, swizzles, majors, start offsets, types, widths and fragments.

Shared memory is filled with small integers as they come, so that every layout gives an exact
result of its own: no layout is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from .elements import BITS, encode, random_numbers, small_integers
from .mma_cases import tolerance
from .model import Argument, Array, Buffer, Case, Exact, output
from .ptx import kernel_case, numbered, words_in, words_out
from .values import integers

GROUP = 128
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
B_AT = 16384  # where B begins in the image
IMAGE = 49152


@dataclass(frozen=True)
class Matrix:
    """An operand in shared memory; offsets in bytes, None for densely packed."""

    rows: int
    swizzle: str = "128B"
    k_major: bool = True
    start: int = 0
    leading: int | None = None
    stride: int | None = None
    base: int = 0

    def word(self, at: int) -> int:
        """The descriptor, relative to the start of dynamic shared memory."""
        leading, stride = self._dense()
        leading = leading if self.leading is None else self.leading
        stride = stride if self.stride is None else self.stride
        fields = (at + self.start) >> 4 | leading >> 4 << 16 | stride >> 4 << 32
        return fields | self.base << 49 | CODES[self.swizzle] << 62

    def _dense(self) -> tuple[int, int]:
        span = SPANS[self.swizzle]
        if self.k_major:
            return (self.rows * 16, 128) if span == 16 else (16, 8 * span)
        return (self.rows // 8 * 128, 128) if span == 16 else (16 * span, 8 * span)


@dataclass(frozen=True)
class Product:
    """One case; ``a`` is None for A in registers."""

    name: str
    a: Matrix | None
    b: Matrix
    types: tuple[str, str, str] = ("f32", "f16", "f16")
    values: str = "integers"
    scales: str = "1, 1"
    add: int = 1
    tail: str = ""
    steps: tuple[int, ...] = (0,)  # bytes that A and B advance, one wgmma each

    @property
    def k(self) -> int:
        return 256 // BITS[self.types[1]]

    @property
    def registers(self) -> int:
        return self.b.rows * BITS[self.types[0]] // 64


def cases() -> Iterator[Case]:
    """All of them."""
    yield from map(_case, _layouts())
    yield from map(_case, _offsets())
    yield from map(_case, _types())
    yield from map(_case, _sundries())


def _layouts() -> Iterator[Product]:
    for a, b in product(SPANS, SPANS):
        yield Product(f"A {a}, B {b}", Matrix(64, a), Matrix(16, b))
    for swizzle, a, b in product(SPANS, (True, False), (True, False)):
        name = f"{swizzle}, A {'K' if a else 'M'}-major, B {'K' if b else 'N'}-major"
        yield Product(name, Matrix(64, swizzle, a), Matrix(64, swizzle, b))
    for swizzle, n in product(SPANS, (8, 24, 128)):
        if SPANS[swizzle] <= max(2 * n, 16) and 2 * n % SPANS[swizzle] == 0:
            yield Product(f"{swizzle}, N-major, N={n}", Matrix(64, swizzle),
                          Matrix(n, swizzle, False))  # fmt: skip


def _offsets() -> Iterator[Product]:
    """Start addresses inside the swizzle pattern, padded strides, ignored fields."""
    small = Matrix(16)
    for swizzle, start in product(SPANS, (32, 64, 96, 128, 256, 512, 1024, 2048 + 32)):
        if swizzle != "none" and start % SPANS[swizzle] + 32 <= SPANS[swizzle]:
            yield Product(f"A {swizzle} at {start}", Matrix(64, swizzle, start=start), small)
            yield Product(f"B {swizzle} at {start}", Matrix(64, "none"),
                          Matrix(16, swizzle, start=start))  # fmt: skip
    for start in (16, 48, 128, 144):
        yield Product(f"A none at {start}", Matrix(64, "none", start=start), small)
    for swizzle in SPANS:
        for major in (True, False):
            word = f"{swizzle} {'K' if major else 'M'}-major"
            wide = Matrix(64, swizzle, major)
            yield Product(f"{word} SBO 1536", replace(wide, stride=1536), small)
            yield Product(f"{word} LBO 3072", replace(wide, leading=3072), small)
            yield Product(f"{word} LBO 0", replace(wide, leading=0), small)
    for base in range(1, 8):
        yield Product(f"base offset {base}", Matrix(64, start=128 * base, base=base), small)
    yield Product("base offset 3 at 0", Matrix(64, base=3), small)
    for start in (128, 640):
        yield Product(f"M-major at {start}", Matrix(64, "128B", False, start=start), small)


_FLOAT_TYPES = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"),
                ("f32", "tf32", "tf32"), *[(d, a, b) for d in ("f32", "f16")
                for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]]  # fmt: skip


def _types() -> Iterator[Product]:
    for types in _FLOAT_TYPES:
        name = ".".join(types)
        b = Matrix(16)
        yield Product(f"{name}", Matrix(64), b, types)
        yield Product(f"{name} random", Matrix(64), b, types, values="random")
        yield Product(f"{name} A in registers", None, b, types)
        yield Product(f"{name} no addend", Matrix(64), b, types, add=0)
        yield Product(f"{name} negated", Matrix(64), b, types, scales="-1, 1")
    for a, b in product(("s8", "u8"), repeat=2):
        for tail in ("", ".satfinite"):
            types = ("s32", a, b)
            name = f"{'.'.join(types)}{tail}"
            yield Product(name, Matrix(64), Matrix(16), types, tail=tail)
            yield Product(f"{name} A in registers", None, Matrix(16), types, tail=tail)
    yield Product("s32.b1.b1", Matrix(64), Matrix(16), ("s32", "b1", "b1"), tail=".and.popc")


def _sundries() -> Iterator[Product]:
    for n in (8, 24, 32, 40, 64, 96, 136, 256):
        yield Product(f"N={n}", Matrix(64), Matrix(n))
    for n in (8, 24, 32, 48, 128):
        yield Product(f"s8 N={n}", Matrix(64), Matrix(n), ("s32", "s8", "s8"))
    yield Product("K of 64", Matrix(64), Matrix(32), steps=(0, 32, 64, 96))
    yield Product("K of 64 random", Matrix(64), Matrix(16), values="random", steps=(0, 32, 64, 96))
    yield Product("both negated", Matrix(64), Matrix(16), scales="-1, -1")
    yield Product("B N-major, A in registers", None, Matrix(32, "64B", False))


COPY = f"""mov.u32 %r0, smem; ld.param.u64 %x1, [p0]; mul.lo.u32 %r1, %t, 16;
COPY: cvt.u64.u32 %x2, %r1; add.u64 %x2, %x2, %x1; add.u32 %r2, %r1, %r0;
ld.global.v2.b64 {{%x3, %x4}}, [%x2]; st.shared.v2.b64 [%r2], {{%x3, %x4}};
add.u32 %r1, %r1, {16 * GROUP}; setp.lt.u32 %q1, %r1, {IMAGE}; @%q1 bra COPY;
fence.proxy.async.shared::cta; bar.sync 0;
shr.u32 %r0, %r0, 4; cvt.u64.u32 %x1, %r0;
"""


def _instruction(wanted: Product, step: int) -> str:
    d, a, b = wanted.types
    shape = f"m64n{wanted.b.rows}k{wanted.k}"
    kind, mode = f"{d}.{a}.{b}", wanted.tail
    if mode == ".satfinite":
        kind, mode = f"{mode[1:]}.{kind}", ""
    first = "{%a0, %a1, %a2, %a3}"
    text = f"add.u64 %x3, %x1, {wanted.b.word(B_AT) + (step >> 4):#x};\n"
    if wanted.a is not None:
        text = f"add.u64 %x2, %x1, {wanted.a.word(0) + (step >> 4):#x};\n{text}"
        first = "%x2"
    extra = f", {wanted.scales}" if d in ("f16", "f32") else ""
    if BITS[a] == 16:
        majors = [wanted.b] if wanted.a is None else [wanted.a, wanted.b]
        extra += "".join(f", {0 if m.k_major else 1}" for m in majors)
    registers = numbered("%d", wanted.registers)
    return (f"{text}wgmma.mma_async.sync.aligned.{shape}.{kind}{mode} {registers}, {first}, %x3,"
            f" %q2{extra};\n")  # fmt: skip


def _case(wanted: Product) -> Case:
    body = f".reg .b32 %d<{wanted.registers}>; .reg .b32 %a<4>;\n{COPY}"
    body += words_in("%d", wanted.registers, 1, GROUP) + words_in("%a", 4, 2, GROUP)
    body += f"setp.ne.u32 %q2, {wanted.add}, 0;\nwgmma.fence.sync.aligned;\n"
    body += "".join(_instruction(wanted, step) for step in wanted.steps)
    body += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
    body += words_out("%d", wanted.registers, 3, GROUP)
    image, a, c = _inputs(wanted)
    args: list[Argument] = [Buffer(image), Buffer(c), Buffer(a), output(wanted.registers * GROUP)]
    comparison = Exact()
    if wanted.values == "random":
        k = wanted.k * len(wanted.steps)
        comparison = tolerance(wanted.types[0], wanted.types[1], k)
    return kernel_case(
        f"wgmma {wanted.name}", body, args, comparison=comparison, shared=IMAGE,
        declarations=".extern .shared .align 1024 .b8 smem[];",
    )  # fmt: skip


def _inputs(wanted: Product) -> tuple[Array, Array, Array]:
    """The image of shared memory, A's registers and the addend's."""
    make = small_integers if wanted.values == "integers" else random_numbers
    d, a, b = wanted.types
    left = make(a, f"wgmma {a} A", B_AT * 8 // BITS[a])
    right = make(b, f"wgmma {b} B", (IMAGE - B_AT) * 8 // BITS[b])
    registers = make(a, f"wgmma {a} registers", 4 * GROUP * 32 // BITS[a])
    count = wanted.registers * GROUP * 32 // BITS[d]
    if wanted.values == "random":
        addend = random_numbers(d, "wgmma C", count)
    else:
        high = 2**31 - 20000 if wanted.tail == ".satfinite" else 50
        whole = integers("wgmma C", -50, 51, count)
        addend = encode(np.where(np.arange(count) % 5, whole, np.sign(whole) * high), d)
    return np.concatenate([left, right]), registers.view(np.uint32), addend.view(np.uint32)
