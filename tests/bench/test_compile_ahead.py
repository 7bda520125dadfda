"""Kernels compiled before a sweep: which, how often, and that nothing of it is fatal."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from gpukit.bench.compile_ahead import compile_ahead
from gpukit.bench.families import load_family
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import CompileError


class Recorder:
    """A device that compiles nothing and remembers what it was asked for."""

    emulated = False
    properties = SimpleNamespace(sm_count=132, capability=(9, 0))

    def __init__(self, fails: bool = False) -> None:
        self.asked: list[tuple[str, dict]] = []
        self._fails, self._lock = fails, threading.Lock()

    def compile(self, spec, tunables):
        spec.resolve(tunables)
        with self._lock:
            self.asked.append((spec.name, dict(tunables)))
        if self._fails:
            raise CompileError("refused")


def cases(kernel: str, shape: str):
    family = load_family("sampling")
    parse = {axis.name: axis.parse for axis in family.axes}
    options = {"kernel": kernel, "shape": shape}
    return family, select_cases(family, {n: parse[n](text) for n, text in options.items()})


def test_each_variant_is_compiled_once() -> None:
    family, found = cases("sample,softmax", "512x32000,513x32000,1x32000")
    device = Recorder()
    assert compile_ahead(family, found, device) == len(device.asked)
    names = [name for name, _ in device.asked]
    assert names.count("sampling.stream") == 2  # 512 and 513 rows share one
    assert names.count("sampling.softmax") >= 2
    assert len({(n, *sorted(t.items())) for n, t in device.asked}) == len(device.asked)


def test_what_does_not_compile_is_left_to_its_case() -> None:
    family, found = cases("argmax", "1x1000")
    assert compile_ahead(family, found, Recorder(fails=True)) == 1


def test_a_family_that_foresees_nothing_is_left_alone() -> None:
    family, found = cases("argmax", "1x1000")
    assert compile_ahead(SimpleNamespace(name="plain"), found, Recorder()) == 0
    assert compile_ahead(family, found, emulated.get("h100")) == 0


@pytest.mark.parametrize("kernel", ["sample", "top_k", "softmax", "s2"])
def test_sampling_foresees_what_a_case_compiles(kernel: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    family = load_family("sampling")
    parse = {axis.name: axis.parse for axis in family.axes}
    (case,) = select_cases(family, {"kernel": (kernel,), "shape": parse["shape"]("2x40")},
                           emulated=True)
    device = emulated.get("h100")
    foreseen = {(s.name, *sorted(s.resolve(t).items())) for s, t in family.variants(case, device)}
    compiled = set()
    original = type(device).compile

    def spy(self, spec, tunables):
        compiled.add((spec.name, *sorted(spec.resolve(tunables).items())))
        return original(self, spec, tunables)

    monkeypatch.setattr(type(device), "compile", spy)
    prepared = family.prepare(case, device, ())
    prepared.work.launch(0)
    assert compiled == foreseen
