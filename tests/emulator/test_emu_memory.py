"""Loads, stores and atomics in every state space."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import BF16, HEADER, compute, floats, integers, ptx_kernel, same_bits

from gpukit import emulator
from gpukit.emulator.errors import (
    KernelFault,
    MisalignedError,
    OutOfBoundsError,
    UninitializedReadError,
)


def run_cuda(source, grid, block, args, **options):
    return emulator.run(source, grid, block, args, **options)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("policy", ["random", "starved"])
def test_vectors_of_every_width(rng, seed, policy):
    n = 96
    x = rng.integers(0, 1 << 32, 8 * n, np.uint32)
    y = np.zeros_like(x)
    body = """
    .reg .b64 %a<4>; .reg .b32 %r<20>; .reg .b64 %w<6>;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %a0, %r0, 32, %a0; mad.wide.u32 %a1, %r0, 32, %a1;
    ld.global.nc.L1::no_allocate.L2::128B.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%a0];
    ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%a0+16];
    ld.global.v2.b64 {%w0, %w1}, [%a0];
    st.global.v2.b64 [%a1], {%w1, %w0};
    st.global.v4.b32 [%a1+16], {%r12, %r11, %r10, %r9};
    st.global.cs.v2.b32 [%a1+8], {%r1, %r2};
    ret;
    """
    ptx = ptx_kernel(body, ".param .u64 p0, .param .u64 p1")
    emulator.run(ptx, 1, n, [x, y], seed=seed, policy=policy)
    want = x.reshape(n, 8)[:, [2, 3, 0, 1, 7, 6, 5, 4]]
    assert (y.reshape(n, 8) == want).all()


def test_bytes_are_extended(rng):
    x = integers(rng, np.int8, 256)
    unsigned, signed = np.zeros(256, "u4"), np.zeros(256, "i8")
    body = """
    .reg .b64 %a<4>; .reg .b32 %r<4>; .reg .b64 %w<2>; .reg .b16 %h;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; ld.param.u64 %a2, [p2]; mov.u32 %r0, %tid.x;
    cvt.u64.u32 %a3, %r0; add.s64 %a0, %a0, %a3;
    ld.global.u8 %r1, [%a0]; ld.global.s8 %w0, [%a0]; ld.global.b8 %h, [%a0];
    st.global.b8 [%a0], %h;
    mad.wide.u32 %a1, %r0, 4, %a1; mad.wide.u32 %a2, %r0, 8, %a2;
    st.global.u32 [%a1], %r1; st.global.u64 [%a2], %w0; ret;
    """
    ptx = ptx_kernel(body, ".param .u64 p0, .param .u64 p1, .param .u64 p2")
    before = x.copy()
    emulator.run(ptx, 1, 256, [x, unsigned, signed])
    same_bits(unsigned, x.view(np.uint8).astype("u4"))
    same_bits(signed, x.astype("i8"))
    same_bits(x, before)


def test_128_bit_registers(rng):
    x, y = integers(rng, np.uint64, 128), np.zeros(128, np.uint64)
    body = """
    .reg .b64 %a<3>; .reg .b32 %r; .reg .b128 %q; .reg .b64 %l, %h; .reg .pred %p;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mov.u32 %r, %tid.x;
    mad.wide.u32 %a0, %r, 16, %a0; mad.wide.u32 %a1, %r, 16, %a1;
    ld.global.b128 %q, [%a0]; mov.b128 {%l, %h}, %q; setp.lt.u32 %p, %r, 32;
    @%p mov.b128 %q, {%h, %l}; st.global.b128 [%a1], %q; ret;
    """
    emulator.run(ptx_kernel(body, ".param .u64 p0, .param .u64 p1"), 1, 64, [x, y])
    want = x.reshape(64, 2).copy()
    want[:32] = want[:32, ::-1]
    assert (y.reshape(64, 2) == want).all()


CONSTANTS = """
__constant__ float table[4] = {1.5f, -2.f, 3.f, 4.25f};
__device__ int counter = 5;
__device__ int* links[2] = {&counter, nullptr};
struct Pair { int n; float f; };
__device__ Pair pairs[2] = {{1, 2.5f}, {3, 4.5f}};
extern "C" __global__ void k(float* y, int* z) {
  int i = threadIdx.x;
  y[i] = table[i & 3] + pairs[i & 1].f;
  atomicAdd(links[0], 1);
  __syncthreads();
  z[i] = counter + pairs[i & 1].n;
}
"""


def test_module_variables_have_their_initial_values():
    y, z = np.zeros(64, "f4"), np.zeros(64, "i4")
    run_cuda(CONSTANTS, 1, 64, [y, z])
    i = np.arange(64)
    same_bits(y, np.array([1.5, -2, 3, 4.25], "f4")[i & 3] + np.array([2.5, 4.5], "f4")[i & 1])
    assert (z == 69 + np.array([1, 3])[i & 1]).all()


def test_variables_live_as_long_as_the_memory():
    memory = emulator.GlobalMemory()
    y, z = np.zeros(64, "f4"), np.zeros(64, "i4")
    for launch in (1, 2):
        run_cuda(CONSTANTS, 1, 64, [y, z], memory=memory)
        assert z[0] == 5 + 64 * launch + 1


def test_generic_addresses_find_their_space(rng):
    source = """
    extern "C" __global__ void k(const int* x, int* y) {
      __shared__ int s[64]; int local[4];
      int i = threadIdx.x; s[i] = 100 + i; for (int j = 0; j < 4; j++) local[j] = 1000 * j + i;
      __syncthreads();
      const int* p = i % 3 == 0 ? &x[i] : i % 3 == 1 ? &s[63 - i] : &local[i & 3];
      asm volatile("" : "+l"(p));
      y[i] = *p;
    }"""
    x, y = integers(rng, np.int32, 64), np.zeros(64, "i4")
    run_cuda(source, 1, 64, [x, y])
    i = np.arange(64)
    want = np.where(i % 3 == 0, x, np.where(i % 3 == 1, 163 - i, 1000 * (i & 3) + i))
    same_bits(y, want.astype("i4"))


def test_lanes_may_use_different_arrays(rng):
    source = """extern "C" __global__ void k(int* a, int* b, int* c) {
      int i = threadIdx.x; int* p = i & 1 ? a : b; c[i] = p[i]; p[i] = -i; }"""
    a, b, c = integers(rng, np.int32, 64), integers(rng, np.int32, 64), np.zeros(64, "i4")
    before_a, before_b = a.copy(), b.copy()
    run_cuda(source, 1, 64, [a, b, c])
    odd = np.arange(64) % 2 == 1
    same_bits(c, np.where(odd, before_a, before_b))
    same_bits(a, np.where(odd, -np.arange(64), before_a).astype("i4"))


def test_dynamic_and_static_shared_memory():
    source = """extern __shared__ float dyn[];
    extern "C" __global__ void k(float* y, int n) { __shared__ double fixed[3];
      int i = threadIdx.x; dyn[n - 1 - i] = i; if (i < 3) fixed[i] = 0.5 + i; __syncthreads();
      y[i] = dyn[i] + fixed[i % 3]; }"""
    y = np.zeros(64, "f4")
    run_cuda(source, 1, 64, [y, np.int32(64)], shared_bytes=256)
    i = np.arange(64)
    same_bits(y, (63 - i + 0.5 + i % 3).astype("f4"))


def test_local_arrays_with_computed_indices():
    source = """extern "C" __global__ void k(const int* x, int* y) {
      int a[16]; int i = threadIdx.x; for (int j = 0; j < 16; j++) a[(j * 5 + i) & 15] = x[j] * j;
      int s = 0; for (int j = 0; j <= i % 16; j++) s += a[j] << (j & 3); y[i] = s; }"""
    x, y = np.arange(16, dtype="i4") + 3, np.zeros(48, "i4")
    run_cuda(source, 1, 48, [x, y])
    for i in range(48):
        a = {(j * 5 + i) & 15: x[j] * j for j in range(16)}
        assert y[i] == sum(a[j] << (j & 3) for j in range(i % 16 + 1))


def test_structs_by_value():
    source = """struct P { int n; float f; double d; char c[5]; };
    extern "C" __global__ void k(const __grid_constant__ P p, double* y) {
      const char* c = p.c; y[threadIdx.x] = p.n + p.f + p.d + c[threadIdx.x % 5]; }"""
    dtype = np.dtype([("n", "i4"), ("f", "f4"), ("d", "f8"), ("c", "i1", 5)], align=True)
    p = np.zeros((), dtype)
    p["n"], p["f"], p["d"], p["c"] = 3, 0.5, 1e-3, np.arange(5)
    y = np.zeros(10)
    run_cuda(source, 1, 10, [p[()], y])
    assert np.allclose(y, 3.501 + np.arange(10) % 5)
    run_cuda(source, 1, 10, [p.tobytes(), y])
    assert np.allclose(y, 3.501 + np.arange(10) % 5)


# Atomics

UPDATES = {
    "add": lambda o, b: o + b, "min": min, "max": max, "exch": lambda o, b: b,
    "and": lambda o, b: o & b, "or": lambda o, b: o | b, "xor": lambda o, b: o ^ b,
    "inc": lambda o, b: 0 if o >= b else o + 1, "dec": lambda o, b: b if o == 0 or o > b else o - 1,
}  # fmt: skip


def sequentially(update, memory, index, values):
    """Lane after lane: the final memory and what each lane found."""
    memory, found = memory.copy(), []
    bits = memory.dtype.itemsize * 8
    for i, v in zip(index.tolist(), values.tolist(), strict=True):
        old = int(memory[i])
        found.append(old)
        new = update(old, v) & ((1 << bits) - 1)
        memory[i] = np.array(new, f"u{bits // 8}").view(memory.dtype)
    return memory, np.array(found, memory.dtype)


@pytest.mark.parametrize("name", ["u32", "s32", "u64"])
@pytest.mark.parametrize("op", UPDATES)
def test_integer_atomics(rng, op, name):
    if op in ("inc", "dec") and name != "u32":
        name = "u32"
    dtype = np.dtype(f"{'i' if name[0] == 's' else 'u'}{int(name[1:]) // 8}")
    type_ = f"b{name[1:]}" if op in ("and", "or", "xor", "exch") else name
    index = rng.integers(0, 7, 64, np.uint32)
    index[:20] = 3
    values = integers(rng, dtype, 64)
    memory, found = integers(rng, dtype, 7), np.zeros(64, dtype)
    size = dtype.itemsize
    body = f"""
    .reg .b64 %a<5>; .reg .b32 %r<3>; .reg .b{size * 8} %v, %o;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; ld.param.u64 %a2, [p2]; ld.param.u64 %a3, [p3];
    mov.u32 %r0, %tid.x; mad.wide.u32 %a1, %r0, 4, %a1; mad.wide.u32 %a2, %r0, {size}, %a2;
    mad.wide.u32 %a3, %r0, {size}, %a3; ld.global.u32 %r1, [%a1];
    mad.wide.u32 %a0, %r1, {size}, %a0;
    ld.global.b{size * 8} %v, [%a2]; atom.relaxed.gpu.global.{op}.{type_} %o, [%a0], %v;
    st.global.b{size * 8} [%a3], %o; ret;"""
    params = ".param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3"
    want, olds = sequentially(UPDATES[op], memory, index, values)
    emulator.run(ptx_kernel(body, params), 1, 64, [memory, index, values, found])
    same_bits(memory, want)
    same_bits(found, olds)


def test_compare_and_swap_takes_a_lock():
    source = """__device__ int lock = 0;
    extern "C" __global__ void k(int* sum, int* order) {
      bool done = false;
      while (!done) { if (atomicCAS(&lock, 0, 1) == 0) {
          __threadfence(); int s = *(volatile int*)sum;
          order[s] = blockIdx.x * blockDim.x + threadIdx.x;
          *(volatile int*)sum = s + 1; __threadfence(); atomicExch(&lock, 0); done = true; } } }"""
    for policy in ("random", "starved"):
        total, order = np.zeros(1, "i4"), np.zeros(192, "i4")
        run_cuda(source, 3, 64, [total, order], policy=policy)
        assert total[0] == 192
        assert sorted(order) == list(range(192))


@pytest.mark.parametrize("name", ["f32", "f64", "f16x2", "bf16x2"])
def test_float_atomics(rng, name):
    dtype = {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "f16x2": np.dtype("f2"), "bf16x2": BF16}[
        name
    ]
    pack = 2 if "x2" in name else 1
    values = rng.integers(-8, 8, 64 * pack).astype(dtype)
    memory = np.zeros(4 * pack, dtype)
    size = dtype.itemsize * pack
    body = f"""
    .reg .b64 %a<3>; .reg .b32 %r<3>; .reg .b{size * 8} %v;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %a1, %r0, {size}, %a1; and.b32 %r1, %r0, 3; mad.wide.u32 %a0, %r1, {size}, %a0;
    ld.global.b{size * 8} %v, [%a1]; red.global.add{".noftz" if pack == 2 else ""}.{name} [%a0], %v;
    ret;"""
    emulator.run(ptx_kernel(body, ".param .u64 p0, .param .u64 p1"), 1, 64, [memory, values])
    want = values.astype("f8").reshape(-1, 4, pack).sum(axis=0)
    same_bits(memory, want.ravel().astype(dtype))


def test_vector_atomics(rng):
    values, memory = rng.integers(-8, 8, 128).astype("f4"), np.zeros(4, "f4")
    body = """
    .reg .b64 %a<3>; .reg .b32 %r<6>; .reg .f32 %f<4>;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %a1, %r0, 16, %a1;
    ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%a1];
    red.global.add.v4.f32 [%a0], {%f0, %f1, %f2, %f3}; ret;"""
    emulator.run(ptx_kernel(body, ".param .u64 p0, .param .u64 p1"), 1, 32, [memory, values])
    same_bits(memory, values.reshape(32, 4).sum(axis=0))


def test_shared_histogram(rng):
    source = """extern "C" __global__ void k(const int* x, int* h, int n) {
      __shared__ int s[16]; if (threadIdx.x < 16) s[threadIdx.x] = 0; __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&s[x[i] & 15], 1);
      __syncthreads(); if (threadIdx.x < 16) h[threadIdx.x] = s[threadIdx.x]; }"""
    x, h = integers(rng, np.int32, 1000), np.zeros(16, "i4")
    run_cuda(source, 1, 96, [x, h, np.int32(1000)])
    assert (h == np.bincount(x & 15, minlength=16)).all()


def test_global_f32_atomics_flush_subnormals():
    memory = np.array([1e-40, 1e-40], "f4")
    body = """.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [p0]; mov.f32 %f, 0f00000000;
    red.global.add.f32 [%a], %f; ret;"""
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 1, [memory])
    assert memory[0] == 0
    assert memory[1] == np.float32(1e-40)


# Checks: each bad kernel trips exactly its check, the good twin none.

COPY = """extern "C" __global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}"""


def test_bounds_of_each_allocation():
    x, y = np.zeros(100, "f4"), np.zeros(100, "f4")
    run_cuda(COPY, 1, 128, [x, y, np.int32(100)])
    with pytest.raises(OutOfBoundsError) as caught:
        run_cuda(COPY, 1, 128, [x, y, np.int32(101)])
    text = str(caught.value)
    assert "kernel.cu:3" in text
    assert "4 bytes past the end of args[0] of k (400 bytes)" in text
    assert "CTA (0, 0, 0), warp 3, lane 4" in text
    assert caught.value.address is not None
    run_cuda(COPY, 1, 128, [x, y, np.int32(100)])  # the process stays usable


def test_null_and_negative_addresses():
    with pytest.raises(OutOfBoundsError, match="no allocation"):
        run_cuda(COPY, 1, 32, [None, np.zeros(32, "f4"), np.int32(32)])
    source = 'extern "C" __global__ void k(float* x) { x[-1 - (int)threadIdx.x] = 1; }'
    with pytest.raises(OutOfBoundsError, match="4 bytes before the start of args"):
        run_cuda(source, 1, 32, [np.zeros(32, "f4")])


def test_shared_bounds():
    source = """extern __shared__ int s[];
    extern "C" __global__ void k(int* y, int n) { s[threadIdx.x] = 1; __syncthreads();
      if (threadIdx.x == 0) y[0] = s[n]; }"""
    y = np.zeros(1, "i4")
    run_cuda(source, 1, 32, [y, np.int32(31)], shared_bytes=128)
    with pytest.raises(OutOfBoundsError, match="the CTA has 128 bytes"):
        run_cuda(source, 1, 32, [y, np.int32(32)], shared_bytes=128)
    with pytest.raises(OutOfBoundsError, match="no CTA of rank"):
        run_cuda(source, 1, 32, [y, np.int32(1 << 22)], shared_bytes=128)


def test_local_bounds():
    source = """extern "C" __global__ void k(int* y, int n) { int a[4]; for (int i = 0; i < 4;
      i++) a[i] = i;
      asm volatile("" :: "l"(a) : "memory"); y[threadIdx.x] = a[n]; }"""
    y = np.zeros(32, "i4")
    run_cuda(source, 1, 32, [y, np.int32(3)])
    assert (y == 3).all()
    with pytest.raises(OutOfBoundsError, match="local memory"):
        run_cuda(source, 1, 32, [y, np.int32(4)])


def test_alignment():
    source = """extern "C" __global__ void k(const char* x, float* y, int shift) {
      y[threadIdx.x] = *(const float*)(x + shift + 4 * threadIdx.x); }"""
    x, y = np.arange(64, dtype="f4"), np.zeros(32, "f4")
    run_cuda(source, 1, 32, [x, y, np.int32(8)])
    same_bits(y, x[2:34])
    with pytest.raises(MisalignedError, match="not a multiple of the access size, 4 bytes"):
        run_cuda(source, 1, 32, [x, y, np.int32(6)])


def test_views_keep_their_misalignment():
    source = """extern "C" __global__ void k(const float4* x, float* y) {
      float4 v = x[threadIdx.x]; y[threadIdx.x] = v.x + v.y + v.z + v.w; }"""
    x, y = np.arange(132, dtype="f4"), np.zeros(32, "f4")
    run_cuda(source, 1, 32, [x[4:], y])
    same_bits(y, x[4:].reshape(32, 4).sum(axis=1))
    with pytest.raises(MisalignedError, match="16 bytes"):
        run_cuda(source, 1, 32, [x[1:129], y])


def test_uninitialized_global_memory():
    x, y = np.zeros(64, "f4"), np.zeros(64, "f4")
    run_cuda(COPY, 1, 64, [x, emulator.Uninitialized(y), np.int32(64)])
    with pytest.raises(UninitializedReadError, match=r"global memory.*nothing has written"):
        run_cuda(COPY, 1, 64, [emulator.Uninitialized(x), y, np.int32(64)])


SHARED = """extern "C" __global__ void k(float* y, int n) {
  __shared__ float s[64];
  if (threadIdx.x < n) s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}"""


def test_uninitialized_shared_memory():
    y = np.zeros(128, "f4")
    run_cuda(SHARED, 2, 64, [y, np.int32(64)])
    with pytest.raises(UninitializedReadError, match=r"kernel.cu:5 .*shared memory"):
        run_cuda(SHARED, 2, 64, [y, np.int32(63)])
    run_cuda(SHARED, 2, 64, [y, np.int32(63)], checks=False)


def test_uninitialized_local_memory():
    source = """extern "C" __global__ void k(int* y, int n) { int a[4]; for (int i = 0; i < n;
      i++) a[i] = i;
      asm volatile("" :: "l"(a) : "memory"); y[threadIdx.x] = a[3]; }"""
    y = np.zeros(32, "i4")
    run_cuda(source, 1, 32, [y, np.int32(4)])
    with pytest.raises(UninitializedReadError, match="local memory"):
        run_cuda(source, 1, 32, [y, np.int32(3)])


def test_read_only_memory():
    x = np.zeros(32, "f4")
    x.flags.writeable = False
    y = np.zeros(32, "f4")
    run_cuda(COPY, 1, 32, [x, y, np.int32(32)])
    with pytest.raises(KernelFault, match=r"writes to args\[1\] of k, which is read-only"):
        run_cuda(COPY, 1, 32, [y, x, np.int32(32)])


def test_hints_do_nothing(rng):
    body = """.reg .b64 %w; createpolicy.fractional.L2::evict_last.b64 %w, 1.0;
    prefetch.global.L2 [%p0]; mov.b32 %d, %a;"""
    a = integers(rng, np.uint32, 64)
    same_bits(compute(body, a), a)
    assert HEADER.startswith(".version")
    assert floats(rng, "f4", 8).size == 8


def test_shared_addresses_are_cut_to_32_bits():
    """A generic pointer in a 64-bit register names the same byte of shared memory."""
    source = r"""extern "C" __global__ void k(int* y) {
      __shared__ int x[64]; __shared__ unsigned long long bar;
      x[threadIdx.x] = threadIdx.x + 7;
      if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "l"(&bar) : "memory");
      __syncthreads();
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(y[threadIdx.x]) : "l"(x + 63 - threadIdx.x));
    }"""
    y = np.zeros(64, "i4")
    emulator.run(source, 1, 64, [y])
    assert (y == 70 - np.arange(64)).all()


def test_equal_bytes_of_short_and_long_addresses_are_two_patterns():
    """Distances of two warps' short addresses have the bytes of those of one warp's long ones."""
    source = """
    extern "C" __global__ void both(int* out) {
        __shared__ int s[64];
        const int t = threadIdx.x;
        s[t] = 100 + t;
        __syncthreads();
        const unsigned base = __cvta_generic_to_shared(s);
        int one, other;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(one) : "r"(base + (t & 1 ? 0 : t / 2 * 4)));
        out[t] = one;
        if (t < 32) {
            asm volatile("bar.sync 1, 32;" ::: "memory");  // warps go apart
            asm volatile("ld.u32 %0, [%1];" : "=r"(other) : "l"(s + t));
            out[64 + t] = other;
        }
    }
    """
    out = np.full(96, -1, np.int32)
    run_cuda(source, 1, 64, (out,))
    lane = np.arange(64)
    np.testing.assert_array_equal(out[:64], np.where(lane % 2, 100, 100 + lane // 2))
    np.testing.assert_array_equal(out[64:], 100 + lane[:32])
