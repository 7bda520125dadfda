"""Tensor maps and TMA tile copies: the encoder's rules, swizzles, bounds, reductions, counters."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from async_kernels import TMA, WRAPPERS

from gpukit import emulator
from gpukit.emulator import TensorMap, Uninitialized, tensormap
from gpukit.emulator.errors import (
    KernelFault,
    LaunchError,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.policies import POLICIES

GOOD = {"data_type": "float16", "global_address": 4096, "global_dim": (64, 32),
        "global_strides": (128,), "box_dim": (32, 8)}  # fmt: skip
BAD = [
    ({"data_type": "float8"}, "data_type: 'float8' is unknown"),
    ({"data_type": "16u4_align8b"}, "16u4_align8b needs compute capability 10.0; accepted"),
    ({"global_address": 4104}, "global_address: 0x1008 is not a multiple of 16"),
    ({"global_dim": ()}, "global_dim: 0 dimensions"),
    ({"global_dim": (64,) * 6}, "global_dim: 6 dimensions"),
    ({"global_dim": (64, 0)}, r"global_dim\[1\]: 0"),
    ({"global_dim": (64, (1 << 32) + 1)}, r"global_dim\[1\]: 4294967297"),
    ({"global_strides": (136,)}, r"global_strides\[0\]: 136"),
    ({"global_strides": (1 << 40,)}, r"global_strides\[0\]"),
    ({"global_strides": ()}, "global_strides: 0 entries"),
    ({"box_dim": (32,)}, "box_dim: 1 entries"),
    ({"box_dim": (32, 257)}, r"box_dim\[1\]: 257"),
    ({"box_dim": (32, 0)}, r"box_dim\[1\]: 0"),
    ({"box_dim": (4, 8)}, r"box_dim\[0\]: 4 elements of 2 bytes are 8 bytes"),
    ({"element_strides": (1, 9)}, r"element_strides\[1\]: 9"),
    ({"element_strides": (1, 0)}, r"element_strides\[1\]: 0"),
    ({"interleave": "16B"}, "interleave: 16B is not emulated"),
    ({"interleave": "8B"}, "interleave: '8B' is unknown"),
    ({"swizzle": "32B"}, "64 bytes; swizzle 32B allows 32"),
    ({"swizzle": "128B", "box_dim": (128, 8)}, "256 bytes; swizzle 128B allows 128"),
    ({"swizzle": "128B_atom_32B"}, "refuses 128B_atom_32B on compute capability 9.0; accepted"),
    ({"l2_promotion": "32B"}, "l2_promotion"),
    ({"oob_fill": "nan", "data_type": "uint16"}, "oob_fill: nan needs a floating-point"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_the_encoder_refuses_what_the_driver_refuses(change, message):
    assert len(tensormap.encode(**GOOD)) == 128
    with pytest.raises(LaunchError, match=message):
        tensormap.encode(**{**GOOD, **change})


def test_encoding_keeps_every_field():
    raw = tensormap.encode(
        "bfloat16", 1 << 40, (1 << 32, 7, 6, 5, 4), (1 << 34, 1 << 36, 1 << 38, 16),
        (8, 1, 2, 3, 256), (1, 2, 3, 4, 8), swizzle="128B", l2_promotion="256B",
        oob_fill="nan",
    )  # fmt: skip
    fields = tensormap.decode(raw)
    assert fields == tensormap.Encoded(
        "bfloat16", 1 << 40, (1 << 32, 7, 6, 5, 4), (1 << 34, 1 << 36, 1 << 38, 16),
        (8, 1, 2, 3, 256), (1, 2, 3, 4, 8), "128B", "nan",
    )  # fmt: skip
    assert tensormap.decode(bytes(128)) is None


# Loads: the box as it lies in shared memory


DUMP = (
    WRAPPERS
    + TMA
    + r"""
extern "C" __global__ void k(const __grid_constant__ TensorMap map, unsigned char* out, int bytes,
                             int extent, int offset, const int* at) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ u64 bar;
  for (int i = threadIdx.x; i < extent; i += 32) tile[offset + i] = 0xEE;
  if (threadIdx.x == 0) { init(&bar, 1); fence_init(); }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&bar, bytes);
    asm volatile("cp.async.bulk.tensor.RANKd.shared::cta.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {COORDS}], [%2], %3;"
                 :: "r"(smem(tile + offset)), "l"(generic(map)), "r"(smem(&bar)),
                    "l"(0x1000000000000000ull), ATS : "memory");
  }
  wait(&bar, 0);
  for (int i = threadIdx.x; i < extent; i += 32) out[i] = tile[offset + i]; }
"""
)


def dump(tensor, coords, offset=0, extent=None, size=None, **options):
    """Shared memory after one load of a box of ``size`` bytes, and the counters."""
    rank = len(coords)
    source = DUMP.replace("RANK", str(rank))
    source = source.replace("COORDS", ", ".join(f"%{4 + i}" for i in range(rank)))
    source = source.replace("ATS", ", ".join(f'"r"(at[{i}])' for i in range(rank)))
    steps = (1, *(tensor.element_strides or (1,) * rank)[1:])
    counts = [-(-n // s) for n, s in zip(tensor.box, steps, strict=True)]
    size = size or int(np.prod(counts)) * tensor.array.itemsize
    extent = extent or size
    out = np.zeros(extent, "u1")
    result = emulator.run(
        source, 1, 32, [tensor, Uninitialized(out), np.int32(size), np.int32(extent),
                        np.int32(offset), np.array(coords, "i4")],
        shared_bytes=extent + offset, **options,
    )  # fmt: skip
    return out, result.counters


# 16-byte pieces of a 128-byte line as the ISA's tables show them.
LINES = {
    "32B": lambda line, c: c ^ (line & 1),
    "64B": lambda line, c: c ^ (line & 3),
    "128B": lambda line, c: c ^ (line & 7),
}


@pytest.mark.parametrize("offset", [0, 128, 384, 1024 + 640])
@pytest.mark.parametrize("swizzle", LINES)
def test_swizzles(swizzle, offset):
    """Piece c of a line holds what would be piece LINES(line, c) without a swizzle."""
    span = tensormap.SWIZZLES[swizzle]
    a = np.arange(span * 16, dtype="u2").view("u1").reshape(32, span)
    got, _ = dump(TensorMap(a, (span, 32), swizzle=swizzle), (0, 0), offset)
    plain = a.reshape(-1, 8, 16)
    want = np.empty_like(plain)
    for line in range(plain.shape[0]):
        for piece in range(8):
            want[line, piece] = plain[line, LINES[swizzle](line + offset // 128, piece)]
    assert (got == want.ravel()).all()


def test_rows_shorter_than_the_swizzle_are_padded():
    a = np.arange(64 * 16, dtype="u2").view("u1").reshape(32, 64)
    got, _ = dump(TensorMap(a, (64, 32), swizzle="128B"), (0, 0), extent=32 * 128)
    lines = got.reshape(32, 8, 16)
    for line in range(32):
        for piece in range(8):
            source = piece ^ (line & 7)
            want = a.reshape(32, 4, 16)[line, source] if source < 4 else np.full(16, 0xEE)
            assert (lines[line, piece] == want).all()


@pytest.mark.parametrize("swizzle", ["none", "64B"])
@pytest.mark.parametrize("fill", ["zero", "nan"])
@pytest.mark.parametrize("coords", [(0, 0), (8, 5), (-8, -2), (40, 20), (-32, 3), (48, 0), (8, 99)])
def test_out_of_bounds_elements_are_filled(rng, coords, fill, swizzle):
    """The whole box counts, whatever part of it is inside."""
    a = rng.standard_normal((24, 48)).astype("f2")
    got, counters = dump(TensorMap(a, (32, 8), swizzle=swizzle, oob_fill=fill), coords)
    filler = np.array(0x7FF7 if fill == "nan" else 0, "u2")
    want = np.full((8, 32), filler)
    inside = 0
    for y in range(8):
        for x in range(32):
            if 0 <= y + coords[1] < 24 and 0 <= x + coords[0] < 48:
                want[y, x] = a.view("u2")[y + coords[1], x + coords[0]]
                inside += 2
    if swizzle == "64B":
        pieces = want.view("u1").reshape(-1, 8, 16)
        want = np.stack([pieces[i][[c ^ (i & 3) for c in range(8)]] for i in range(4)])
    assert got.tobytes() == want.tobytes()
    assert counters.extra["tma_oob_bytes"] == 512 - inside
    assert counters.extra["l2_to_shared_bytes"] == inside
    assert counters.extra["tma_boxes"] == 1


@pytest.mark.parametrize("data_type", ["float32", "float32_ftz", "tfloat32", "float64"])
def test_wide_elements_are_filled_with_the_same_nan_words(data_type):
    a = np.ones((2, 8), "f8" if data_type == "float64" else "f4")
    got, _ = dump(TensorMap(a, (8, 2), data_type, oob_fill="nan"), (-4, 1))
    words = got.view("u2").reshape(2, 8, -1)
    assert got.view(a.dtype).reshape(2, 8)[0, 4:].tolist() == [1.0] * 4
    assert (words[0, :4] == 0x7FF7).all()
    assert (words[1] == 0x7FF7).all()


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_ranks_and_element_strides(rng, rank):
    shape = (3, 4, 5, 6, 16)[-rank:]
    a = rng.integers(0, 1 << 31, shape, "u4")
    box, steps, coords = (8, 5, 4, 3, 2)[:rank], (1, 2, 3, 1, 2)[:rank], (12, -1, 1, 2, -1)[:rank]
    got, _ = dump(TensorMap(a, box, element_strides=steps), coords)
    padded = np.pad(a, 10)
    index = [slice(10 + c, 10 + c + n, s) for c, n, s in zip(coords, box, steps, strict=True)]
    assert got.tobytes() == np.ascontiguousarray(padded[tuple(index[::-1])]).tobytes()


def test_a_view_of_a_larger_tensor(rng):
    a = rng.integers(0, 255, (16, 256), "u1")
    part = TensorMap(a, (16, 4), dims=(100, 8), strides=(512,))
    got, _ = dump(part, (96, 6))
    want = np.zeros((4, 16), "u1")
    want[:2, :4] = a[12::2, 96:100]
    assert got.tobytes() == want.tobytes()


def test_conversions_on_load():
    a = np.array([1e-40, -1e-39, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -1.5, np.nan, np.inf, 3e38], "f4")
    plain, _ = dump(TensorMap(a, (8,)), (0,))
    assert plain.tobytes() == a.tobytes()
    flushed, _ = dump(TensorMap(a, (8,), "float32_ftz"), (0,))
    assert flushed.view("f4").tolist()[:4] == [0, 0, *a[2:4].tolist()]
    rounded, _ = dump(TensorMap(a, (8,), "tfloat32"), (0,))
    assert rounded.view("f4")[2:5].tolist() == [1.0, 1 + 2 * 2.0**-10, -1.5]
    assert not (rounded.view("u4")[[0, 1, 6, 7]] & 0x1FFF).any()
    assert rounded.view("u4")[5] == 0x7FFFE000


# Stores and reductions


STORE = (
    WRAPPERS
    + TMA
    + r"""
extern "C" __global__ void k(const __grid_constant__ TensorMap map, const unsigned char* x,
                             int bytes, int cx, int cy) {
  extern __shared__ __align__(1024) unsigned char tile[];
  for (int i = threadIdx.x; i < bytes; i += 32) tile[i] = x[i];
  FENCE __syncwarp();
  if (threadIdx.x == 0) {
    asm volatile("OPCODE [%0, {%1, %2}], [%3];"
                 :: "l"(generic(map)), "r"(cx), "r"(cy), "r"(smem(tile)) : "memory");
    bulk_commit(); bulk_wait<0>(); } }
"""
)
PLAIN = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"


def store(tensor, tile, coords, opcode=PLAIN, **options):
    source = STORE.replace("OPCODE", opcode).replace("FENCE", "fence_async();")
    raw = np.ascontiguousarray(tile).reshape(-1).view("u1")
    args = [tensor, raw, np.int32(raw.size), *np.array(coords, "i4")]
    return emulator.run(source, 1, 32, args, shared_bytes=raw.size, **options)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("coords", [(0, 0), (8, 3), (32, 14), (40, 0), (96, 0)])
def test_stores_are_clipped(rng, coords, policy):
    y = np.zeros((16, 40), "u2")
    tile = rng.integers(1, 65535, (8, 32), "u2")
    result = store(TensorMap(y, (32, 8)), tile, coords, policy=policy)
    want = np.zeros((60, 150), "u2")
    want[10 + coords[1] : 18 + coords[1], 10 + coords[0] : 42 + coords[0]] = tile
    want = want[10:26, 10:50]
    assert (y == want).all()
    assert result.counters.extra["bulk_store_bytes"] == 2 * np.count_nonzero(want)


def test_swizzled_stores_undo_the_swizzle(rng):
    y = np.zeros((32, 64), "u2")
    tile = rng.integers(0, 65535, (32, 64), "u2")
    pieces = tile.view("u1").reshape(32, 8, 16)
    swizzled = np.stack([row[[c ^ (i & 7) for c in range(8)]] for i, row in enumerate(pieces)])
    store(TensorMap(y, (64, 32), swizzle="128B"), swizzled, (0, 0))
    assert (y == tile).all()


REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "inc": lambda y, x: np.where(y >= x, 0, y + 1).astype(y.dtype),
    "dec": lambda y, x: np.where((y == 0) | (y > x), x, y - 1).astype(y.dtype),
}  # fmt: skip
TYPED = [(op, t) for op in ("add", "min", "max") for t in ("u4", "i4", "u8", "f2", "bf16")]
TYPED += [("add", "f4"), ("min", "i8"), ("max", "i8"), ("inc", "u4"), ("dec", "u4")]
TYPED += [(op, t) for op in ("and", "or", "xor") for t in ("u4", "i4", "u8")]


@pytest.mark.parametrize(("name", "type_"), TYPED)
def test_tensor_reductions(rng, name, type_):
    dtype = np.dtype(ml_dtypes.bfloat16 if type_ == "bf16" else type_)
    y, tile = (rng.integers(0, 50, s).astype(dtype) for s in ((6, 32), (4, 16)))
    want = y.copy()
    want[3:, 24:] = REDUCTIONS[name](want[3:, 24:], tile[:3, :8])
    opcode = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{name}.tile.bulk_group"
    store(TensorMap(y, (16, 4)), tile, (24, 3), opcode)
    assert y.tobytes() == want.tobytes()


def test_reductions_are_clipped_at_both_edges(rng):
    y, tile = np.ones((16, 40), "u4"), rng.integers(0, 50, (8, 32), "u4")
    store(TensorMap(y, (32, 8)), tile, (-8, -1),
          "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group")  # fmt: skip
    want = np.ones_like(y)
    want[:7, :24] += tile[1:, 8:]
    assert (y == want).all()


# Misuse


@pytest.mark.parametrize("coords", [(-8, 3), (0, -1), (-8, -1), (-32, 3)])
def test_stores_refuse_negative_coordinates(coords):
    """Which loads accept."""
    y, tile = np.zeros((16, 40), "u2"), np.ones((8, 32), "u2")
    x, z = coords
    message = f"coordinates {x}, {z}: an H200 refuses negative coordinates in tensor stores"
    with pytest.raises(KernelFault, match=message):
        store(TensorMap(y, (32, 8)), tile, coords)
    assert not y.any()
    store(TensorMap(y, (32, 8)), tile, (max(x, 0), max(z, 0)))
    assert y.any()
    dump(TensorMap(y, (32, 8)), coords)


@pytest.mark.parametrize("first", [4, -1, 7, 100])
def test_rows_start_at_multiples_of_16_bytes(first):
    """Whatever the box covers; the other coordinates are free."""
    tensor, tile = TensorMap(np.zeros((16, 40), "u2"), (32, 8)), np.zeros((8, 32), "u2")
    message = f"innermost coordinate {first}: {first} elements of 2 bytes are not a multiple of 16"
    with pytest.raises(MisalignedError, match=message):
        dump(tensor, (first, 0))
    with pytest.raises(MisalignedError, match=message):
        store(tensor, tile, (first, 0))


def test_reductions_need_a_type_that_has_them():
    opcode = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.bulk_group"
    with pytest.raises(KernelFault, match="and of elements of type f32"):
        store(TensorMap(np.zeros((4, 16), "f4"), (16, 4)), np.zeros((4, 16), "f4"), (0, 0),
              opcode.format("and"))  # fmt: skip


@pytest.mark.parametrize("name", ["and", "or", "xor", "add"])
def test_s64_has_min_and_max_only(name):
    y, tile = np.zeros((4, 16), "i8"), np.ones((4, 16), "i8")
    opcode = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.bulk_group"
    with pytest.raises(KernelFault, match=f".{name} of elements of type s64 does not exist"):
        store(TensorMap(y, (16, 4)), tile, (0, 0), opcode.format(name))
    store(TensorMap(y, (16, 4)), tile, (0, 0), opcode.format("max"))
    assert y.all()


def test_the_map_may_not_reach_beyond_its_array():
    a = np.zeros((8, 32), "f4")
    dump(TensorMap(a, (16, 4), dims=(32, 8), strides=(128,)), (16, 4))
    with pytest.raises(OutOfBoundsError, match="past the end of a tensor map's array"):
        dump(TensorMap(a, (16, 4), dims=(32, 9), strides=(128,)), (16, 5))


def test_shared_memory_must_be_aligned_and_large_enough():
    a = np.zeros((8, 32), "f4")
    with pytest.raises(MisalignedError, match="multiple of 128"):
        dump(TensorMap(a, (16, 4)), (0, 0), offset=64)
    padded = TensorMap(a, (16, 4), swizzle="128B")
    with pytest.raises(OutOfBoundsError, match="512 bytes of shared memory"):
        dump(padded, (0, 0))


def test_rank_and_contents_of_the_map_are_checked():
    a = np.zeros((4, 8, 32), "f4")
    with pytest.raises(KernelFault, match="2 coordinates for a tensor map of rank 3"):
        store(TensorMap(a, (16, 4, 1)), np.zeros((4, 16), "f4"), (0, 0))
    with pytest.raises(KernelFault, match="holds no tensor map made by"):
        store(bytes(range(128)), np.zeros((4, 16), "f4"), (0, 0))


def test_a_map_in_global_memory(rng):
    """By address instead of by value; the map must lie at a multiple of 64 bytes."""
    source = (WRAPPERS + TMA + r"""
extern "C" __global__ void k(const TensorMap* map, float* y) {
  __shared__ __align__(128) float tile[64];
  __shared__ u64 bar;
  if (threadIdx.x == 0) {
    init(&bar, 1); fence_async();
    asm volatile("prefetch.tensormap [%0];" :: "l"(map));
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];"
                 :: "l"(map), "r"(0));
    expect(&bar, 256); tma_load(tile, *map, 0, 1, &bar); }
  __syncwarp(); wait(&bar, 0);
  for (int i = threadIdx.x; i < 64; i += 32) y[i] = tile[i]; }""")  # fmt: skip
    a, y = rng.standard_normal((8, 16)).astype("f4"), np.zeros(64, "f4")
    memory = emulator.GlobalMemory()
    raw = np.frombuffer(TensorMap(a, (16, 4)).encode(memory), "u1")
    emulator.run(source, 1, 32, [raw, y], memory=memory)
    assert (y == a[1:5].ravel()).all()
    with pytest.raises(MisalignedError, match="multiple of 64"):
        shifted = np.concatenate([np.zeros(16, "u1"), raw])
        emulator.run(source, 1, 32, [shifted[16:], y], memory=memory)


def test_uninitialised_tensor_elements_stay_uninitialised():
    a = np.zeros((8, 32), "f4")
    memory = emulator.GlobalMemory()
    memory.map(a, "a", written=False)
    with pytest.raises(UninitializedReadError, match="shared memory"):
        dump(TensorMap(a, (16, 4)), (0, 0), memory=memory)


def test_stores_of_uninitialised_shared_memory_are_reported():
    """Only what is inside the tensor counts."""
    y = np.zeros((4, 16), "f4")
    half = np.zeros((2, 16), "f4")
    source = STORE.replace("OPCODE", PLAIN).replace("FENCE", "fence_async();")
    args = [TensorMap(y, (16, 4)), half.view("u1").ravel(), np.int32(128), np.int32(0)]
    emulator.run(source, 1, 32, [*args, np.int32(2)], shared_bytes=256)
    with pytest.raises(UninitializedReadError, match="asynchronous copy reads memory"):
        emulator.run(source, 1, 32, [*args, np.int32(1)], shared_bytes=256)


@pytest.mark.parametrize(
    ("mode", "rank", "why"),
    [
        ("im2col", "3", "load mode .im2col is not emulated"),
        ("tile::gather4", "3", r"gather4 is for matrices \(.2d\)"),
        ("tile::gather4", "2", "gather4 needs sm_100"),
    ],
)
def test_other_modes_are_refused(mode, rank, why):
    source = DUMP.replace("RANK", rank).replace("global.tile", f"global.{mode}")
    source = source.replace("COORDS", "%4, %4, %4").replace("ATS", '"r"(at[0])')
    with pytest.raises(UnsupportedInstructionError, match=why):
        emulator.run(source, 1, 32, [None] * 6)
