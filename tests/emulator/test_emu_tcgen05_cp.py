"""tcgen05.cp and shift: shared memory to Tensor Memory, decompressed on the way; rows moved."""

from __future__ import annotations

import numpy as np
import pytest
from async_kernels import WRAPPERS

from gpukit import emulator
from gpukit.emulator import Uninitialized
from gpukit.emulator.errors import (
    AsyncHazardError,
    KernelFault,
    MisalignedError,
    MissingProxyFenceError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)
from gpukit.emulator.mma.descriptors import DescriptorError
from gpukit.emulator.policies import POLICIES
from gpukit.layout.algebra import Layout
from gpukit.layout.shared import SharedTile

START, FILL = 1024, 0xABABABAB  # of a CTA's shared memory; what the cells hold before
# Row r of the source, copy c -> lane: CUTLASS's ValID layouts of the UTCCP instructions.
LANES = {
    "128x256b": Layout((128, 1), (1, 0)),
    "128x128b": Layout((128, 1), (1, 0)),
    "4x256b": Layout((4, 1), (32, 0)),
    "64x128b.warpx2::02_13": Layout((64, 2), (1, 64)),
    "64x128b.warpx2::01_23": Layout(((32, 2), 2), ((1, 64), 32)),
    "32x128b.warpx4": Layout((32, 4), (1, 32)),
}
CELLS = "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"

KERNEL = (
    WRAPPERS
    + r"""
__device__ void cells_in(u32 at, u32 v) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%1], {%0, %0, %0, %0, %0, %0, %0, %0, %0,"
    " %0, %0, %0, %0, %0, %0, %0}; tcgen05.wait::st.sync.aligned;" :: "r"(v), "r"(at) : "memory"); }
__device__ void cells_out(u32 at, u32* y) {
  u32 v[16];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 CELLS, [%16];"
    " tcgen05.wait::ld.sync.aligned;" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]),
    "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]), "=r"(v[9]), "=r"(v[10]), "=r"(v[11]),
    "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]) : "r"(at) : "memory");
  for (int i = 0; i < 16; i++) y[i] = v[i]; }
__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
__device__ void sync() {
  if (GROUP == 2) cluster_sync(); else __syncthreads(); }
extern "C" __global__ void __cluster_dims__(GROUP, 1, 1)
k(const unsigned char* x, u64 descriptor, u32* y, u32 column, int bytes) {
  extern __shared__ __align__(1024) unsigned char shared[];
  u64* bar = (u64*)(shared + bytes); u32* held = (u32*)(bar + 1);
  int t = threadIdx.x; u32 rank = GROUP == 2 ? cluster_rank() : 0;
  for (int i = t; i < bytes; i += 128) shared[i] = x[rank * bytes + i];
  fence_async();
  if (t == 0) { init(bar, 1); fence_init(); }
  if (t < 32) asm volatile("tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [%0], 32;"
                           :: "r"(smem(held)) : "memory");
  before(); sync(); after();
  u32 base = *held, mine = base + (t / 32 << 21);
  cells_in(mine, FILLED);
  before(); sync(); after();
  if (t == 0 && rank == 0) {
    ISSUE
    asm volatile("{ .reg .b16 m; mov.b16 m, 3;"
                 "tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster.MULTICAST"
                 "b64 [%0]MASK; }" :: "r"(smem(bar)) : "memory");
  }
  wait(bar, 0); after();
  cells_out(mine, y + (rank * 128 + t) * 16);
  before(); sync(); after();
  if (t < 32) asm volatile("tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %0, 32;"
                           :: "r"(base));
}"""
)
KERNEL = KERNEL.replace("CELLS", CELLS).replace("FILLED", f"{FILL}u")
ISSUE = r"""asm volatile("tcgen05.cp.cta_group::GROUP.SHAPE [%0], %1;"
                         :: "r"(base + column), "l"(descriptor) : "memory");"""


def copied(image, descriptor, shape, column=0, group=1, issue=ISSUE, changes=(), **options):
    """uint32 [CTA of the pair, lane, column]: 16 columns of Tensor Memory after one copy."""
    source = KERNEL.replace("ISSUE", issue)
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    source = source.replace("MULTICAST", "multicast::cluster." if group == 2 else "")
    source = source.replace("MASK", ", m" if group == 2 else "")
    source = source.replace("GROUP", str(group)).replace("SHAPE", shape)
    y = np.zeros((group, 128, 16), "u4")
    args = [np.atleast_2d(image), np.uint64(descriptor), Uninitialized(y), np.uint32(column)]
    emulator.run(source, group, 128, [*args, np.int32(image.shape[-1])], arch="sm_100a",
                 shared_bytes=image.shape[-1] + 16, **options)  # fmt: skip
    return y


def source_of(shape, mode, rng, group=1):
    """Bytes of shared memory of each CTA, the tile, and the rows that it holds."""
    rows, chunks = LANES[shape].mode(0).size, 2 if "256b" in shape else 1
    tile = SharedTile(mode, True, -(-rows // 8) * 8, 16 * chunks, 8, START)
    image = rng.integers(0, 256, (group, tile.end - START), dtype="u1")
    at = tile.places()[0][:rows] - START
    return image, tile, image[:, at]


def expected(shape, rows, column=0, first=0):
    """Tensor Memory with rows of bytes [CTA, row, byte] where the layout of the shape says."""
    y = np.full((len(rows), 128, 16), FILL, "u4")
    cells = np.ascontiguousarray(rows).view("u4")
    for lanes in LANES[shape].table().T:
        y[:, lanes + first, column : column + cells.shape[-1]] = cells
    return y


@pytest.mark.parametrize("mode", ["none", "32", "64", "128"])
@pytest.mark.parametrize("shape", LANES)
def test_shapes(shape, mode, rng):
    image, tile, rows = source_of(shape, mode, rng)
    got = copied(image, tile.descriptor(), shape, 4)
    assert (got == expected(shape, rows, 4)).all()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", LANES)
def test_pairs_copy_each_from_its_own_shared_memory(shape, policy, rng):
    image, tile, rows = source_of(shape, "128", rng, 2)
    got = copied(image, tile.descriptor(), shape, group=2, policy=policy)
    assert (got == expected(shape, rows)).all()


def test_four_rows_go_to_the_lane_of_each_warp_that_the_address_names(rng):
    image, tile, rows = source_of("4x256b", "none", rng)
    got = copied(image, tile.descriptor(), "4x256b", 31 << 16)
    assert (got == expected("4x256b", rows, first=31)).all()


@pytest.mark.parametrize(("packing", "bits", "shift"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 0)])
@pytest.mark.parametrize("shape", LANES)
def test_decompression(shape, packing, bits, shift, rng):
    """16 codes lie one after the other from the low bit of a chunk on; each gets a byte."""
    image, tile, rows = source_of(shape, "64", rng)
    got = copied(image, tile.descriptor(), f"{shape}.b8x16.{packing}")
    chunks = rows.reshape(-1, 16)
    plain = np.unpackbits(chunks, axis=1, bitorder="little")[:, : 16 * bits].reshape(-1, 16, bits)
    codes = (plain << np.arange(bits, dtype="u1")).sum(axis=2, dtype="u1") << shift
    assert (got == expected(shape, codes.astype("u1").reshape(rows.shape))).all()


# shift


SHIFT = r"""asm volatile("tcgen05.cp.cta_group::GROUP.128x256b [%0], %1;"
                         :: "r"(base), "l"(descriptor) : "memory");
            BETWEEN
            asm volatile("tcgen05.shift.cta_group::GROUP.down [%0];"
                         :: "r"(base + column) : "memory");
            AGAIN"""
OBSERVED = r"""asm volatile("tcgen05.commit.cta_group::GROUP.mbarrier::arrive::one.shared::cluster"
    ".b64 [%0];" :: "r"(smem(other)) : "memory"); wait(other, 0); after();"""


def shifted(column, rng, group=1, again="", between=OBSERVED, **options):
    image, tile, rows = source_of("128x256b", "none", rng, group)
    image = np.concatenate([image, np.zeros((group, 1024), "u1")], axis=1)
    issue = SHIFT.replace("BETWEEN", between).replace("AGAIN", again)
    changes = [("u32 rank =", "u64* other = bar - 1; if (t == 0) init(other, 1); u32 rank ="),
               ("i < bytes; i", "i < bytes - 8; i")]  # fmt: skip
    got = copied(image, tile.descriptor(), "", column, group, issue, changes, **options)
    return got, expected("128x256b", rows)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("warp", [0, 2])
def test_shift_moves_31_rows_of_a_warp_down_by_one(warp, group, rng):
    got, rows = shifted(warp << 21, rng, group)
    want = rows.copy()
    lanes = slice(32 * warp + 1, 32 * warp + 32)
    want[:, lanes, :8] = rows[:, 32 * warp : 32 * warp + 31, :8]
    assert (got == want).all()


REFRESH = r"""asm volatile("tcgen05.cp.cta_group::GROUP.4x256b [%0], %1;"
                           :: "r"(base), "l"(descriptor) : "memory");"""


def test_what_a_shift_leaves_is_refreshed_without_a_wait(rng):
    """shift -> cp.4x256b is one of the pairs that the tensor core keeps in order."""
    for policy in POLICIES:
        got, rows = shifted(0, rng, again=REFRESH, policy=policy)
        want = rows.copy()
        want[:, 1:32, :8] = rows[:, :31, :8]
        want[:, [0, 32, 64, 96], :8] = rows[:, :4, :8]
        assert (got == want).all()


# Misuse


def test_shapes_and_their_multicasts_belong_together(rng):
    image, tile, _ = source_of("32x128b.warpx4", "none", rng)
    for shape in ("32x128b", "64x128b.warpx4", "128x128b.warpx4"):
        with pytest.raises(UnsupportedInstructionError, match=r"accepted: \.128x256b"):
            copied(image, tile.descriptor(), shape)
    with pytest.raises(UnsupportedInstructionError, match="all must use the same"):
        copied(image, tile.descriptor(), "32x128b.warpx4",
               issue=ISSUE.replace("GROUP", "2"))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (1 << 52, "absolute leading dimension address"),
        (1 << 46, "bits 46-48 are 0b000"),
        (1 << 53, "bits 53-60"),
        (7 << 61, "swizzle code 7"),
        (1 << 61, "32-byte atoms"),
        (0x3FFF, "the CTA has shared memory from"),
    ],
)
def test_descriptors_are_looked_at(change, message, rng):
    image, tile, _ = source_of("32x128b.warpx4", "none", rng)
    with pytest.raises(DescriptorError, match=message):
        copied(image, tile.descriptor() ^ change, "32x128b.warpx4")


def test_addresses(rng):
    image, tile, _ = source_of("128x128b", "none", rng)
    with pytest.raises(OutOfBoundsError, match="columns 30 to 33"):
        copied(image, tile.descriptor(), "128x128b", 30)
    with pytest.raises(MisalignedError, match="has lane 32; accepted: 0"):
        copied(image, tile.descriptor(), "128x128b", 32 << 16)
    image, tile, _ = source_of("4x256b", "none", rng)
    with pytest.raises(MisalignedError, match="has lane 32; accepted: 0 to 31"):
        copied(image, tile.descriptor(), "4x256b", 32 << 16)
    with pytest.raises(MisalignedError, match=r"has lane 16; accepted: multiples of 32"):
        shifted(16 << 16, rng)


def test_what_the_generic_proxy_wrote_needs_a_fence(rng):
    image, tile, _ = source_of("128x128b", "none", rng)
    with pytest.raises(MissingProxyFenceError, match=r"tcgen05\.cp reads shared memory"):
        copied(image, tile.descriptor(), "128x128b", changes=[("  fence_async();\n", "")])


def test_the_source_stays_until_the_commit_is_seen(rng):
    image, tile, _ = source_of("128x128b", "none", rng)
    early = ("wait(bar, 0); after();", "shared[t] = 0; wait(bar, 0); after();")
    with pytest.raises(AsyncHazardError, match=r"tcgen05\.cp of .* may still read"):
        copied(image, tile.descriptor(), "128x128b", changes=[early])


def test_cells_are_there_when_the_commit_is_seen(rng):
    image, tile, _ = source_of("128x128b", "none", rng)
    with pytest.raises(KernelFault, match=r"tcgen05\.cp"):
        copied(image, tile.descriptor(), "128x128b", changes=[("wait(bar, 0); after();", "")])
    with pytest.raises(KernelFault, match=r"tcgen05\.cp"):
        shifted(0, rng, between="")
