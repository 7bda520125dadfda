"""Tensor copies: boxes of 1 to 5 dimensions, swizzles, bounds, types, reductions, multicast."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from .copy_cases import MEET, RANK, SHARED, THREADS, barrier, dump, fill, wait
from .model import Argument, Array, Buffer, Case, TensorMap, output
from .ptx import kernel_case
from .values import columns, random_bits

SIZES = {"uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float16": 2,
         "float32": 4, "float64": 8, "bfloat16": 2, "float32_ftz": 4, "tfloat32": 4,
         "tfloat32_ftz": 4}  # fmt: skip
KINDS = {"float16": "f16", "bfloat16": "bf16", "float64": "f64", "float32": "f32", "uint32": "u32",
         "int32": "s32", "uint64": "u64", "int64": "s64"}  # fmt: skip


def tensor_map(
    data_type: str, dims: tuple[int, ...], box: tuple[int, ...], *, steps: tuple[int, ...] = (),
    swizzle: str = "none", fill_with: str = "zero",
) -> TensorMap:  # fmt: skip
    """A map of a dense tensor held by the first argument."""
    sizes = np.cumprod((SIZES[data_type], *dims))
    strides = tuple(int(n) for n in sizes[1:-1])
    return TensorMap(0, data_type, dims, strides, box, steps, swizzle, fill_with)


def _elements(wanted: TensorMap) -> Array:
    """The tensor's bytes: corners and random numbers of its type."""
    count = int(np.prod(wanted.dims))
    kind = KINDS.get(wanted.data_type, "f32" if "float" in wanted.data_type else "")
    if kind:
        return np.roll(columns((kind,), f"tensor {kind}", count)[0], 5)  # begin with no zero
    bytes_ = count * SIZES[wanted.data_type]
    return random_bits("tensor", -(-bytes_ // 8)).view(np.uint8)[:bytes_]


def _box_bytes(wanted: TensorMap) -> int:
    steps = (1, *wanted.steps[1:])
    counts = [-(-n // s) for n, s in zip(wanted.box, steps, strict=True)]
    return int(np.prod(counts)) * SIZES[wanted.data_type]


def _coordinates(coords: tuple[int, ...]) -> tuple[str, str]:
    """Text that sets registers, and the operand."""
    names = [f"%r{20 + i}" for i in range(len(coords))]
    text = "".join(f"mov.b32 {n}, {c}; " for n, c in zip(names, coords, strict=True))
    return text, ", ".join(names)


POINT = "mov.b64 %x2, p1; cvta.param.u64 %x2, %x2;\n"


def load(
    name: str, wanted: TensorMap, coords: tuple[int, ...], at: int = 0, extent: int = 0
) -> Case:
    """Shared memory after a load to ``at``; ``extent`` bytes are shown."""
    size = _box_bytes(wanted)
    extent = -(-(extent or at + size) // 16) * 16
    where = -(-extent // 128) * 128
    set_, operand = _coordinates(coords)
    body = fill(extent) + barrier(where) + "@%q4 bra ISSUED;\n" + set_ + POINT
    body += f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {size};\n"
    body += f"cp.async.bulk.tensor.{len(coords)}d.shared::cluster.global.tile"
    body += f".mbarrier::complete_tx::bytes [%r0+{at}], [%x2, {{{operand}}}], [%r3];\nISSUED:\n"
    body += wait() + dump(extent, 2)
    args: list[Argument] = [Buffer(_elements(wanted)), wanted, output(extent, 1)]
    return kernel_case(f"tma load {name}", body, args, declarations=SHARED, shared=where + 16)


def store(name: str, wanted: TensorMap, coords: tuple[int, ...], reduction: str = "") -> Case:
    """The tensor after a box of shared memory was stored or combined into it."""
    size = _box_bytes(wanted)
    pitch = {"none": 0, "32B": 32, "64B": 64, "128B": 128}[wanted.swizzle]
    extent = size // (wanted.box[0] * SIZES[wanted.data_type]) * pitch or size
    set_, operand = _coordinates(coords)
    body = "mov.u32 %r0, smem; ld.param.u64 %x1, [p2]; mul.lo.u32 %r1, %t, 16;\n"
    body += f"LOAD: setp.ge.u32 %q1, %r1, {extent}; @%q1 bra LOADED;\n"
    body += "cvt.u64.u32 %x3, %r1; add.u64 %x3, %x3, %x1; add.u32 %r2, %r1, %r0;\n"
    body += "ld.global.v2.b64 {%x4, %x5}, [%x3]; st.shared.v2.b64 [%r2], {%x4, %x5};\n"
    body += f"add.u32 %r1, %r1, {16 * THREADS}; bra LOAD;\nLOADED:\n"
    body += "fence.proxy.async; bar.sync 0; setp.ne.u32 %q1, %t, 0; @%q1 exit;\n" + set_ + POINT
    op = f"cp.reduce.async.bulk.tensor.{len(coords)}d" if reduction else (
        f"cp.async.bulk.tensor.{len(coords)}d")  # fmt: skip
    body += f"{op}.global.shared::cta{reduction and '.' + reduction}.tile.bulk_group "
    body += f"[%x2, {{{operand}}}], [%r0];\ncp.async.bulk.commit_group;"
    body += "cp.async.bulk.wait_group 0;"
    tensor = _elements(wanted)
    tile = np.roll(tensor.view(np.uint8), 24)[: -(-extent // 16) * 16]
    args: list[Argument] = [Buffer(tensor, output=True), wanted, Buffer(tile)]
    return kernel_case(f"tma store {name}", body, args, declarations=SHARED, shared=extent)


def cases() -> Iterator[Case]:
    """Everything that one CTA does."""
    yield from _swizzles()
    yield from _bounds()
    yield from _ranks()
    yield from _types()
    yield from _stores()


def _swizzles() -> Iterator[Case]:
    for swizzle, span in (("32B", 32), ("64B", 64), ("128B", 128)):
        whole = tensor_map("uint8", (span, 32), (span, 16), swizzle=swizzle)
        for at in (0, 128, 384, 1024):
            yield load(f"{swizzle} at {at}", whole, (0, 8), at)
        for inner in (16, 32, 64, 48, 80, 96):
            if inner < span:
                part = tensor_map("uint8", (256, 32), (inner, 16), swizzle=swizzle)
                yield load(f"{swizzle} of {inner} bytes", part, (32, 3), extent=16 * span)
        cube = tensor_map("uint16", (64, 6, 5), (span // 2, 4, 3), swizzle=swizzle)
        yield load(f"{swizzle} 3d", cube, (8, 1, 2))
    plain = tensor_map("uint8", (256, 32), (48, 5))
    for at in (0, 128, 256):
        yield load(f"none at {at}", plain, (16, 7), at)
    yield load("none of 512 bytes", tensor_map("uint16", (512, 8), (256, 4)), (104, 2))


# The innermost coordinates of all copies are multiples of 16 bytes; see unusual() for others.
COORDS = [(-8, -2), (8, 5), (40, 20), (-32, 3), (48, 0), (8, 99), (-24, -7), (40, 23), (16, -100)]


def _bounds() -> Iterator[Case]:
    for (x, y), swizzle in product(COORDS, ("none", "64B")):
        wanted = tensor_map("float16", (48, 24), (32, 8), swizzle=swizzle)
        yield load(f"bounds {x},{y} {swizzle}", wanted, (x, y))
    for data_type in ("float16", "bfloat16", "float32", "float64", "tfloat32", "float32_ftz"):
        wanted = tensor_map(data_type, (48, 24), (16, 8), fill_with="nan")
        yield load(f"bounds nan {data_type}", wanted, (-16 // SIZES[data_type], 20))


def _ranks() -> Iterator[Case]:
    dims, box, coords = (16, 6, 5, 4, 3), (8, 5, 4, 3, 2), (12, -1, 1, 2, -1)
    for rank in range(1, 6):
        wanted = tensor_map("uint32", dims[:rank], box[:rank])
        yield load(f"{rank}d", wanted, coords[:rank])
        inside = tensor_map("uint32", dims[:rank], (4, 2, 2, 2, 2)[:rank])
        yield load(f"{rank}d inside", inside, (4, 1, 2, 1, 1)[:rank])
        if rank > 1:
            strided = tensor_map("uint32", dims[:rank], box[:rank], steps=(1, 2, 3, 1, 2)[:rank])
            yield load(f"{rank}d element strides", strided, coords[:rank])
            yield load(f"{rank}d element strides inside", strided, (0, 0, 0, 0, 0)[:rank])


def _types() -> Iterator[Case]:
    for data_type, size in SIZES.items():
        wanted = tensor_map(data_type, (64 // size * 2, 32), (64 // size, 16))
        yield load(f"type {data_type}", wanted, (16 // size, 5))


def _stores() -> Iterator[Case]:
    for (x, y), swizzle in product(COORDS[:7], ("none", "64B")):
        wanted = tensor_map("uint16", (48, 24), (32, 8), swizzle=swizzle)
        yield store(f"bounds {x},{y} {swizzle}", wanted, (x, y))
    for swizzle, span in (("32B", 32), ("64B", 64), ("128B", 128)):
        yield store(swizzle, tensor_map("uint8", (span, 24), (span, 16), swizzle=swizzle), (0, 4))
    dims, box, coords = (16, 6, 5, 4, 3), (8, 5, 4, 3, 2), (12, -1, 1, 2, -1)
    for rank in range(1, 6):
        wanted = tensor_map("uint32", dims[:rank], box[:rank])
        yield store(f"{rank}d", wanted, coords[:rank])
    for op, types in REDUCTIONS.items():
        for data_type in types:
            wanted = tensor_map(data_type, (32, 16), (16, 8))
            yield store(f"{op} {data_type}", wanted, (24, 4), op)


REDUCTIONS = {
    "add": ("uint32", "int32", "uint64", "float16", "bfloat16", "float32"),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "uint64"),
    "or": ("uint32", "int32"),
    "xor": ("uint32", "int64"),
}


def multicasts() -> Iterator[Case]:
    """Loads into both CTAs of a cluster, or into the other one only."""
    for mask, swizzle in product((1, 2, 3), ("none", "128B")):
        wanted = tensor_map("float16", (64, 24), (64, 8), swizzle=swizzle)
        size = extent = _box_bytes(wanted)
        body = RANK + fill(extent) + barrier(extent) + MEET + "@%q4 bra ISSUED;\n"
        body += f"shr.u32 %r14, {mask}, %r8; and.b32 %r14, %r14, 1;\n"
        body += f"mul.lo.u32 %r14, %r14, {size};\n"
        body += "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], %r14;\n" + POINT
        body += f"setp.ne.u32 %q5, %r8, 0; mov.b16 %h1, {mask}; @%q5 bra ISSUED;\n"
        body += "mov.u32 %r20, -8; mov.u32 %r21, %clusterid.x; mul.lo.u32 %r21, %r21, 9;\n"
        body += "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        body += ".multicast::cluster [%r0], [%x2, {%r20, %r21}], [%r3], %h1;\nISSUED:\n"
        body += wait() + "bar.sync 0;\n" + MEET + dump(extent, 2, "%ctaid.x")
        args: list[Argument] = [Buffer(_elements(wanted)), wanted, output(4 * extent, 1)]
        yield kernel_case(f"tma multicast to {mask} {swizzle}", body, args, declarations=SHARED,
                          cluster=2, grid=4, shared=extent + 16)  # fmt: skip


def unusual() -> Iterator[Case]:
    """What hardware may refuse: larger atoms, a stride along rows, rows off 16 bytes."""
    for swizzle in ("128B_atom_32B", "128B_atom_32B_flip_8B", "128B_atom_64B"):
        wanted = tensor_map("uint8", (128, 32), (128, 16), swizzle=swizzle)
        yield load(swizzle, wanted, (0, 8))
    yield load("inner element stride", tensor_map("uint32", (64, 8), (16, 4), steps=(2, 1)), (4, 2))
    for x, y in ((4, 2), (-5, -2), (7, 99)):
        wanted = tensor_map("float16", (48, 24), (32, 8))
        yield load(f"misaligned {x},{y}", wanted, (x, y))
        yield store(f"misaligned {x},{y}", wanted, (x, y))
    yield store("add misaligned", tensor_map("uint32", (32, 16), (16, 8)), (1, 4), "add")
