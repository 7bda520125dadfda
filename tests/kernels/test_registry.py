"""The registry: names, lookups, tunables, and which target a GPU gets."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

import pytest

from gpukit import kernels, sources
from gpukit.errors import ArgumentError, GpukitError, UnknownKernelError, UnsupportedError
from gpukit.kernels import KernelSpec, Param, Tunable
from gpukit.kernels.spec import arch_number

SPECS = tuple(kernels.registry().values())
EXP = kernels.get("elementwise.exp")

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def demo(*archs: str) -> KernelSpec:
    return KernelSpec(
        name="demo.k1", source="demo.cu", entry="demo<{tile}>", summary="a kernel", archs=archs,
        tunables=(Tunable("tile", (8, 16), 16, ""),), params=(Param("x", "pointer", ""),))


def family_specs() -> list[KernelSpec]:
    """The specs of every module below gpukit.kernels, found without the registry."""
    modules = [import_module(f"gpukit.kernels.{m.name}") for m in iter_modules(kernels.__path__)]
    return [spec for module in modules for spec in getattr(module, "SPECS", ())]


def test_no_two_specs_share_a_name_and_none_is_left_out() -> None:
    listed = [spec.name for spec in family_specs()]
    assert sorted(listed) == sorted(kernels.names())


@each_spec
def test_a_spec_is_found_by_its_name(spec: KernelSpec) -> None:
    assert kernels.get(spec.name) is spec
    assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", spec.name)


@each_spec
def test_the_source_exists_and_holds_the_entry(spec: KernelSpec) -> None:
    function = spec.entry.split("<")[0]
    assert re.search(rf"\b{function}\s*\(", sources.text(spec.source))


@each_spec
def test_a_spec_says_what_users_need(spec: KernelSpec) -> None:
    assert spec.summary and "\n" not in spec.summary
    assert spec.archs
    assert all(arch_number(arch) >= 75 for arch in spec.archs), "NVRTC 13 starts at sm_75"
    for tunable in spec.tunables:
        assert tunable.default in tunable.choices
        assert tunable.help
    assert len({p.name for p in spec.params}) == len(spec.params)


@each_spec
def test_every_tunable_reaches_the_entry(spec: KernelSpec) -> None:
    assert set(re.findall(r"{(\w+)}", spec.entry)) == set(spec.defaults)


@each_spec
def test_listed_variants_are_accepted_and_distinct(spec: KernelSpec) -> None:
    expressions = [spec.expression(spec.resolve(variant)) for variant in spec.variants]
    assert len(set(expressions)) == len(expressions)
    assert spec.shared_bytes(spec.resolve({})) >= 0


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownKernelError) as caught:
        kernels.get("elementwise.cos")
    assert str(caught.value).startswith("unknown kernel 'elementwise.cos'; known kernels: ")
    assert all(name in str(caught.value) for name in kernels.names())
    assert isinstance(caught.value, GpukitError) and isinstance(caught.value, KeyError)


def test_resolve_completes_with_defaults() -> None:
    assert EXP.resolve({"vec": 8}) == {t.name: t.default for t in EXP.tunables} | {"vec": 8}


def test_resolve_refuses_an_unknown_tunable() -> None:
    with pytest.raises(ArgumentError, match="exp has no tunable 'width'; it has dtype, vec, "):
        EXP.resolve({"width": 4})


@pytest.mark.parametrize("given", [{"vec": 3}, {"vec": "4"}, {"dtype": "f64"}, {"cache": None}])
def test_resolve_refuses_other_values(given: dict[str, object]) -> None:
    (name, value), = given.items()
    with pytest.raises(ArgumentError, match=rf"elementwise\.exp: {name}={value!r} is not accepted"):
        EXP.resolve(given)  # type: ignore[arg-type]


def test_a_kernel_without_tunables_says_so() -> None:
    with pytest.raises(ArgumentError, match="it has none"):
        replace(demo("sm_80"), tunables=()).resolve({"tile": 8})


@pytest.mark.parametrize(("archs", "capability", "target"), [
    (("sm_75", "sm_80"), (7, 5), "sm_75"),
    (("sm_75", "sm_80"), (8, 0), "sm_80"),
    (("sm_75", "sm_80"), (8, 9), "sm_89"),
    (("sm_75",), (9, 0), "sm_90"),
    (("sm_75",), (10, 0), "sm_100"),
    (("sm_75",), (12, 0), "sm_120"),
    (("sm_90a",), (9, 0), "sm_90a"),
    (("sm_100a",), (10, 0), "sm_100a"),
    (("sm_80", "sm_90a"), (9, 0), "sm_90a"),
    (("sm_80", "sm_90a"), (10, 0), "sm_100"),
    (("sm_90a", "sm_100a"), (10, 0), "sm_100a"),
])
def test_arch_for(archs: tuple[str, ...], capability: tuple[int, int], target: str) -> None:
    assert demo(*archs).arch_for(capability) == target


@pytest.mark.parametrize(("archs", "capability", "message"), [
    (("sm_80",), (7, 5), "demo.k1 needs sm_80, this GPU is sm_75"),
    (("sm_90a",), (7, 5), "demo.k1 needs sm_90a, this GPU is sm_75"),
    (("sm_90a",), (8, 0), "demo.k1 needs sm_90a, this GPU is sm_80"),
    (("sm_90a",), (8, 9), "demo.k1 needs sm_90a, this GPU is sm_89"),
    (("sm_90a",), (10, 0), "demo.k1 needs sm_90a, this GPU is sm_100"),
    (("sm_90a", "sm_100a"), (12, 0), "demo.k1 needs sm_90a or sm_100a, this GPU is sm_120"),
])
def test_arch_for_refuses(archs: tuple[str, ...], capability: tuple[int, int],
                          message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        demo(*archs).arch_for(capability)
    assert str(caught.value) == message


def test_arch_number() -> None:
    assert [arch_number(a) for a in ("sm_75", "sm_90a", "compute_100a", "sm_100f")] == [
        75, 90, 100, 100]
    for wrong in ("sm90", "90", "sm_90b", "sm_"):
        with pytest.raises(ArgumentError, match="not of the form sm_90"):
            arch_number(wrong)
