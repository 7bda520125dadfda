"""ldmatrix, stmatrix and movmatrix: where each element goes, and what it costs in banks."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import ptx_kernel
from mma_kernels import registers

from gpukit import emulator
from gpukit.emulator.errors import (
    CollectiveError,
    KernelFault,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.layout import banks, fragments

PARAMS = ".param .u64 rows, .param .u64 image, .param .u64 out"
SHARED = ".extern .shared .align 1024 .b8 smem[];"


def kernel(body, count):
    """%row: this lane's row address; the warp has copied ``image`` (4 KiB) to shared memory."""
    text = f""".reg .b64 %p<8>; .reg .b32 %t<12>; .reg .b32 %r<{max(count, 4)}>; .reg .b32 %row;
.reg .b64 %wide; .reg .pred %q;
mov.u32 %t0, %tid.x; and.b32 %t4, %t0, 31; mov.u32 %t1, 0;
LOOP: mad.lo.u32 %t2, %t1, 512, 0; mad.lo.u32 %t2, %t4, 16, %t2;
cvt.u64.u32 %p0, %t2; ld.param.u64 %p1, [image]; add.u64 %p0, %p0, %p1;
setp.lt.u32 %q, %t0, 32;
@%q ld.global.v4.b32 {{%t5, %t6, %t7, %t8}}, [%p0];
add.u32 %t3, %t2, smem; @%q st.shared.v4.b32 [%t3], {{%t5, %t6, %t7, %t8}};
add.u32 %t1, %t1, 1; setp.lt.u32 %q, %t1, 8; @%q bra LOOP;
bar.sync 0;
ld.param.u64 %p0, [rows]; mad.wide.u32 %p0, %t0, 4, %p0; ld.global.u32 %row, [%p0];
add.u32 %row, %row, smem; cvt.u64.u32 %wide, %row;
{body}
ret;"""
    return ptx_kernel(text, PARAMS, SHARED)


def store_registers(count):
    text = f"ld.param.u64 %p2, [out]; mad.wide.u32 %p2, %t0, {4 * count}, %p2;\n"
    return text + "".join(f"st.global.b32 [%p2+{4 * i}], %r{i};\n" for i in range(count))


def run(body, count, rows, warps=1, **options):
    image = np.arange(2048, dtype=np.uint16)
    out = np.zeros((32 * warps, count), np.uint32)
    rows = np.ascontiguousarray(np.tile(rows, warps), np.uint32)
    result = emulator.run(kernel(body, count), 1, 32 * warps, [rows, image, out],
                          shared_bytes=options.pop("shared_bytes", 4096), **options)  # fmt: skip
    return out.view(np.uint16).reshape(32 * warps, count, 2), result.counters


def shuffled_rows(rng):
    return rng.permutation(256)[:32].astype(np.uint32) * 16


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_ldmatrix(rng, count, trans, space):
    rows = shuffled_rows(rng)
    address = "%row" if space else "%wide"
    to_generic = "" if space else "cvta.shared.u64 %wide, %wide;\n"
    load = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 "
    load += f"{registers('r', count)}, [{address}];"
    got, counters = run(f"{to_generic}{load}\n{store_registers(count)}", count, rows, warps=2)
    matrix, row, column = fragments.ldmatrix(count, bool(trans))
    values = (rows[8 * matrix + row] // 2 + column).reshape(32, count, 2)
    assert (got == np.tile(values, (2, 1, 1))).all()
    assert counters.shared_loads.requests == 2
    assert counters.shared_loads.bytes == 2 * count * 128


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix(rng, count, trans):
    """Each lane's registers hold its number and the register's."""
    rows = shuffled_rows(rng)
    fill = "".join(
        f"mad.lo.u32 %r{i}, %t0, 0x100010, {0x80000 + i * 0x10001};\n" for i in range(count)
    )
    body = f"""{fill}stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%row],
{registers("r", count)}; bar.sync 0; shl.b32 %t1, %t0, 7; add.u32 %t1, %t1, smem; mov.u32 %t2, 0;
ld.param.u64 %p2, [out]; mad.wide.u32 %p2, %t0, 128, %p2;
BACK: ld.shared.b32 %t3, [%t1]; st.global.b32 [%p2], %t3; add.u32 %t1, %t1, 4;
add.u64 %p2, %p2, 4; add.u32 %t2, %t2, 1; setp.lt.u32 %q, %t2, 32; @%q bra BACK;"""
    image, out = np.arange(2048, dtype=np.uint16), np.zeros(2048, np.uint16)
    emulator.run(kernel(body, 32), 1, 32, [rows, image, out], shared_bytes=4096)
    want = image.copy()
    for matrix in range(count):
        values = np.zeros((8, 8), np.uint16)
        for lane in range(32):
            word = lane * 0x100010 + 0x80000 + matrix * 0x10001
            values[lane // 4, 2 * (lane % 4)] = word & 0xFFFF
            values[lane // 4, 2 * (lane % 4) + 1] = word >> 16
        for row, line in enumerate(values.T if trans else values):
            start = rows[8 * matrix + row] // 2
            want[start : start + 8] = line
    assert (out == want).all()


def test_movmatrix():
    body = f"""mad.lo.u32 %r0, %t0, 0x20002, 0x10000;
movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;
{store_registers(1)}"""
    got, _ = run(body, 1, np.zeros(32), warps=2)
    for warp in range(2):
        values = (np.arange(64) + 64 * warp).reshape(8, 8).T.reshape(32, 2)
        assert (got[32 * warp : 32 * warp + 32, 0] == values).all()


@pytest.mark.parametrize(("pitch", "swizzled", "ways"), [
    (16, False, 1), (32, False, 2), (64, False, 4), (128, False, 8), (128, True, 1),
    (144, False, 1),
])  # fmt: skip
def test_bank_conflicts(pitch, swizzled, ways):
    """A tile whose rows are 128 bytes apart costs eight passes, unless it is swizzled."""
    lane = np.arange(32)
    rows = lane % 16 * pitch + lane // 16 * 16
    if swizzled:
        rows = rows ^ (rows >> 3 & 0x70)
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%row];"
    _, counters = run(load + store_registers(4), 4, rows)
    assert counters.shared_loads.wavefronts == banks.access(rows, 16).wavefronts == 4 * ways
    assert counters.shared_loads.ideal == 4


def test_x1_looks_at_eight_addresses_only():
    rows = np.where(np.arange(32) < 8, np.arange(32) * 16, 3)  # the others are misaligned
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%row];"
    got, _ = run(load + store_registers(1), 1, rows)
    assert (got[:, 0].ravel() == np.arange(64)).all()
    with pytest.raises(MisalignedError):
        run("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%row];", 2, rows)


LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%row];"


@pytest.mark.parametrize(("body", "rows", "error", "why"), [
    (LOAD, 4096, OutOfBoundsError, "offset 0x1400"),
    (LOAD, 8, MisalignedError, "access size, 16 bytes"),
    ("ld.param.u64 %p5, [image]; ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%p5];", 0, KernelFault,
     "shared memory"),
    ("setp.lt.u32 %q, %t0, 4; @%q exit; " + LOAD, 0, CollectiveError, "only lanes 0xfffffff0"),
    ("ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0}, [%row];", 0, UnsupportedInstructionError,
     "x1, .x2, .x4"),
    ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%row];", 0, UnsupportedInstructionError,
     "needs 2 registers, has 1"),
    ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%row];", 0,
     UnsupportedInstructionError, "only .m8n8"),
])  # fmt: skip
def test_misuse(body, rows, error, why):
    with pytest.raises(error, match=why):
        run(body, 1, np.full(32, rows))


def test_uninitialised_rows():
    with pytest.raises(UninitializedReadError, match="reads 16 bytes of shared memory"):
        run(LOAD, 1, np.full(32, 4096), shared_bytes=8192)
