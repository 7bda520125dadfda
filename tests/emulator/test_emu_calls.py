"""Functions: calls, recursion, pointers, jump tables, printf, assert and trap."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import integers, ptx_kernel, same_bits

from gpukit import emulator
from gpukit.emulator.errors import KernelFault, TrapError, UnsupportedInstructionError
from gpukit.emulator.policies import POLICIES


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_divergent_recursion(policy):
    source = """__device__ __noinline__ int fib(int n) {
      return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    extern "C" __global__ void k(int* y) { int i = threadIdx.x;
    y[i] = fib(i % 9) * 100 + fib((i + 3) % 7); }"""
    y = np.zeros(96, "i4")
    emulator.run(source, 1, 96, [y], policy=policy)
    assert y.tolist() == [fibonacci(i % 9) * 100 + fibonacci((i + 3) % 7) for i in range(96)]


def test_stack_overflow_is_reported():
    source = """__device__ __noinline__ int deep(int n, int* p) { int a[8]; a[n & 7] = *p;
      p = n & 1 ? a + (n & 7) : p;
      return n == 0 ? *p : deep(n - 1, p) + a[n & 7]; }
    extern "C" __global__ void k(int* y, int n) { int x = 1; y[threadIdx.x] = deep(n, &x); }"""
    y = np.zeros(32, "i4")
    emulator.run(source, 1, 32, [y, np.int32(10)])
    assert (y == 12 - 1).all()
    with pytest.raises(KernelFault, match=r"stack overflow calling .*deep.*raise stack_bytes="):
        emulator.run(source, 1, 32, [y, np.int32(1000)])
    emulator.run(source, 1, 32, [y, np.int32(200)], stack_bytes=64 * 1024)
    assert (y == 201).all()


def test_arguments_structs_and_divergent_calls():
    source = """struct V { float x; double y; short z; };
    __device__ __noinline__ V scale(V v, float s) { v.x *= s; v.y += s; v.z -= 2; return v; }
    extern "C" __global__ void k(double* y) { int i = threadIdx.x; V v = {1.5f * i, 0.25, (short)i};
      if (i % 3 == 0) v = scale(v, 2.f); else if (i % 3 == 1) { v = scale(v, 3.f);
      v = scale(v, 0.5f); }
      y[i] = v.x + v.y + v.z; }"""
    y = np.zeros(64)
    emulator.run(source, 1, 64, [y])
    for i in range(64):
        x, d, z = 1.5 * i, 0.25, i
        for s in {0: [2], 1: [3, 0.5], 2: []}[i % 3]:
            x, d, z = x * s, d + s, z - 2
        assert y[i] == x + d + z


TABLE = """typedef int (*F)(int);
__device__ __noinline__ int inc(int a) { return a + 1; }
__device__ __noinline__ int twice(int a) { return a * 2; }
__device__ __noinline__ int square(int a) { return a * a; }
__device__ F table[] = {square, twice, inc};
__device__ F chosen = twice;
extern "C" __global__ void all(int* y) { int i = threadIdx.x; y[i] = table[i % 3](i); }
extern "C" __global__ void choose(int which) { chosen = table[which]; }
extern "C" __global__ void use(int* y) { int i = threadIdx.x; y[i] = inc(chosen(i)); }
"""


def test_tables_of_functions():
    y = np.zeros(96, "i4")
    emulator.run(TABLE, 1, 96, [y], kernel="all")
    assert y.tolist() == [(i * i, i * 2, i + 1)[i % 3] for i in range(96)]


def test_pointers_mean_the_same_function_in_all_kernels():
    memory, y = emulator.GlobalMemory(), np.zeros(32, "i4")
    emulator.run(TABLE, 1, 32, [y], kernel="use", memory=memory)
    assert y.tolist() == [2 * i + 1 for i in range(32)]
    emulator.run(TABLE, 1, 1, [0], kernel="choose", memory=memory)
    emulator.run(TABLE, 1, 32, [y], kernel="use", memory=memory)
    assert y.tolist() == [i * i + 1 for i in range(32)]


def test_virtual_functions():
    source = """struct Shape { virtual __device__ int area(int) const = 0; };
    struct Square : Shape { __device__ int area(int a) const override { return a * a; } };
    struct Line : Shape { int width = 3;
      __device__ int area(int a) const override { return a * width; } };
    extern "C" __global__ void k(int* y) { int i = threadIdx.x; Square square; Line line;
      const Shape* shape = &square; if (i & 1) shape = &line; y[i] = shape->area(i); }"""
    y = np.zeros(64, "i4")
    emulator.run(source, 1, 64, [y])
    assert y.tolist() == [3 * i if i & 1 else i * i for i in range(64)]


def test_function_pointers():
    source = """typedef int (*F)(int);
    __device__ __noinline__ int twice(int x) { return 2 * x; }
    __device__ __noinline__ int square(int x) { return x * x; }
    extern "C" __global__ void k(int* y, int n) { int i = threadIdx.x;
      F f = (i + n) & 1 ? twice : square; asm volatile("" : "+l"(f)); y[i] = f(i); }"""
    y = np.zeros(64, "i4")
    emulator.run(source, 1, 64, [y, np.int32(0)])
    assert y.tolist() == [2 * i if i & 1 else i * i for i in range(64)]


def test_jump_tables():
    body = """.reg .b32 %r<4>; .reg .b64 %a; ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x;
      and.b32 %r1, %r0, 3;
    mad.wide.u32 %a, %r0, 4, %a; mov.u32 %r2, 9;
    T: .branchtargets L0, L1, L2, L0;
    brx.idx %r1, T;
    L0: mov.u32 %r2, 7; bra END;
    L1: mov.u32 %r2, 8;
    L2: add.u32 %r2, %r2, 10;
    END: st.global.u32 [%a], %r2; ret;"""
    y = np.zeros(32, "u4")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 32, [y])
    assert y.tolist() == [7, 18, 19, 7] * 8


def test_register_parameters_are_refused():
    declarations = """.func (.reg .b32 out) add3 (.reg .b32 a, .reg .b32 b)
    { add.s32 out, a, b; add.s32 out, out, 3; ret; }"""
    body = """.reg .b32 %r<3>; .reg .b64 %a; ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %a, %r0, 4, %a; call (%r1), add3, (%r0, 5); st.global.u32 [%a], %r1; ret;"""
    with pytest.raises(UnsupportedInstructionError, match=r"only \.param variables can be passed"):
        emulator.run(ptx_kernel(body, ".param .u64 p0", declarations), 1, 32, [np.zeros(32, "u4")])


def test_running_off_the_end_returns():
    declarations = """.func twice (.param .b32 where)
    { .reg .b32 %r; .reg .pred %p; ld.param.u32 %r, [where]; setp.eq.u32 %p, %r, 3; @%p ret; }"""
    body = """.reg .b32 %r<3>; .reg .b64 %a; ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x;
    mad.wide.u32 %a, %r0, 4, %a; .param .b32 x; st.param.b32 [x], %r0; call twice, (x);
    st.global.u32 [%a], %r0;"""
    y = np.zeros(32, "u4")
    emulator.run(ptx_kernel(body, ".param .u64 p0", declarations), 1, 32, [y])
    assert y.tolist() == list(range(32))
    emulator.run(ptx_kernel(""), 1, 32, [])


def test_printf():
    source = """extern "C" __global__ void k(const char* s) { int i = threadIdx.x;
      if (i == 33) printf("%5d|%-4u|%x|%lld|%.3f|%s|%c|%%|%e\\n", -i, 7u, 255, 1ll << 40, 1.5,
      "text", 'z', 0.125);
      if (i < 2) printf("lane %d\\n", i); }"""
    result = emulator.run(source, 1, 64, [None])
    lines = result.output.splitlines()
    assert sorted(lines) == [
        "  -33|7   |ff|1099511627776|1.500|text|z|%|1.250000e-01", "lane 0", "lane 1",
    ]  # fmt: skip
    assert lines.index("lane 0") + 1 == lines.index("lane 1")


def test_assert_names_the_source_line():
    source = """extern "C" __global__ void k(int n) {
      assert(threadIdx.x + blockIdx.x * 32 != n);
    }"""
    emulator.run(source, 2, 32, [np.int32(99)])
    with pytest.raises(TrapError) as caught:
        emulator.run(source, 2, 32, [np.int32(37)])
    assert "kernel.cu:2: " in str(caught.value)
    assert "assertion `threadIdx.x + blockIdx.x * 32 != n` failed" in str(caught.value)
    assert "CTA (1, 0, 0), warp 0, lane 5" in str(caught.value)


def test_trap_names_the_source_line():
    source = 'extern "C" __global__ void k(int n) {\n  if (threadIdx.x == n)\n    __trap();\n}'
    emulator.run(source, 1, 32, [np.int32(32)])
    with pytest.raises(TrapError, match=r"kernel.cu:3 \(trap\): CTA \(0, 0, 0\), warp 0, lane 9"):
        emulator.run(source, 1, 32, [np.int32(9)])


def test_unsupported_instructions_are_listed_before_anything_runs(rng):
    source = """extern "C" __global__ void k(int* y) { y[0] = 1;
      asm volatile("tex.1d.v4.s32.s32 {%0, %0, %0, %0}, [%1, {%0}];" :: "r"(1), "l"(y));
      asm volatile("add.banana.s32 %0, %0, %0;" : "+r"(y[1]));
    }"""
    y = integers(rng, np.int32, 4)
    before = y.copy()
    with pytest.raises(UnsupportedInstructionError) as caught:
        emulator.run(source, 1, 32, [y])
    text = str(caught.value)
    assert "k: 2 unsupported instruction(s):" in text
    assert "kernel.cu:2: tex.1d.v4" in text
    assert "instruction tex is not known" in text
    assert "kernel.cu:3: add.banana.s32" in text
    assert "modifier .banana is not supported" in text
    same_bits(y, before)
