"""Tensor maps of sm_100: packed elements of 4 and 6 bits, and swizzles of larger atoms."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import TMA, WRAPPERS
from test_emu_tensormap import dump

from gpukit import emulator
from gpukit.emulator import TensorMap, tensormap
from gpukit.emulator.errors import (
    DeadlockError,
    KernelFault,
    LaunchError,
    MisalignedError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.mem.store import Store
from gpukit.emulator.mma.descriptors import DescriptorError
from gpukit.emulator.policies import POLICIES
from gpukit.emulator.tcgen05.elements import PADDED
from gpukit.emulator.tcgen05.operands import operand
from gpukit.layout.shared import SharedTile

ARCH = "sm_100a"

# The ISA's tables: which 16-byte piece of the source stands at piece c of a line.
LINES = {
    "128B_atom_32B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_atom_32B_flip_8B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_atom_64B": ["01234567", "45670123"],
}


@pytest.mark.parametrize("offset", [0, 128, 384, 1024 + 640])
@pytest.mark.parametrize("swizzle", LINES)
def test_swizzles_of_larger_atoms(swizzle, offset):
    a = np.arange(128 * 16, dtype="u2").view("u1").reshape(32, 128)
    got, _ = dump(TensorMap(a, (128, 32), swizzle=swizzle, arch=ARCH), (0, 0), offset)
    source = a.reshape(32, 8, 16)
    for row, line in enumerate(got.reshape(32, 8, 16)):
        number = row + offset // 128
        pieces = [int(c) for c in LINES[swizzle][number % len(LINES[swizzle])]]
        want = source[row, pieces]
        if "flip" in swizzle and number % 2:
            want = np.roll(want.reshape(8, 2, 8), 1, axis=1).reshape(8, 16)
        assert (line == want).all()


PACKED = {"16u4_align8b": (4, 0), "16u4_align16b": (4, 8), "16u6_align16b": (6, 4)}


def packed_map(name, rng, rows=8, columns=256, **options):
    """A tensor of ``columns`` packed elements a row; boxes of 128 by 4."""
    bits, _ = PACKED[name]
    array = rng.integers(0, 256, (rows, columns * bits // 8), dtype="u1")
    given = {"data_type": name, "dims": (columns, rows), "arch": ARCH, **options}
    return array, TensorMap(array, (128, 4), strides=(array.shape[1],), **given)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_packed_elements(name, swizzle, rng):
    """16 elements of the tensor fill 8 or 16 bytes; only those of the tensor count for the barrier.

    What lies behind them is undefined.
    """
    bits, padding = PACKED[name]
    array, tensor = packed_map(name, rng, swizzle=swizzle)
    size, group = 4 * 128 * bits // 8, 16 * bits // 8
    extent = 4 * 128 if swizzle == "128B" else 4 * 8 * (group + padding)
    got, counters = dump(tensor, (128, 2), extent=extent, size=size, checks=False)
    assert counters.extra["l2_to_shared_bytes"] == size
    source = array[2:6, 128 * bits // 8 :].reshape(4, 8, group)
    lines = got.reshape(4, -1)
    if swizzle == "128B":
        pieces = lines.reshape(4, 8, 16)
        lines = np.stack([pieces[r][np.arange(8) ^ r] for r in range(4)]).reshape(4, -1)
    lines = lines[:, : 8 * (group + padding)].reshape(4, 8, group + padding)
    assert (lines[..., :group] == source).all()
    if padding:
        with pytest.raises(UninitializedReadError):
            dump(tensor, (128, 2), extent=extent, size=size)


@pytest.mark.parametrize("name", PACKED)
def test_packed_elements_outside_are_zero(name, rng):
    bits, padding = PACKED[name]
    array, tensor = packed_map(name, rng)
    group = 16 * bits // 8
    size = 4 * 128 * bits // 8
    got, _ = dump(tensor, (0, 6), extent=4 * 8 * (group + padding), size=size, checks=False)
    lines = got.reshape(4, 8, group + padding)[..., :group]
    assert (lines[:2] == array[6:, : 128 * bits // 8].reshape(2, 8, group)).all()
    assert not lines[2:].any()


GOOD = {"data_type": "16u6_align16b", "global_address": 4096, "global_dim": (256, 8),
        "global_strides": (192,), "box_dim": (128, 4), "arch": ARCH}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arch": "sm_90a"}, "16u6_align16b needs compute capability 10.0"),
        ({"global_address": 4112}, "0x1010 is not a multiple of 32"),
        ({"global_dim": (192, 8)}, r"global_dim\[0\]: 192; must be a multiple of 128"),
        ({"global_strides": (208,)}, r"global_strides\[0\]: 208 bytes; must be a multiple of 32"),
        ({"box_dim": (64, 4)}, r"box_dim\[0\]: 64; must be 128"),
        ({"swizzle": "64B"}, "swizzle: '64B' is unknown; accepted: none, 128B, 128B_atom_32B"),
        ({"oob_fill": "nan"}, "nan needs a floating-point"),
        (
            {"data_type": "16u4_align8b", "global_dim": (255, 8)},
            r"global_dim\[0\]: 255; must be a multiple of 2",
        ),
        (
            {"data_type": "16u4_align8b", "box_dim": (16, 8)},
            "16 elements of half a byte are 8 bytes; must be a multiple of 16",
        ),
        (
            {"data_type": "16u4_align8b", "box_dim": (128, 8), "swizzle": "32B"},
            "64 bytes; swizzle 32B allows 32",
        ),
    ],
)
def test_rules_of_packed_types(change, message):
    assert len(tensormap.encode(**GOOD)) == 128
    with pytest.raises(LaunchError, match=message):
        tensormap.encode(**{**GOOD, **change})


@pytest.mark.parametrize(("name", "step"), [("16u4_align8b", 32), ("16u4_align16b", 128)])
def test_boxes_of_packed_types_begin_at_whole_groups(name, step, rng):
    _, tensor = packed_map(name, rng)
    with pytest.raises(MisalignedError, match=f"must be a multiple of {step} with {name}"):
        dump(tensor, (16, 0), extent=512, size=256)


@pytest.mark.parametrize(("name", "used"), [("e2m1", 8), ("e2m3", 12), ("e3m2", 12)])
def test_what_pads_packed_elements_may_be_undefined_in_operands(name, used, rng):
    """Of 16 bytes, tcgen05.mma takes the elements; TMA leaves what is behind them undefined."""
    tile = SharedTile("128", True, 128, 32, 8, 1024)
    store = Store(rng.integers(0, 256, tile.end, dtype="u1"), np.zeros(tile.end, "u1"))
    store.init.reshape(-1, 16)[:, :used] = 1
    matrix = operand(tile.descriptor(), PADDED[name], True, 128, tile.end)
    assert np.isfinite(matrix.values(store)).all()
    store.init[1024 + used - 1] = 0
    with pytest.raises(DescriptorError, match=r"nothing has written the 16 bytes .* at 0x400"):
        matrix.values(store)


# Four rows from anywhere

GATHER = (
    WRAPPERS
    + TMA
    + r"""
extern "C" __global__ void k(const __grid_constant__ TensorMap from,
                             const __grid_constant__ TensorMap to, const int* at, int* y) {
  __shared__ __align__(1024) int tile[4 * 32];
  __shared__ u64 bar;
  if (threadIdx.x == 0) { init(&bar, 1); fence_init(); }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4"
      " [%0, {%1, %2, %3, %4, %5}];" :: "l"(generic(from)),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]) : "memory");
    expect(&bar, 512);
    asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4"
      ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
      :: "r"(smem(tile)), "l"(generic(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
         "r"(at[4]), "r"(smem(&bar)) : "memory");
  }
  wait(&bar, 0);
  for (int i = threadIdx.x; i < 128; i += 32) y[i] = tile[i];
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"
      " [%0, {%1, %2, %3, %4, %5}], [%6];" :: "l"(generic(to)), "r"(at[5]), "r"(at[6]),
      "r"(at[7]), "r"(at[8]), "r"(at[9]), "r"(smem(tile)) : "memory");
    bulk_commit(); bulk_wait<0>();
  }
}"""
)
ROWS = [4, 7, 0, 7, 3], [0, 9, 2, 3, 1]  # column and rows; the last two of the tensor are 7 and 9


def gathered(source=GATHER, rows=ROWS, box=(32, 1), swizzle="none", **options):
    x = np.arange(8 * 64, dtype="i4").reshape(8, 64)
    out, y = np.zeros((10, 64), "i4"), np.zeros((4, 32), "i4")
    maps = [TensorMap(a, box, swizzle=swizzle) for a in (x, out)]
    at = np.array([*rows[0], *rows[1]], "i4")
    result = emulator.run(source, 1, 32, [*maps, at, y], arch="sm_100a", **options)
    return x, y, out, result.counters.extra


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_four_rows_are_gathered_and_scattered(swizzle, policy):
    x, y, out, extra = gathered(swizzle=swizzle, policy=policy)
    column, *rows = ROWS[0]
    want = x[rows, column : column + 32]
    lines = y.reshape(4, 8, 4)
    if swizzle == "128B":
        lines = np.stack([lines[r][np.arange(8) ^ r] for r in range(4)])
    assert (lines.reshape(4, 32) == want).all()
    there = np.zeros_like(out)
    there[ROWS[1][1:], :32] = want
    assert (out == there).all()
    assert extra["l2_to_shared_bytes"] == 512


def test_rows_outside_of_the_tensor_are_zero_and_dropped():
    x, y, out, _ = gathered(rows=([48, -1, 7, 8, 0], [40, 10, 2, 11, 3]))
    assert (y[1, :16] == x[7, 48:]).all()
    assert (y[3, :16] == x[0, 48:]).all()
    assert not y[[0, 2]].any()
    assert not y[:, 16:].any()
    assert np.flatnonzero(out.any(axis=1)).tolist() == [2, 3]
    assert (out[2:4, 40:56] == y[1::2, :16]).all()


def test_misuse_of_four_rows():
    with pytest.raises(KernelFault, match="need a matrix and boxes of one row"):
        gathered(box=(32, 4))
    with pytest.raises(KernelFault, match="negative coordinates"):
        gathered(rows=(ROWS[0], [0, 1, -2, 3, 4]))
    with pytest.raises(DeadlockError, match="-384 bytes of tx-count"):
        gathered(GATHER.replace("expect(&bar, 512)", "expect(&bar, 128)"))
    with pytest.raises(UnsupportedInstructionError, match="needs a tensor map and 5 coordinates"):
        gathered(GATHER.replace("{%1, %2, %3, %4, %5}], [%6]", "{%1, %2, %3, %4}], [%6]"))
    with pytest.raises(UnsupportedInstructionError, match="needs a tensor map and 2 coordinates"):
        gathered(GATHER.replace("shared::cta.tile::scatter4", "shared::cta.tile::gather4"))
