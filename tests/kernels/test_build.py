"""Every kernel compiles, offline, for every target it names; none spills.

One program per kernel and target holds all its listed variants: several times faster than a
program for each. Of a kernel's targets one gets them all, the others the first; all with -m slow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from gpukit import kernels
from gpukit.devices import nvrtc
from gpukit.errors import ArgumentError, CompileError
from gpukit.kernels import KernelSpec, Param, Tunable
from gpukit.kernels.spec import Tunables, arch_number

SPECS = tuple(kernels.registry().values())
TARGETS = [pytest.param(spec, arch, id=f"{spec.name}-{arch}")
           for spec in SPECS for arch in spec.archs]

# What a parameter of each kind looks like in PTX, and in the mangled name of the entry.
PTX_TYPE = {"pointer": "u64", "i32": "u32", "u32": "u32", "i64": "u64", "u64": "u64",
            "f32": "f32", "f64": "f64", "tensor_map": "b8[128]"}
MANGLED = {"i32": "i", "u32": "j", "i64": "x", "u64": "y", "f32": "f", "f64": "d"}

# Two warpgroups of 240 registers a thread leave 24 to those that copy and transpose; what computes
# does not spill. Bytes that are known and accepted:
ACCEPTED = {"attention.sm90.k6": {"d": 256, "bytes": 40}}


def home(spec: KernelSpec) -> str:
    """The target whose variants are all built."""
    return "sm_90" if "sm_90" in spec.archs else spec.archs[0]


@pytest.mark.parametrize(("spec", "arch"), TARGETS)
def test_cubins_build_without_spills(spec: KernelSpec, arch: str) -> None:
    require_builds(spec, spec.variants if arch == home(spec) else spec.variants[:1], arch)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "arch"), TARGETS)
def test_all_cubins_build_without_spills(spec: KernelSpec, arch: str) -> None:
    require_builds(spec, spec.variants, arch)


def require_builds(spec: KernelSpec, variants: Sequence[Tunables], arch: str) -> None:
    """They do not spill, and read the parameters of their spec."""
    built = nvrtc.compile_variants(spec, variants, arch)
    spills, want = {}, [PTX_TYPE[p.kind] for p in spec.params]
    ptx = built[0].ptx.decode()
    for variant, compiled in zip(variants, built, strict=True):
        assert parameter_types(ptx, compiled.entry) == want
        used = nvrtc.resources(compiled)
        assert 0 < used.registers <= 255
        accepted = ACCEPTED.get(spec.name, {})
        most = accepted.get("bytes", 0) if variant.get("d") == accepted.get("d", 0) else 0
        if used.spill_bytes > most:
            spills[spec.expression(spec.resolve(variant))] = used.spill_bytes
    assert not spills, f"bytes of spills for {arch}: {spills}"
    assert built[0].image.startswith(b"\x7fELF")


@pytest.mark.parametrize("arch", ["compute_90a", "compute_100a"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_ptx_builds_and_matches_the_spec(spec: KernelSpec, arch: str) -> None:
    if not runs_on(spec, arch):
        pytest.skip(f"{spec.name} is for {', '.join(spec.archs)}")
    compiled = nvrtc.compile_kernel(spec, {}, arch)
    text = compiled.image.decode()
    assert f".target {arch.replace('compute', 'sm')}" in text
    assert parameter_types(text, compiled.entry) == [PTX_TYPE[p.kind] for p in spec.params]
    assert compiled.entry.endswith(trailing_scalars(spec))


def runs_on(spec: KernelSpec, arch: str) -> bool:
    exact = arch.replace("compute", "sm") in spec.archs
    plain = [a for a in spec.archs if not a.endswith("a")]
    return exact or any(arch_number(a) <= arch_number(arch) for a in plain)


def parameter_types(ptx: str, entry: str) -> list[str]:
    """The types of an entry's parameters, in order: "u64", or "b8[128]" for a struct."""
    match = re.search(rf"\.entry {re.escape(entry)}\s*\((.*?)\)\s*[.{{]", ptx, re.DOTALL)
    assert match, f"no entry {entry}"
    found = re.findall(r"\.param\s+(?:\.align \d+\s+)?\.(\w+)[^,\[\n]*(\[\d+\])?", match[1])
    return [kind + size for kind, size in found]


def trailing_scalars(spec: KernelSpec) -> str:
    """Itanium codes of the scalar parameters at the end: PTX does not tell i64 from a pointer."""
    codes = ""
    for param in reversed(spec.params):
        if param.kind not in MANGLED:
            break
        codes = MANGLED[param.kind] + codes
    return codes


def test_parameter_types_reads_structs() -> None:
    ptx = (".visible .entry k(\n\t.param .align 64 .b8 k_param_0[128],\n\t.param .f32 k_param_1\n)"
           "\n.maxntid 32, 1, 1\n{")
    assert parameter_types(ptx, "k") == ["b8[128]", "f32"]


@pytest.fixture
def scratch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a spec of one tunable N from source text."""
    monkeypatch.setattr("gpukit.sources.root", lambda: tmp_path)

    def make(text: str, entry: str = "k<{N}>") -> KernelSpec:
        (tmp_path / "k.cu").write_text(text)
        return KernelSpec("scratch.k", "k.cu", entry, "", ("sm_80",),
                          (Tunable("N", (4, 8, 64), 8, ""),), (Param("x", "pointer", ""),))

    return make


def test_a_spilling_kernel_is_seen_beside_a_clean_one(scratch: Any) -> None:
    spec = scratch("""
template <int N> __global__ void __launch_bounds__(1024, 2) k(volatile float* x) {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = x[i];
#pragma unroll
    for (int i = 0; i < N; ++i) x[N - i] = v[i];
}
""")
    spills = [nvrtc.resources(c).spill_bytes
              for c in nvrtc.compile_variants(spec, [{"N": 4}, {"N": 64}, {"N": 8}], "sm_80")]
    assert spills[0] == spills[2] == 0
    assert spills[1] > 0


def test_resources_are_read_per_entry(scratch: Any) -> None:
    spec = scratch("template <int N> __global__ void k(float* x) { __shared__ float s[N];"
                   " s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[0] = s[N - 1]; }")
    built = nvrtc.compile_variants(spec, [{"N": 64}, {"N": 4}], "sm_80")
    assert [nvrtc.resources(c).static_shared_bytes for c in built] == [256, 16]
    assert built[0].entry != built[1].entry


def test_ptx_has_no_resources(scratch: Any) -> None:
    spec = scratch("template <int N> __global__ void k(float* x) {}")
    with pytest.raises(CompileError, match="no ptxas report"):
        nvrtc.resources(nvrtc.compile_kernel(spec, {}, "compute_80"))


def test_bad_tunables_never_reach_the_compiler(scratch: Any) -> None:
    with pytest.raises(ArgumentError, match=r"scratch\.k: N=5 is not accepted"):
        nvrtc.compile_kernel(scratch("not C++"), {"N": 5}, "sm_80")


def test_wrong_assembly_is_found_for_a_real_target(scratch: Any) -> None:
    """ptxas, not the front end, checks inline assembly: PTX alone would not show the error."""
    spec = scratch('template <int N> __global__ void k(float* x) { asm("wgmma.fence.bogus;"); }')
    nvrtc.compile_kernel(spec, {}, "compute_80")
    with pytest.raises(CompileError, match=r"k<8> does not compile for sm_80:\n.*ptxas"):
        nvrtc.compile_kernel(spec, {}, "sm_80")
