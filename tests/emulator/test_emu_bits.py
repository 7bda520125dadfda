"""Logic, shifts, bit fields, moves and selections against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import compute, integers, same_bits

UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def expect(fn, dtype, *columns):
    bits = np.dtype(dtype).itemsize * 8
    rows = zip(*(c.tolist() for c in columns), strict=True)
    raw = np.array([int(fn(*row)) & ((1 << bits) - 1) for row in rows], f"u{bits // 8}")
    return raw.view(dtype)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(rng, bits):
    dtype = UNSIGNED[bits]
    a, b = integers(rng, dtype), integers(rng, dtype)
    same_bits(compute(f"and.b{bits} %d, %a, %b;", a, b, out=dtype), a & b)
    same_bits(compute(f"or.b{bits} %d, %a, %b;", a, b, out=dtype), a | b)
    same_bits(compute(f"xor.b{bits} %d, %a, %b;", a, b, out=dtype), a ^ b)
    same_bits(compute(f"not.b{bits} %d, %a;", a, out=dtype), ~a)
    same_bits(compute(f"cnot.b{bits} %d, %a;", a, out=dtype), a == 0)


@pytest.mark.parametrize(
    "table", [0x80, 0xFE, 0x96, 0xF8, 0xEA, 0x78, 0xCA, 0xE8, 0x1B, 0x00, 0xFF]
)
def test_lop3(rng, table):
    a, b, c = (integers(rng, np.uint32, 100) for _ in range(3))

    def bitwise(x, y, z):
        return sum(
            (table >> ((x >> k & 1) * 4 + (y >> k & 1) * 2 + (z >> k & 1)) & 1) << k
            for k in range(32)
        )

    got = compute(f"lop3.b32 %d, %a, %b, %c, 0x{table:x};", a, b, c)
    same_bits(got, expect(bitwise, np.uint32, a, b, c))


def test_lop3_with_predicate(rng):
    a, b, c = (integers(rng, np.uint32) for _ in range(3))
    body = (
        "setp.eq.u32 %q1, %a, 0; lop3.or.b32 %d|%q2, %a, %b, %c, 0x80, %q1; selp.u32 %e, 1, 0, %q2;"
    )
    value, holds = compute(body, a, b, c, outs=2)
    same_bits(value, a & b & c)
    same_bits(holds, ((a & b & c) != 0) | (a == 0))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp(rng, bits):
    dtype, signed = UNSIGNED[bits], np.dtype(f"i{bits // 8}")
    a = integers(rng, dtype)
    n = rng.choice(
        np.array([0, 1, 5, 15, 16, 31, 32, 33, 63, 64, 65, 255, 2**31, 2**32 - 1], np.uint32),
        a.size,
    )
    same_bits(compute(f"shl.b{bits} %d, %a, %b;", a, n, out=dtype),
              expect(lambda x, k: x << k if k < bits else 0, dtype, a, n))  # fmt: skip
    same_bits(compute(f"shr.u{bits} %d, %a, %b;", a, n, out=dtype),
              expect(lambda x, k: x >> min(k, bits), dtype, a, n))  # fmt: skip
    same_bits(compute(f"shr.s{bits} %d, %a, %b;", a, n, out=signed),
              expect(lambda x, k: x >> min(k, bits), signed, a.view(signed), n))  # fmt: skip


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts(rng, side, mode):
    a, b = integers(rng, np.uint32), integers(rng, np.uint32)
    n = rng.integers(0, 70, a.size, np.uint32)

    def funnel(low, high, k):
        k = k & 31 if mode == "wrap" else min(k, 32)
        both = high << 32 | low
        return both << k >> 32 if side == "l" else both >> k

    got = compute(f"shf.{side}.{mode}.b32 %d, %a, %b, %c;", a, b, n)
    same_bits(got, expect(funnel, np.uint32, a, b, n))


def bfe(bits, signed):
    """The ISA's own pseudocode."""

    def run(a, b, c):
        msb, pos, length = bits - 1, b & 0xFF, c & 0xFF
        raw = a & ((1 << bits) - 1)
        sign = 0 if not signed or length == 0 else raw >> min(pos + length - 1, msb) & 1
        d = 0
        for i in range(msb + 1):
            bit = raw >> (pos + i) & 1 if i < length and pos + i <= msb else sign
            d |= bit << i
        return d

    return run


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(rng, name):
    bits, signed = int(name[1:]), name[0] == "s"
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    a = integers(rng, dtype)
    p, n = (rng.integers(0, 300, a.size, np.uint32) for _ in range(2))
    p[::2], n[::2] = p[::2] % (bits + 2), n[::2] % (bits + 2)
    got = compute(f"bfe.{name} %d, %a, %b, %c;", a, p, n, out=dtype)
    same_bits(got, expect(bfe(bits, signed), dtype, a, p, n))


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(rng, bits):
    dtype = UNSIGNED[bits]
    a, b = integers(rng, dtype), integers(rng, dtype)
    p, n = (rng.integers(0, 300, a.size, np.uint32) for _ in range(2))
    p[::2], n[::2] = p[::2] % (bits + 2), n[::2] % (bits + 2)

    def bfi(x, y, pos, length):
        d = y
        for i in range(length & 0xFF):
            if (pos & 0xFF) + i < bits:
                at = (pos & 0xFF) + i
                d = d & ~(1 << at) | (x >> i & 1) << at
        return d

    got = compute(f"bfi.b{bits} %d, %a, %b, %c, %f;", a, b, p, n, out=dtype)
    same_bits(got, expect(bfi, dtype, a, b, p, n))


@pytest.mark.parametrize("bits", [32, 64])
def test_counting(rng, bits):
    a = integers(rng, UNSIGNED[bits])
    a[:3] = 0
    text = f"{{:0{bits}b}}"
    same_bits(compute(f"popc.b{bits} %d, %a;", a), expect(lambda x: x.bit_count(), np.uint32, a))
    same_bits(compute(f"clz.b{bits} %d, %a;", a),
              expect(lambda x: bits - x.bit_length(), np.uint32, a))  # fmt: skip
    same_bits(compute(f"brev.b{bits} %d, %a;", a, out=UNSIGNED[bits]),
              expect(lambda x: int(text.format(x)[::-1], 2), UNSIGNED[bits], a))  # fmt: skip
    same_bits(compute(f"bfind.u{bits} %d, %a;", a),
              expect(lambda x: x.bit_length() - 1, np.uint32, a))  # fmt: skip
    same_bits(compute(f"bfind.shiftamt.u{bits} %d, %a;", a),
              expect(lambda x: bits - x.bit_length() if x else -1, np.uint32, a))  # fmt: skip
    signed = a.view(f"i{bits // 8}")
    want = expect(lambda x: (x if x >= 0 else ~x).bit_length() - 1, np.uint32, signed)
    same_bits(compute(f"bfind.s{bits} %d, %a;", signed), want)


def pick_bytes(a, b, nibbles):
    pool = [(b << 32 | a) >> (8 * k) & 0xFF for k in range(8)]
    chosen = [pool[n & 7] if not n & 8 else 0xFF * (pool[n & 7] >> 7) for n in nibbles]
    return sum(byte << (8 * k) for k, byte in enumerate(chosen))


def test_permute_by_register(rng):
    a, b, s = (integers(rng, np.uint32) for _ in range(3))
    want = expect(
        lambda x, y, z: pick_bytes(x, y, [z >> 4 * k & 15 for k in range(4)]), np.uint32, a, b, s
    )
    same_bits(compute("prmt.b32 %d, %a, %b, %c;", a, b, s), want)


@pytest.mark.parametrize("selector", [0x5410, 0x7632, 0x3210, 0x0123, 0xBA98, 0x4440])
def test_permute_by_constant(rng, selector):
    a, b = integers(rng, np.uint32), integers(rng, np.uint32)
    nibbles = [selector >> 4 * k & 15 for k in range(4)]
    got = compute(f"prmt.b32 %d, %a, %b, 0x{selector:x};", a, b)
    same_bits(got, expect(lambda x, y: pick_bytes(x, y, nibbles), np.uint32, a, b))


# The table of the ISA, byte 0 first.
MODES = {
    "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
    "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}


@pytest.mark.parametrize("mode", MODES)
def test_permute_modes(rng, mode):
    a, b, s = (integers(rng, np.uint32, 200) for _ in range(3))
    want = expect(lambda x, y, z: pick_bytes(x, y, MODES[mode][z & 3]), np.uint32, a, b, s)
    same_bits(compute(f"prmt.b32.{mode} %d, %a, %b, %c;", a, b, s), want)


def test_masks_and_extensions(rng):
    p, n = (rng.integers(0, 40, 500, np.uint32) for _ in range(2))
    same_bits(compute("bmsk.clamp.b32 %d, %a, %b;", p, n),
              expect(lambda x, y: ((1 << min(y, 32)) - 1) << x, np.uint32, p, n))  # fmt: skip
    same_bits(compute("bmsk.wrap.b32 %d, %a, %b;", p, n),
              expect(lambda x, y: ((1 << (y & 31)) - 1) << (x & 31), np.uint32, p, n))  # fmt: skip
    a = integers(rng, np.int32, 500)

    def extend(x, y):
        y = min(y, 32)
        x &= (1 << y) - 1
        return x - (1 << y) if y and x >> (y - 1) else x

    same_bits(compute("szext.clamp.s32 %d, %a, %b;", a, n, out="i4"),
              expect(extend, np.int32, a, n))  # fmt: skip
    u = a.view(np.uint32)
    want = expect(lambda x, y: x & ((1 << min(y, 32)) - 1), np.uint32, u, n)
    same_bits(compute("szext.clamp.u32 %d, %a, %b;", u, n), want)


def test_find_nth_set():
    mask = np.array([0b10110100] * 5, np.uint32)
    base = np.array([3, 3, 3, 2, 7], np.uint32)
    offset = np.array([1, 2, -1, 0, 4], np.int32)
    got = compute("fns.b32 %d, %a, %b, %c;", mask, base, offset)
    assert got.tolist() == [4, 5, 2, 2, 0xFFFFFFFF]


def test_selections(rng):
    a, b = integers(rng, np.uint64), integers(rng, np.uint64)
    c = integers(rng, np.int32)
    f = c.view(np.float32)
    same_bits(compute("slct.u64.s32 %d, %a, %b, %c;", a, b, c, out="u8"), np.where(c >= 0, a, b))
    same_bits(compute("slct.b64.f32 %d, %a, %b, %c;", a, b, f, out="u8"), np.where(f >= 0, a, b))
    body = "setp.lt.s32 %q1, %c, 0; selp.b64 %d, %a, 17, %q1;"
    same_bits(compute(body, a, b, c, out="u8"), np.where(c < 0, a, 17))


def test_packing_and_unpacking(rng):
    a, b = integers(rng, np.uint64), integers(rng, np.uint64)
    body = (
        ".reg .b32 l, h, m; .reg .b16 s<4>; .reg .b8 y<4>; .reg .b128 w;"
        "mov.b64 {l, h}, %a; mov.b64 {s0, s1, s2, s3}, %b; mov.b32 m, {s3, s0};"
        "mov.b32 {y0, y1, y2, y3}, l; mov.b32 l, {y3, y2, y1, y0};"
        "mov.b64 %d, {l, m}; mov.b128 w, {%d, %a}; mov.b128 {_, %e}, w;"
    )
    got, again = compute(body, a, b, out="u8", outs=2)
    low = (a & 0xFFFFFFFF).astype(np.uint32).byteswap()
    high = (b >> 48 | (b & 0xFFFF) << 16).astype(np.uint64)
    same_bits(got, low.astype(np.uint64) | high << 32)
    same_bits(again, a)


def test_swapping_halves_of_one_register(rng):
    a = integers(rng, np.uint32)
    body = ".reg .b16 l, h; mov.b32 {l, h}, %a; mov.b32 %d, {h, l};"
    same_bits(compute(body, a), a >> 16 | a << 16)


def test_inner_scopes_hide_outer_names(rng):
    a = integers(rng, np.uint32, 64)
    body = (
        ".reg .b32 x; mov.b32 x, %a;"
        "{ .reg .b32 x; mov.b32 x, 1; add.u32 %d, %a, x; bra DONE; mov.b32 %d, 0; DONE: }"
        "{ .reg .b32 x; mov.b32 x, 2; add.u32 %d, %d, x; bra DONE; mov.b32 %d, 0; DONE: }"
        "sub.u32 %e, %d, x;"
    )
    got, rest = compute(body, a, outs=2)
    same_bits(got, a + 3)
    assert (rest == 3).all()


def test_constant_expressions():
    a = np.zeros(4, np.uint32)
    body = "mov.u32 %d, (1 << 4 | 3) * 2 - 0x10 / 4; mov.u32 %e, ~0U & 0b101;"
    got, other = compute(body, a, outs=2)
    assert (got == 34).all()
    assert (other == 5).all()


def test_predicated_alu_keeps_the_rest(rng):
    a, b = integers(rng, np.int32), integers(rng, np.int32)
    body = "mov.b32 %d, %b; setp.gt.s32 %q1, %a, 0; @%q1 add.s32 %d, %a, %b; @!%q1 neg.s32 %d, %d;"
    same_bits(compute(body, a, b, out="i4"), np.where(a > 0, a + b, -b))


def test_predicate_logic(rng):
    a, b = integers(rng, np.int32), integers(rng, np.int32)
    body = (
        "setp.gt.s32 %q1, %a, 0; setp.gt.s32 %q2, %b, 0; xor.pred %q3, %q1, %q2;"
        "not.pred %q4, %q3; and.pred %q5, %q4, %q1; mov.pred %q6, %q5; selp.u32 %d, 1, 0, %q6;"
    )
    same_bits(compute(body, a, b), (a > 0) & (b > 0))
