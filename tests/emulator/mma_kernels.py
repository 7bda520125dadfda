"""PTX around one wgmma or mma instruction: operands in, accumulators out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from emulator_kernels import ptx_kernel

from gpukit import emulator
from gpukit.layout import fragments, shared

NUMPY = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
    "f64": np.dtype(np.float64),
}
START = 1024  # of a CTA's shared memory


def registers(prefix, count):
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


COPY = """
mov.u32 %t0, %tid.x; mul.lo.u32 %t1, %t0, 16;
COPY_LOOP:
setp.ge.u32 %q0, %t1, {size}; @%q0 bra COPIED;
cvt.u64.u32 %p4, %t1; ld.param.u64 %p5, [image]; add.u64 %p4, %p4, %p5;
ld.global.v4.b32 {{%t4, %t5, %t6, %t7}}, [%p4];
add.u32 %t2, %t1, {start}; st.shared.v4.b32 [%t2], {{%t4, %t5, %t6, %t7}};
add.u32 %t1, %t1, {step}; bra COPY_LOOP;
COPIED:
fence.proxy.async.shared::cta; bar.sync 0;
"""


def accumulator_io(count, out):
    """Load or store ``count`` 32-bit registers %d of each thread from array ``c`` or to ``d``."""
    name, code = ("d", "st.global.b32 [%p6+{at}], %d{i};") if out else (
        "c", "ld.global.b32 %d{i}, [%p6+{at}];")  # fmt: skip
    text = f"ld.param.u64 %p6, [{name}]; mov.u32 %t0, %tid.x; mul.wide.u32 %p7, %t0, {4 * count};"
    text += "add.u64 %p6, %p6, %p7;\n"
    return text + "\n".join(code.format(at=4 * i, i=i) for i in range(count))


FENCE, COMMIT, WAIT = (f"wgmma.{w}.sync.aligned" for w in ("fence", "commit_group", "wait_group"))
PARAMS = ".param .u64 image, .param .u64 c, .param .u64 a, .param .u64 d"


def wgmma_kernel(body, size, count, extra=""):
    """A kernel for one warpgroup: shared memory gets ``image``, %d the accumulators of ``c``."""
    head = f""".reg .b64 %p<20>; .reg .b32 %t<20>; .reg .pred %q<8>; .reg .b32 %d<{count}>;
.reg .b32 %a<8>; .reg .b64 %desc<8>; {extra}"""
    text = head + COPY.format(size=size, start=START, step=16 * 128)
    text += accumulator_io(count, out=False) + "\n" + body + "\n" + accumulator_io(count, out=True)
    return ptx_kernel(text + "\nret;", PARAMS, ".extern .shared .align 1024 .b8 smem[];")


LOAD_A = """ld.param.u64 %p6, [a]; mov.u32 %t0, %tid.x; mul.wide.u32 %p7, %t0, 16;
add.u64 %p6, %p6, %p7; ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%p6];
"""


def run_wgmma(body, image, c_registers, a_registers=None, threads=128, **options):
    """Run a body; returns the accumulator registers uint32 [thread, register] and the counters."""
    image = np.ascontiguousarray(image, np.uint8)
    c = np.ascontiguousarray(c_registers).view(np.uint32)
    a = np.zeros((128, 4), np.uint32) if a_registers is None else a_registers
    d = np.zeros_like(c)
    kernel = wgmma_kernel(body, image.size, c.shape[1])
    result = emulator.run(kernel, 1, threads, [image, c, np.ascontiguousarray(a), d],
                          shared_bytes=image.size, **options)  # fmt: skip
    return d, result.counters


class Operand:
    """A matrix [row, k] placed in the shared image by the layout algebra."""

    def __init__(self, values, mode="128", k_major=True, start=START, lbo=None, sbo=None, shift=0):
        rows, itemsize = values.shape[0], values.dtype.itemsize
        lbo0, sbo0, _ = shared.dense(mode, k_major, rows, itemsize)
        lbo, sbo = lbo0 if lbo is None else lbo, sbo0 if sbo is None else sbo
        self.at = shared.addresses(mode, k_major, rows, itemsize, start + shift, lbo, sbo)
        self.values, self.start, self.end = values, start, int(self.at.max()) + itemsize
        self.word = shared.descriptor(mode, start + shift, lbo, sbo)

    def write(self, image):
        raw = np.ascontiguousarray(self.values).view(np.uint8)
        width = self.values.dtype.itemsize
        raw = raw.reshape(*self.values.shape, width)
        for byte in range(width):
            image[self.at - START + byte] = raw[..., byte]


def shared_image(*operands):
    """uint8 image of shared memory with the operands; the rest is a recognisable pattern."""
    end = max(o.end for o in operands) - START
    image = np.full(-(-end // 16) * 16, 0x7B, np.uint8)
    for operand in operands:
        operand.write(image)
    return image


def pack_accumulator(matrix):
    """[row, column] -> uint32 [thread, register]."""
    rows, columns = fragments.accumulator(*matrix.shape)
    return np.ascontiguousarray(matrix[rows, columns]).view(np.uint32)


def unpack_accumulator(words, dtype, shape):
    rows, columns = fragments.accumulator(*shape)
    matrix = np.zeros(shape, dtype)
    matrix[rows, columns] = np.ascontiguousarray(words).view(dtype)
    return matrix


def pack_a(matrix):
    """A [row, k] -> uint32 [thread, register]."""
    per = 4 // matrix.dtype.itemsize
    rows, ks = fragments.operand_a(*matrix.shape, per)
    return np.ascontiguousarray(matrix[rows, ks]).view(np.uint32)


def pack_b(matrix):
    """B [column, k] -> uint32 [thread, register]."""
    per = 4 // matrix.dtype.itemsize
    columns, ks = fragments.operand_b(matrix.shape[1], per)
    return np.ascontiguousarray(matrix[columns, ks]).view(np.uint32)


def issue(form, count, a, b, scale="1", tail=", 1, 1, 0, 0"):
    """The text of one wgmma."""
    return (
        f"wgmma.mma_async.sync.aligned.{form} {registers('d', count)}, {a}, {b}, {scale}{tail};\n"
    )


def one_wgmma(form, count, a, b, scale="1", tail=", 1, 1, 0, 0"):
    """Fence, one wgmma, commit and wait."""
    return f"{FENCE};\n{issue(form, count, a, b, scale, tail)}{COMMIT};\n{WAIT} 0;\n"
