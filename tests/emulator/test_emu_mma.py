"""mma.sync: every shape and type against NumPy, with fragments from the layout algebra."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import ptx_kernel
from mma_kernels import NUMPY, pack_a, pack_b, registers

from gpukit import emulator
from gpukit.emulator.errors import CollectiveError, DeadlockError, UnsupportedInstructionError
from gpukit.layout import fragments

PARAMS = ", ".join(f".param .u64 {name}" for name in "abcd")


def loads(name, count, bits=32):
    """Load ``count`` registers of each thread from the array of that name."""
    step = bits // 8
    text = f"ld.param.u64 %p0, [{name}]; mad.wide.u32 %p0, %t0, {step * count}, %p0;\n"
    return text + "".join(
        f"ld.global.b{bits} %{name}{i}, [%p0+{step * i}];\n" for i in range(count)
    )


def stores(count, bits=32):
    step = bits // 8
    text = f"ld.param.u64 %p0, [d]; mad.wide.u32 %p0, %t0, {step * count}, %p0;\n"
    return text + "".join(f"st.global.b{bits} [%p0+{step * i}], %d{i};\n" for i in range(count))


def run_mma(opcode, a, b, c, d_count, bits=32, warps=1):
    """Fragments in, D's registers [thread, register] out."""
    counts = {"a": a.shape[1], "b": b.shape[1], "c": c.shape[1]}
    text = ".reg .b64 %p<4>; .reg .b32 %t<4>; mov.u32 %t0, %tid.x;\n"
    text += "".join(f".reg .b{bits} %{n}<{k}>;\n" for n, k in {**counts, "d": d_count}.items())
    text += "".join(loads(name, count, bits) for name, count in counts.items())
    text += f"{opcode} " + ", ".join(
        registers(name, count) for name, count in [("d", d_count), *counts.items()]
    )
    text += ";\n" + stores(d_count, bits) + "ret;"
    d = np.zeros((32 * warps, d_count), f"u{bits // 8}")
    a, b, c = (np.ascontiguousarray(np.tile(x, (warps, 1))) for x in (a, b, c))
    result = emulator.run(ptx_kernel(text, PARAMS), 1, 32 * warps, [a, b, c, d])
    return d, result.counters


def accumulator(matrix):
    """C of 16 or 8 rows -> words [thread, register]."""
    if matrix.shape[0] == 8:  # the upper half of a 16-row fragment
        rows, columns = fragments.accumulator(16, 8)
        rows, columns = rows[:, :2], columns[:, :2]
    else:
        rows, columns = fragments.accumulator(16, 8)
    word = np.uint64 if matrix.dtype == np.float64 else np.uint32
    return np.ascontiguousarray(matrix[rows, columns]).view(word)


def matrix_of(words, dtype, rows):
    at = fragments.accumulator(16, 8)
    keep = slice(0, 2 if rows == 8 else 4)
    result = np.zeros((rows, 8), dtype)
    result[at[0][:, keep], at[1][:, keep]] = np.ascontiguousarray(words).view(dtype)
    return result


def small(rng, shape, type_):
    return rng.integers(0 if type_ == "u8" else -4, 5, shape).astype(NUMPY[type_])


FLOATS = [
    ("m16n8k8", "f32", "f16", "f16"), ("m16n8k8", "f16", "f16", "f16"),
    ("m16n8k16", "f32", "f16", "f16"), ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f32", "bf16", "bf16"), ("m16n8k16", "f32", "bf16", "bf16"),
    ("m16n8k4", "f32", "tf32", "tf32"), ("m16n8k8", "f32", "tf32", "tf32"),
    *[(s, d, a, b) for s in ("m16n8k16", "m16n8k32") for d in ("f32", "f16")
      for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
]  # fmt: skip
INTEGERS = [(s, "s32", a, b) for s in ("m8n8k16", "m16n8k16", "m16n8k32")
            for a in ("s8", "u8") for b in ("s8", "u8")]  # fmt: skip


def sizes(shape):
    m, k = shape[1:].split("n8k")
    return int(m), int(k)


def fragment_a(a):
    """A of 16 or 8 rows."""
    if a.shape[0] == 16:
        return pack_a(a)
    both = pack_a(np.concatenate([a, a]))
    return np.ascontiguousarray(both[:, ::2])


@pytest.mark.parametrize(("shape", "d_type", "a_type", "b_type"), FLOATS + INTEGERS)
def test_exact_sums(rng, shape, d_type, a_type, b_type):
    m, k = sizes(shape)
    a, b = small(rng, (m, k), a_type), small(rng, (8, k), b_type)
    c = rng.integers(-9, 10, (m, 8)).astype(NUMPY[d_type])
    words = accumulator(c)
    opcode = f"mma.sync.aligned.{shape}.row.col.{d_type}.{a_type}.{b_type}.{d_type}"
    d, counters = run_mma(opcode, fragment_a(a), pack_b(b), words, words.shape[1], warps=3)
    exact = a.astype(float) @ b.astype(float).T + c
    for warp in range(3):
        assert (matrix_of(d[32 * warp : 32 * warp + 32], c.dtype, m) == exact).all()
    assert counters.extra["mma.sync"] == 3
    family = {"e4m3": "f8", "e5m2": "f8", "s8": "i8", "u8": "i8"}.get(a_type, a_type)
    assert counters.extra[f"flops {family}"] == 3 * 2 * m * 8 * k
    assert counters.instructions["mma"] == 3


@pytest.mark.parametrize(("shape", "d_type", "a_type", "b_type"), FLOATS)
def test_random_values_are_rounded_once(rng, shape, d_type, a_type, b_type):
    m, k = sizes(shape)
    a, b = (rng.standard_normal((r, k)).astype(NUMPY[t]) for r, t in ((m, a_type), (8, b_type)))
    c = rng.standard_normal((m, 8)).astype(NUMPY[d_type])
    opcode = f"mma.sync.aligned.{shape}.row.col.{d_type}.{a_type}.{b_type}.{d_type}"
    words = accumulator(c)
    d, _ = run_mma(opcode, pack_a(a), pack_b(b), words, words.shape[1])
    if a_type == "tf32":
        a, b = ((x.view(np.uint32) & ~np.uint32(8191)).view(np.float32) for x in (a, b))
    exact = a.astype(float) @ b.astype(float).T + c.astype(float)
    assert (matrix_of(d, c.dtype, m) == exact.astype(c.dtype)).all()


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_overflow(saturate):
    a, b = np.full((16, 32), 255, np.uint8), np.full((8, 32), 255, np.uint8)
    c = np.full((16, 8), 2**31 - 100, np.int32)
    form = "satfinite." if saturate else ""
    opcode = f"mma.sync.aligned.m16n8k32.row.col.{form}s32.u8.u8.s32"
    d, _ = run_mma(opcode, pack_a(a), pack_b(b), accumulator(c), 4)
    exact = 2**31 - 100 + 32 * 255 * 255
    assert (d.view(np.int32) == (2**31 - 1 if saturate else exact - 2**32)).all()


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"])
def test_doubles(rng, shape):
    m, k = sizes(shape)
    a, b, c = (rng.integers(-99, 99, s).astype(float) for s in ((m, k), (8, k), (m, 8)))
    t, per = np.arange(32)[:, None], np.arange(m // 8 * k // 4)
    halves = m // 8
    left = a[t // 4 + 8 * (per % halves), t % 4 + 4 * (per // halves)].view(np.uint64)
    right = np.ascontiguousarray(b[t // 4, t % 4 + 4 * np.arange(k // 4)]).view(np.uint64)
    words = accumulator(c)
    opcode = f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"
    d, _ = run_mma(opcode, left, right, words, words.shape[1], bits=64)
    assert (matrix_of(d, np.dtype(float), m) == a @ b.T + c).all()


def nibbles(words, signed):
    """Eight 4-bit numbers of each uint32, as a further axis."""
    values = words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    values = values.astype(np.int64)
    return np.where(signed & (values > 7), values - 16, values)


@pytest.mark.parametrize("shape", ["m8n8k32", "m16n8k32", "m16n8k64"])
@pytest.mark.parametrize("a_type", ["s4", "u4"])
@pytest.mark.parametrize("b_type", ["s4", "u4"])
def test_four_bit_integers(rng, shape, a_type, b_type):
    m, k = sizes(shape)
    a = rng.integers(0, 2**32, (m, k // 8), np.uint32)  # rows of packed words
    b = rng.integers(0, 2**32, (8, k // 8), np.uint32)
    c = rng.integers(-99, 99, (m, 8)).astype(np.int32)
    words = accumulator(c)
    opcode = f"mma.sync.aligned.{shape}.row.col.s32.{a_type}.{b_type}.s32"
    d, _ = run_mma(opcode, fragment_a(a), pack_b(b), words, words.shape[1])
    left = nibbles(a, a_type == "s4").reshape(m, k)
    right = nibbles(b, b_type == "s4").reshape(8, k)
    assert (matrix_of(d, c.dtype, m) == left @ right.T + c).all()


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["and", "xor"])
def test_single_bits(rng, shape, operation):
    m, k = sizes(shape)
    a = rng.integers(0, 2**32, (m, k // 32), np.uint32)
    b = rng.integers(0, 2**32, (8, k // 32), np.uint32)
    c = rng.integers(-99, 99, (m, 8)).astype(np.int32)
    words = accumulator(c)
    opcode = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc"
    d, _ = run_mma(opcode, fragment_a(a), pack_b(b), words, words.shape[1])
    both = (np.bitwise_and if operation == "and" else np.bitwise_xor)(a[:, None], b[None])
    ones = np.unpackbits(both.view(np.uint8), axis=2).sum(axis=2, dtype=np.int64)
    assert (matrix_of(d, c.dtype, m) == ones + c).all()


# mma.m8n8k4: four 8 x 8 x 4 products; lane maps as the PTX manual words them


@pytest.mark.parametrize(("d_type", "c_type"), [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
@pytest.mark.parametrize("a_row", [True, False])
@pytest.mark.parametrize("b_row", [True, False])
def test_quad_pairs(rng, d_type, c_type, a_row, b_row):
    a, b = rng.integers(-4, 5, (4, 8, 4)).astype(np.float16), rng.integers(-4, 5, (4, 4, 8))
    b, c = b.astype(np.float16), rng.integers(-9, 9, (4, 8, 8)).astype(NUMPY[c_type])
    left, right = np.zeros((32, 4), np.float16), np.zeros((32, 4), np.float16)
    old = np.zeros((32, 8), c.dtype)
    for lane in range(32):
        which, high = lane % 16 // 4, 4 * (lane >= 16)
        for i in range(4):
            row, col = (lane % 4 + high, i) if a_row else (i + high, lane % 4)
            left[lane, i] = a[which, row, col]
            row, col = (lane % 4, i + high) if b_row else (i, lane % 4 + high)
            right[lane, i] = b[which, row, col]
        for i in range(8):
            old[lane, i] = c[(which, *quad_place(c_type, lane, i))]
    layout = f"{'row' if a_row else 'col'}.{'row' if b_row else 'col'}"
    opcode = f"mma.sync.aligned.m8n8k4.{layout}.{d_type}.f16.f16.{c_type}"
    count = 8 if d_type == "f32" else 4
    d, counters = run_mma(opcode, left.view(np.uint32), right.view(np.uint32),
                          old.view(np.uint32), count)  # fmt: skip
    got, exact = d.view(NUMPY[d_type]), a.astype(float) @ b.astype(float) + c
    for lane in range(32):
        for i in range(8):
            assert got[lane, i] == exact[(lane % 16 // 4, *quad_place(d_type, lane, i))]
    assert counters.extra["flops f16"] == 4 * 2 * 8 * 8 * 4


def quad_place(type_, lane, i):
    high = 4 * (lane >= 16)
    if type_ == "f16":
        return lane % 4 + high, i
    return (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)


# Refusals and misuse

A4, B2, C4 = registers("a", 4), registers("b", 2), registers("c", 4)
BODY = ".reg .b32 %a<4>, %b<2>, %c<4>; .reg .pred %q; .reg .b32 %t;\n"


@pytest.mark.parametrize(("text", "why"), [
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%c0}, {%a0}, {%b0}, {%c0}, %t, 0;",
     "sparse A"),
    (f"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {C4}, {A4}, {B2}, {C4};", "B .col"),
    (f"mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {C4}, {A4}, {B2}, {C4};", "shapes m8n8k4"),
    (f"mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {C4}, {A4}, {B2}, {C4};", "be .f32"),
    (f"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {C4}, {A4}, {B2}, {C4};", "B is .bf16"),
    (f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {C4}, {A4}, {B2}, {C4};", "same type"),
    (f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {C4}, {B2}, {B2}, {C4};",
     "has 2 registers, not 4"),
    (f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32 {C4}, {A4}, {B2}, {C4};",
     "not supported"),
])  # fmt: skip
def test_refused(text, why):
    with pytest.raises(UnsupportedInstructionError, match=why):
        emulator.run(ptx_kernel(f"{BODY}{text}\nret;"), 1, 32, [])


MMA = f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {C4}, {A4}, {B2}, {C4};"


def test_diverged_warp():
    split = "mov.u32 %t, %laneid; setp.lt.u32 %q, %t, 8;\n"
    with pytest.raises(CollectiveError, match="only lanes 0xffffff00"):
        emulator.run(ptx_kernel(f"{BODY}{split}@%q exit;\n{MMA}\nret;"), 1, 32, [])
    with pytest.raises(DeadlockError, match="lanes 0xffffff00 of its member mask"):
        text = f"{split}@!%q bra WAIT;\n{MMA}\nWAIT: bar.warp.sync -1;\nret;"
        emulator.run(ptx_kernel(BODY + text), 1, 32, [])
    emulator.run(ptx_kernel(f"{BODY}{split}@%q bra NEXT;\nNEXT: {MMA}\nret;"), 1, 32, [])
