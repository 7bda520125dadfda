"""The C++ types of parameters, from mangled names and from sources."""

from __future__ import annotations

import pytest

from gpukit.emulator.nvrtc import compile_ptx
from gpukit.emulator.ptx.parser import parse
from gpukit.emulator.signature import demangled, parameter_types

PARAMETERS = "const float* __restrict__ x, int *y, unsigned n, long long m, bool b, float4 v"
TYPES = ("float*", "int*", "unsigned int", "long long", "bool", "float4")


def types_of(source):
    """The types of the only kernel of a source."""
    module = parse(compile_ptx(source))
    (kernel,) = module.entries
    return parameter_types(kernel, source, len(module.functions[kernel].params))


@pytest.mark.parametrize(
    ("source", "types"),
    [
        (f"__global__ void k({PARAMETERS}) {{}}", TYPES),
        (f"namespace a {{ namespace {{ __global__ void k({PARAMETERS}) {{}} }} }}", TYPES),
        ("template <class T, int N> __global__ void k(T* x, T a) {}"
         "template __global__ void k<float, 4>(float*, float);", ("float*", "float")),
        ("__global__ void k(void (*f)(int, int), float* const* x) {}",
         ("void (*)(int, int)", "float**")),
        ("template <class A, class B> struct P {};"
         "__global__ void k(P<int, P<int, int>> p, int n) {}",
         ("P<int, P<int, int> >", "int")),
        ("__global__ void k() {}", ()),
    ],
)  # fmt: skip
def test_mangled_names(source, types):
    assert types_of(source) == types


@pytest.mark.parametrize(
    ("source", "types"),
    [
        (f'extern "C" __global__ void k({PARAMETERS}) {{}}',
         (*TYPES[:2], "unsigned", *TYPES[3:])),
        ('extern "C" __global__ __launch_bounds__(64, 2) void k(float x[4], /* int, */ int n) {}',
         ("float*", "int")),
        ('extern "C" { __global__ void\nk(float*, // the output, see k(int)\n  const int) {} }',
         ("float*", "int")),
        ('extern "C" __global__ void kk(int); extern "C" __global__ void k(float* x);'
         'extern "C" __global__ void k(float* y) {}', ("float*",)),
        ('#ifdef A\nextern "C" __global__ void k(double* x) {}\n#else\n'
         'extern "C" __global__ void k(float* x) {}\n#endif', ()),
        ('#define ARGS float* x, int n\nextern "C" __global__ void k(ARGS) {}', ()),
        ('extern "C" __global__ void k(void) {}', ()),
    ],
)  # fmt: skip
def test_sources(source, types):
    assert types_of(source) == types


def test_without_names_or_sources_nothing_is_known():
    assert parameter_types("k", "", 1) == ()
    assert demangled("k") == ""
    assert demangled("_Znonsense") == ""
    assert demangled("_Z1kPf") == "k(float*)"
