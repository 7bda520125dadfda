"""tcgen05.ld and st: which cell goes to which register, and who may access which lanes.

The expected places are CUTLASS's copy traits (SM100_TMEM_LOAD_*): layouts from (thread, bit of its
registers) to the bit of a block of 16 or 32 lanes, repeated along the columns.
"""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_wrappers import tensor_source

from gpukit import emulator
from gpukit.emulator import errors
from gpukit.layout import tmem

REPEATS = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
COLUMNS = 256


def counts(shape):
    return [1 << n for n in range(8) if 1 << n <= REPEATS[shape]]


CASES = [(shape, n) for shape in REPEATS for n in counts(shape)]


def places(shape, count, split=0):
    """Rows and columns [register, thread]."""
    lanes, columns = tmem.loaded(shape, count, split)
    return lanes.T, columns.T


def instruction(kind, shape, count, registers, packing="", split=None):
    """Asm of one ld or st; registers %0.., address operand last (ld) or first (st)."""
    names = ", ".join(f"%{i + (kind == 'st')}" for i in range(registers))
    offset = "" if split is None else f", {split}"
    opcode = f"tcgen05.{kind}.sync.aligned.{shape}.x{count}{packing}.b32"
    if kind == "ld":
        return f"{opcode} {{{names}}}, [%{registers}]{offset};"
    return f"{opcode} [%0]{offset}, {{{names}}};"


def whole(kind):
    """Asm that moves 32 columns of a warp's lanes, as 32x32b."""
    names = ", ".join(f"%{i + (kind == 'st')}" for i in range(32))
    if kind == "st":
        values = ", ".join(f'"r"(v[{i}])' for i in range(32))
        text = f'"tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {{{names}}};" :: "r"(at), {values}'
    else:
        values = ", ".join(f'"=r"(v[{i}])' for i in range(32))
        text = f'"tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{names}}}, [%32];" : {values} : "r"(at)'
    return f'asm volatile({text} : "memory");'


KERNEL = r"""
// Tensor memory becomes in [128][256]; registers are loaded or stored; then it goes out.
extern "C" __global__ void k(const u32* in, u32* out, u32* registers) {
  __shared__ u32 slot;
  const int t = threadIdx.x, warp = t / 32;
  if (warp == 0) alloc<256>(&slot);
  __syncthreads();
  const u32 tmem = slot, own = tmem + (warp * 32 << 16);
  for (int c = 0; c < WRITTEN; c += 32) {
    u32 v[32], at = own + c;
    for (int i = 0; i < 32; i++) v[i] = in[t * 256 + c + i];
    STORE_ALL
  }
  wait_st();
  u32 r[COUNT];
  for (int half = 0; half < HALVES; half++) {
    u32 at = own + ADDRESS + (half * 16 << 16);
    for (int i = 0; i < COUNT; i++) r[i] = registers[(half * COUNT + i) * 128 + t];
    MOVE
    wait_ld();
    wait_st();
    for (int i = 0; i < COUNT; i++) registers[(half * COUNT + i) * 128 + t] = r[i];
  }
  for (int c = 0; c < 256; c += 32) {
    u32 v[32], at = own + c;
    LOAD_ALL
    wait_ld();
    for (int i = 0; i < 32; i++) out[t * 256 + c + i] = v[i];
  }
  __syncthreads();
  if (warp == 0) { relinquish(); dealloc<256>(tmem); }
}"""


def kernel(asm, registers, halves, at="0", written="256"):
    """The kernel around one ld or st."""
    text = KERNEL.replace("STORE_ALL", whole("st")).replace("LOAD_ALL", whole("ld"))
    text = text.replace("MOVE", asm).replace("COUNT", str(registers)).replace("ADDRESS", at)
    return tensor_source(text.replace("HALVES", str(halves)).replace("WRITTEN", written))


def move(kind, shape, count, packing="", split=None, at="0"):
    """Run one ld or st per 16 or 32 lanes of each warp.

    Returns what was in tensor memory before and after [128, 256], and the registers before and
    after [half, register, thread].
    """
    registers = count * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    halves = 1 if shape == "32x32b" else 2
    operands = ", ".join(f'"{"=r" if kind == "ld" else "r"}"(r[{i}])' for i in range(registers))
    text = instruction(kind, shape, count, registers, packing, split)
    operands = f'{operands} : "r"(at)' if kind == "ld" else f': "r"(at), {operands}'
    asm = f'asm volatile("{text}" : {operands} : "memory");'
    rng = np.random.default_rng(3)
    cells, before = (
        rng.integers(0, 1 << 32, shape, np.uint32)
        for shape in ((128, COLUMNS), (halves, registers, 128))
    )
    after, out = before.copy(), np.zeros_like(cells)
    source = kernel(asm, registers, halves, at)
    result = emulator.run(source, 1, 128, [cells, out, after], arch="sm_100a")
    return cells, out, before, after, result.counters


def blocks(shape, count, split=0):
    """(half, warp, rows, columns) of every block that ``move`` transfers."""
    rows, columns = places(shape, count, split)
    for half in range(1 if shape == "32x32b" else 2):
        for warp in range(4):
            yield half, warp, rows + 32 * warp + 16 * half, columns


def threads(warp):
    return slice(32 * warp, 32 * warp + 32)


@pytest.mark.parametrize(("shape", "count"), CASES)
def test_load(shape, count):
    split = 7 if shape == "16x32bx2" else None
    cells, out, _, got, _ = move("ld", shape, count, split=split)
    assert (out == cells).all()
    for half, warp, rows, columns in blocks(shape, count, split or 0):
        assert (got[half][:, threads(warp)] == cells[rows, columns]).all()


@pytest.mark.parametrize(("shape", "count"), CASES)
def test_store(shape, count):
    split = COLUMNS - count if shape == "16x32bx2" else None
    want, got, values, _, _ = move("st", shape, count, split=split)
    for half, warp, rows, columns in blocks(shape, count, split or 0):
        want[rows, columns] = values[half][:, threads(warp)]
    assert (got == want).all()


@pytest.mark.parametrize(("shape", "count"), [case for case in CASES if case[1] in (1, 4, 16)])
def test_packed(shape, count):
    """A register holds the low halves of columns 2c and 2c + 1."""
    split = 100 if shape == "16x32bx2" else None
    cells, _, _, got, _ = move("ld", shape, count, ".pack::16b", split)
    want, stored, values, _, _ = move("st", shape, count, ".unpack::16b", split)
    for half, warp, rows, columns in blocks(shape, count):
        columns = 2 * columns
        if split:
            columns = columns + split * (np.arange(32) // 16)
        low, high = cells[rows, columns] & 0xFFFF, cells[rows, columns + 1] & 0xFFFF
        assert (got[half][:, threads(warp)] == low + (high << 16)).all()
        mine = values[half][:, threads(warp)]
        want[rows, columns], want[rows, columns + 1] = mine & 0xFFFF, mine >> 16
    assert (stored == want).all()


def test_fragment_of_16x256b_is_that_of_an_mma_accumulator():
    """Thread t of mma.m16n8 holds rows t / 4 and t / 4 + 8, columns 2 (t % 4) and the next."""
    rows, columns = places("16x256b", 1)
    for t in range(32):
        group, pair = divmod(t, 4)
        want = [(group, 2 * pair), (group, 2 * pair + 1), (group + 8, 2 * pair),
                (group + 8, 2 * pair + 1)]  # fmt: skip
        assert list(zip(rows[:, t], columns[:, t], strict=True)) == want


def test_address_has_a_column():
    cells, _, _, got, _ = move("ld", "32x32b", 4, at="200")
    assert (got[0] == cells[:, 200:204].T).all()


def test_bytes_are_counted():
    counters = move("ld", "16x256b", 8)[4]
    assert counters.extra["tmem_store_bytes"] == 4 * 128 * COLUMNS
    assert counters.extra["tmem_load_bytes"] == 4 * 128 * (COLUMNS + 64)
    packed = move("st", "16x64b", 2, ".unpack::16b")[4]
    assert packed.extra["tmem_store_bytes"] == 4 * 128 * (COLUMNS + 8)


@pytest.mark.parametrize(
    ("shape", "at", "error"),
    [
        ("32x32b", "(16 << 16)", errors.TensorMemoryError),  # half a warp further
        ("32x32b", "(32 << 16)", errors.TensorMemoryError),  # another warp's lanes
        ("16x64b", "(1 << 16)", errors.TensorMemoryError),
        ("16x64b", "(16 << 16)", errors.TensorMemoryError),  # + 16: the next warp's
        ("32x32b", "253", errors.OutOfBoundsError),  # beyond the allocation
        ("32x32b", "600", errors.OutOfBoundsError),
        ("32x32b", "(t & 1)", errors.CollectiveError),
    ],
)
def test_places_that_are_not_the_warps(shape, at, error):
    with pytest.raises(error):
        move("ld", shape, 4, at=at)


@pytest.mark.parametrize(
    ("shape", "count"), [("16x256b", 64), ("16x128b", 128), ("16x32bx2", 1), ("32x32b", 3)]
)
def test_forms_that_do_not_exist(shape, count):
    """ptxas refuses them, too."""
    with pytest.raises(emulator.EmulatorError):
        move("ld", shape, count)


def test_reduction_is_not_part_of_sm_100a():
    asm = 'asm volatile("tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%0, %1}, %1, [%2];"'
    text = kernel(asm + ' : "=r"(r[0]), "=r"(r[1]) : "r"(at));', 2, 1)
    with pytest.raises(errors.UnsupportedInstructionError, match="not part of sm_100a"):
        emulator.run(text, 1, 128, [np.zeros(1, np.uint32)] * 3, arch="sm_100a")


def test_cells_that_nothing_wrote():
    text = kernel("", 1, 0, written="224")
    cells = [np.zeros((128, COLUMNS), np.uint32) for _ in range(3)]
    with pytest.raises(errors.UninitializedReadError, match="column 224"):
        emulator.run(text, 1, 128, cells, arch="sm_100a")
