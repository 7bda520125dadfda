"""wgmma against float64 NumPy, with operands laid out by an independent layout algebra."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import ptx_kernel
from mma_kernels import (
    COMMIT,
    FENCE,
    LOAD_A,
    NUMPY,
    START,
    WAIT,
    Operand,
    issue,
    one_wgmma,
    pack_a,
    pack_accumulator,
    registers,
    run_wgmma,
    shared_image,
    unpack_accumulator,
)

from gpukit import emulator
from gpukit.emulator.errors import UnsupportedInstructionError
from gpukit.emulator.policies import POLICIES

MODES = ("none", "32", "64", "128")
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


def small(rng, shape, type_):
    """Integers that every format holds exactly."""
    low = 0 if type_ == "u8" else -4
    return rng.integers(low, 5, shape).astype(NUMPY[type_])


def after(end):
    """The next place for an operand."""
    return -(-end // 1024) * 1024


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def multiply(a, b, c, types, tail, **options):
    """D of one wgmma; ``a`` is an Operand, or a matrix to pass in registers."""
    d_type, a_type, b_type = types
    n, dtype = b.values.shape[0], NUMPY[d_type]
    count = n * dtype.itemsize // 8
    in_registers = not isinstance(a, Operand)
    text = one_wgmma(
        f"m64n{n}k{K[a_type]}.{d_type}.{a_type}.{b_type}", count,
        registers("a", 4) if in_registers else hex(a.word), hex(b.word), tail=tail,
    )  # fmt: skip
    load = ""
    if in_registers:
        load = LOAD_A
    image = shared_image(b) if in_registers else shared_image(a, b)
    a_words = pack_a(a) if in_registers else None
    d, counters = run_wgmma(load + text, image, pack_accumulator(c), a_words, **options)
    return unpack_accumulator(d, dtype, (64, n)), counters


# Layouts


@pytest.mark.parametrize("k_majors", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("a_mode", MODES)
@pytest.mark.parametrize("b_mode", MODES)
def test_swizzles_and_majors(rng, a_mode, b_mode, k_majors):
    a = Operand(small(rng, (64, 16), "bf16"), a_mode, k_majors[0])
    b = Operand(small(rng, (72, 16), "bf16"), b_mode, k_majors[1], start=after(a.end))
    c = rng.integers(-9, 9, (64, 72)).astype(np.float32)
    tail = f", 1, 1, {int(not k_majors[0])}, {int(not k_majors[1])}"
    d, counters = multiply(a, b, c, ("f32", "bf16", "bf16"), tail)
    assert (d == product(a.values, b.values) + c).all()
    assert counters.extra["flops bf16"] == 2 * 64 * 72 * 16
    assert counters.extra["wgmma shared wavefronts"] == (64 + 72) * 32 // 128


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k_major", [True, False])
def test_every_element_sits_where_the_layout_algebra_says(mode, k_major):
    """Unique integers, picked out by a unit matrix in A."""
    values = np.arange(256 * 16).reshape(256, 16).astype(np.float16)
    values = np.where(values > 2048, values - 4096, values).astype(np.float16)  # exact, unique
    eye = np.zeros((64, 16), np.float16)
    eye[np.arange(16), np.arange(16)] = 1
    b = Operand(values, mode, k_major)
    d, _ = multiply(eye, b, np.zeros((64, 256), np.float32), ("f32", "f16", "f16"),
                    f", 1, 1, {int(not k_major)}")  # fmt: skip
    assert (values.astype(np.float32) == d[:16].T).all()
    assert not d[16:].any()


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(rng, n):
    mode = MODES[n // 8 % 4]
    a = small(rng, (64, 16), "f16")
    b = Operand(small(rng, (n, 16), "f16"), mode, n % 16 == 0)
    c = rng.integers(-9, 9, (64, n)).astype(np.float32)
    d, _ = multiply(a, b, c, ("f32", "f16", "f16"), f", 1, 1, {int(n % 16 != 0)}")
    assert (d == product(a, b.values) + c).all()


@pytest.mark.parametrize("n", [8, 16, 24, 32, *range(48, 257, 16)])
def test_every_n_of_integers(rng, n):
    a = rng.integers(-128, 128, (64, 32)).astype(np.int8)
    b = Operand(rng.integers(-128, 128, (n, 32)).astype(np.int8), MODES[n // 8 % 4])
    c = rng.integers(-(2**31), 2**31 - 1, (64, n)).astype(np.int32)
    d, _ = multiply(a, b, c, ("s32", "s8", "s8"), "")
    assert (d == (product(a, b.values).astype(np.int64) + c).astype(np.int32)).all()


@pytest.mark.parametrize(("mode", "k_major", "lbo", "sbo"), [
    ("none", True, 128, 256),  # core matrices of a row group side by side
    ("none", True, 4096, 144),  # padded rows of core matrices
    ("none", False, 2048, 128), ("none", False, 128, 256),
    ("32", True, 0, 512), ("64", True, 16, 1024), ("128", True, 0, 2048),
    ("32", False, 256, 4096), ("64", False, 2048, 512), ("128", False, 8192, 1024),
    ("128", False, 1024, 4096),
])  # fmt: skip
def test_strides(rng, mode, k_major, lbo, sbo):
    values = small(rng, (128, 16), "bf16")
    b = Operand(values, mode, k_major, lbo=lbo, sbo=sbo)
    a, c = small(rng, (64, 16), "bf16"), np.zeros((64, 128), np.float32)
    d, _ = multiply(a, b, c, ("f32", "bf16", "bf16"), f", 1, 1, {int(not k_major)}")
    assert (d == product(a, values)).all()


@pytest.mark.parametrize(("mode", "shift"), [("128", s) for s in (32, 64, 96)] + [("64", 32)])
def test_start_inside_a_swizzle_atom(rng, mode, shift):
    """A tile with several K steps to a swizzled row: the step adds 32 bytes to the start."""
    a = Operand(small(rng, (64, 16), "bf16"), mode, shift=shift)
    b = Operand(small(rng, (96, 16), "bf16"), mode, start=after(a.end), shift=shift)
    c = np.zeros((64, 96), np.float32)
    d, _ = multiply(a, b, c, ("f32", "bf16", "bf16"), ", 1, 1, 0, 0")
    assert (d == product(a.values, b.values)).all()


def test_k_loop_over_a_128_byte_row(rng):
    """64 columns of bf16 in one swizzled tile: four steps of +32 bytes give the whole product."""
    a, b = small(rng, (64, 64), "bf16"), small(rng, (128, 64), "bf16")
    steps = range(4)
    parts_a = [Operand(a[:, 16 * s : 16 * s + 16], shift=32 * s) for s in steps]
    base = START + 64 * 128
    parts_b = [Operand(b[:, 16 * s : 16 * s + 16], start=base, shift=32 * s) for s in steps]
    text = f"{FENCE};\n" + "".join(
        issue("m64n128k16.f32.bf16.bf16", 64, hex(parts_a[0].word + 2 * s),
              hex(parts_b[0].word + 2 * s), scale=str(int(s > 0)))
        for s in steps
    )  # fmt: skip
    garbage = pack_accumulator(np.full((64, 128), np.nan, np.float32))
    for policy in POLICIES:
        d, counters = run_wgmma(f"{text}{COMMIT};\n{WAIT} 0;\n", shared_image(*parts_a, *parts_b),
                                garbage, policy=policy)  # fmt: skip
        assert (unpack_accumulator(d, np.dtype("f4"), (64, 128)) == product(a, b)).all()
        assert counters.extra["wgmma"] == 4
        assert counters.extra["flops bf16"] == 2 * 64 * 128 * 64


def test_base_offset_shifts_the_pattern(rng):
    """A pattern that starts 384 bytes above a multiple of 1024."""
    b = Operand(small(rng, (8, 16), "bf16"), "128", start=START)
    image = np.zeros(2048, np.uint8)
    part = shared_image(b)
    image[384 : 384 + part.size] = part
    word = b.word + (384 >> 4) + (3 << 49)
    a = small(rng, (64, 16), "bf16")
    text = LOAD_A + one_wgmma("m64n8k16.f32.bf16.bf16", 4, registers("a", 4), hex(word),
                              tail=", 1, 1, 0")  # fmt: skip
    d, _ = run_wgmma(text, image, pack_accumulator(np.zeros((64, 8), np.float32)), pack_a(a))
    assert (unpack_accumulator(d, np.dtype("f4"), (64, 8)) == product(a, b.values)).all()


# Types


TYPES = [
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
    *[(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
    *[("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")],
]  # fmt: skip


def tail_of(a_type, in_registers, negative=(1, 1)):
    if a_type in ("s8", "u8"):
        return ""
    trans = {True: ", 0", False: ", 0, 0"}[in_registers] if a_type in ("f16", "bf16") else ""
    return f", {negative[0]}, {negative[1]}{trans}"


@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("types", TYPES)
def test_exact_sums(rng, types, in_registers):
    d_type, a_type, b_type = types
    a, values = (small(rng, (rows, K[a_type]), t) for rows, t in ((64, a_type), (48, b_type)))
    if not in_registers:
        a = Operand(a, "64" if a_type == "tf32" else "32")
    b = Operand(values, "128", start=after(START if in_registers else a.end))
    c = rng.integers(-9, 9, (64, 48)).astype(NUMPY[d_type])
    d, _ = multiply(a, b, c, types, tail_of(a_type, in_registers))
    left = a if in_registers else a.values
    assert (d == product(left, values) + c).all()


@pytest.mark.parametrize("types", TYPES[:12])
def test_random_values(rng, types):
    """One rounding to D's type, to nearest, of the exact sum."""
    d_type, a_type, b_type = types
    a = rng.standard_normal((64, K[a_type])).astype(NUMPY[a_type])
    b = Operand(rng.standard_normal((80, K[a_type])).astype(NUMPY[b_type]))
    c = rng.standard_normal((64, 80)).astype(NUMPY[d_type])
    d, _ = multiply(a, b, c, types, tail_of(a_type, True))
    cut = (
        (lambda x: (x.view(np.uint32) & ~np.uint32(8191)).view(np.float32))
        if a_type == "tf32"
        else (lambda x: x)
    )
    exact = product(cut(a), cut(b.values)) + c.astype(np.float64)
    assert (d == exact.astype(NUMPY[d_type])).all()


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_negated_operands(rng, signs):
    a = Operand(small(rng, (64, 16), "f16"))
    b = Operand(small(rng, (16, 16), "f16"), start=after(a.end))
    c = rng.integers(-9, 9, (64, 16)).astype(np.float32)
    d, _ = multiply(a, b, c, ("f32", "f16", "f16"), tail_of("f16", False, signs))
    assert (d == signs[0] * signs[1] * product(a.values, b.values) + c).all()


@pytest.mark.parametrize("scale", ["0", "1", "%q1", "!%q1"])
def test_scale_d(rng, scale):
    a = Operand(small(rng, (64, 32), "e4m3"))
    b = Operand(small(rng, (24, 32), "e4m3"), start=after(a.end))
    c = rng.integers(-9, 9, (64, 24)).astype(np.float32)
    text = "setp.ne.u32 %q1, 1, 1;\n" + one_wgmma(
        "m64n24k32.f32.e4m3.e4m3", 12, hex(a.word), hex(b.word), scale, ", 1, 1"
    )
    d, _ = run_wgmma(text, shared_image(a, b), pack_accumulator(c))
    kept = c if scale in ("1", "!%q1") else 0
    assert (unpack_accumulator(d, c.dtype, c.shape) == product(a.values, b.values) + kept).all()


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_overflow(saturate):
    a, b = np.full((64, 32), 127, np.int8), Operand(np.full((8, 32), 127, np.int8))
    c = np.full((64, 8), 2**31 - 1000, np.int32)
    form = "m64n8k32.s32.s8.s8" if not saturate else "m64n8k32.satfinite.s32.s8.s8"
    text = LOAD_A + one_wgmma(form, 4, registers("a", 4), hex(b.word), tail="")
    d, _ = run_wgmma(text, shared_image(b), pack_accumulator(c), pack_a(a))
    exact = 2**31 - 1000 + 32 * 127 * 127
    want = 2**31 - 1 if saturate else exact - 2**32
    assert (d.view(np.int32) == want).all()


def test_single_bits(rng):
    """A AND B, counted over 256 bits."""
    a, b = (rng.integers(0, 256, (rows, 32)).astype(np.uint8) for rows in (64, 16))
    placed = Operand(b)
    c = rng.integers(-99, 99, (64, 16)).astype(np.int32)
    text = LOAD_A + one_wgmma("m64n16k256.s32.b1.b1.and.popc", 8, registers("a", 4),
                              hex(placed.word), tail="")  # fmt: skip
    d, _ = run_wgmma(text, shared_image(placed), pack_accumulator(c), pack_a(a))
    ones = np.unpackbits(a[:, None] & b[None], axis=2).sum(axis=2)
    assert (unpack_accumulator(d, c.dtype, c.shape) == ones + c).all()


def test_not_a_number_and_infinity():
    a = np.zeros((64, 16), np.float16)
    a[0, 0], a[1, 0], a[2, 0] = np.nan, np.inf, 1
    b = Operand(np.ones((8, 16), np.float16))
    d, _ = multiply(a, b, np.zeros((64, 8), np.float32), ("f32", "f16", "f16"), ", 1, 1, 0")
    assert (d[0].view(np.uint32) == 0x7FFFFFFF).all()
    assert (d[1] == np.inf).all()
    assert (d[2] == 1).all()


# Order


@pytest.mark.parametrize("policy", POLICIES)
def test_chain_of_groups(rng, policy):
    """wgmmas of a warpgroup run in order; wait_group 1 leaves the newest group pending."""
    a, b = small(rng, (64, 16), "bf16"), Operand(small(rng, (16, 16), "bf16"))
    one = issue("m64n16k16.f32.bf16.bf16", 8, registers("a", 4), hex(b.word), tail=", 1, 1, 0")
    text = LOAD_A + f"{FENCE};\n" + f"{one}{COMMIT};\n{WAIT} 1;\n" * 5 + f"{WAIT} 0;\n"
    zero = pack_accumulator(np.zeros((64, 16), np.float32))
    d, counters = run_wgmma(text, shared_image(b), zero, pack_a(a), policy=policy)
    got = unpack_accumulator(d, np.dtype("f4"), (64, 16))
    assert (got == 5 * product(a, b.values)).all()
    assert counters.instructions["wgmma"] == 4 * 5
    assert counters.extra["wgmma"] == 5


@pytest.mark.parametrize("policy", POLICIES)
def test_moves_of_accumulators_in_flight(rng, policy):
    """A mov of an accumulator in flight renames it: the next wgmma carries on from there."""
    a, b = small(rng, (64, 16), "bf16"), Operand(small(rng, (8, 16), "bf16"))
    form = "m64n8k16.f32.bf16.bf16"
    moves = "".join(f"mov.b32 %t{10 + i}, %d{i};\n" for i in range(4))
    back = "".join(f"mov.b32 %d{i}, %t{10 + i};\n" for i in range(4))
    second = issue(form, 4, registers("a", 4), hex(b.word), tail=", 1, 1, 0")
    second = second.replace(registers("d", 4), "{%t10, %t11, %t12, %t13}")
    text = (
        LOAD_A + f"{FENCE};\n" + issue(form, 4, registers("a", 4), hex(b.word), tail=", 1, 1, 0")
        + f"{COMMIT};\n{moves}{second}{COMMIT};\n{WAIT} 0;\n{back}"
    )  # fmt: skip
    zero = pack_accumulator(np.zeros((64, 8), np.float32))
    d, _ = run_wgmma(text, shared_image(b), zero, pack_a(a), policy=policy)
    got = unpack_accumulator(d, np.dtype("f4"), (64, 8))
    assert (got == 2 * product(a, b.values)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_rescaled_accumulators(rng, policy, seed):
    """Each warp rescales its accumulators as soon as it may; the others may be ahead or behind."""
    a, b = small(rng, (64, 16), "bf16"), Operand(small(rng, (16, 16), "bf16"))
    one = issue("m64n16k16.f32.bf16.bf16", 8, registers("a", 4), hex(b.word), tail=", 1, 1, 0")
    scale = "".join(f"mul.f32 %d{i}, %d{i}, 0f40000000;\n" for i in range(8))
    step = f"{FENCE};\n{one}{one}{COMMIT};\n{WAIT} 0;\n{scale}"
    zero = pack_accumulator(np.zeros((64, 16), np.float32))
    d, _ = run_wgmma(LOAD_A + step * 4, shared_image(b), zero, pack_a(a), policy=policy, seed=seed)
    got = unpack_accumulator(d, np.dtype("f4"), (64, 16))
    assert (got == 2 * (2 + 4 + 8 + 16) * product(a, b.values)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_two_accumulators_take_turns(rng, policy):
    a, b = small(rng, (64, 16), "bf16"), Operand(small(rng, (16, 16), "bf16"))
    one = issue("m64n16k16.f32.bf16.bf16", 8, registers("a", 4), hex(b.word), tail=", 1, 1, 0")
    upper = one.replace(registers("d", 8), "{" + ", ".join(f"%d{i}" for i in range(8, 16)) + "}")
    step = f"{one}{COMMIT};\n{upper}{upper}{COMMIT};\n{WAIT} 1;\n"
    zero = np.zeros((128, 16), np.float32)
    text = f"{LOAD_A}{FENCE};\n{step * 3}{WAIT} 0;\n"
    d, _ = run_wgmma(text, shared_image(b), zero, pack_a(a), policy=policy)
    for half, times in ((d[:, :8], 3), (d[:, 8:], 6)):
        got = unpack_accumulator(half, np.dtype("f4"), (64, 16))
        assert (got == times * product(a, b.values)).all()


# Refused before anything runs


@pytest.mark.parametrize(("text", "why"), [
    (one_wgmma("m64n12k16.f32.f16.f16", 6, "0", "0"), "N = 12"),
    (one_wgmma("m64n264k16.f32.f16.f16", 132, "0", "0"), "N = 264"),
    (one_wgmma("m64n40k32.s32.s8.s8", 20, "0", "0", tail=""), "N = 40"),
    (one_wgmma("m64n8k8.f32.f16.f16", 4, "0", "0"), "K of .f16 is 16"),
    (one_wgmma("m64n8k16.f16.bf16.bf16", 2, "0", "0"), "D of .bf16"),
    (one_wgmma("m64n8k16.f32.f16.bf16", 4, "0", "0"), "A is .f16 but B is .bf16"),
    (one_wgmma("m64n8k16.f32.f16.f16", 5, "0", "0"), "5 registers, not 4"),
    (one_wgmma("m64n8k8.f32.tf32.tf32", 4, "0", "0"), "needs 2 immediates"),
    (one_wgmma("m64n8k16.f32.f16.f16", 4, "0", "0", tail=", 2, 1, 0, 0"), "1 or -1"),
    (f"{WAIT} 9;", "0 to 7"),
    (one_wgmma("sp.m64n8k32.f32.f16.f16", 4, "0", "0").replace("aligned.sp", "aligned"), "K of"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%d0}, 0, 0, 0, 0, 1, 1, 1, 0, 0;",
     "sparse"),
])  # fmt: skip
def test_refused(text, why):
    with pytest.raises(UnsupportedInstructionError, match=why):
        run_wgmma(text, np.zeros(1024, np.uint8), np.zeros((128, 132), np.uint32))


def test_needs_the_right_target():
    with pytest.raises(UnsupportedInstructionError, match=r"needs \.target sm_90a"):
        emulator.run(
            ptx_kernel(f".reg .b32 %d<4>; {issue('m64n8k16.f32.f16.f16', 4, '0', '0')} ret;")
            .replace("sm_90a", "sm_90"), 1, 128, [],
        )  # fmt: skip
