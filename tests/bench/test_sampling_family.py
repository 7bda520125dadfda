"""`gpukit bench sampling` without a GPU: its cases, its check, and what its peers compute."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gpukit.bench.families import load_family
from gpukit.bench.families.sampling import Reals
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import ArgumentError, UnsupportedError


@pytest.fixture
def family():
    return load_family("sampling")


def cases(family, **options):
    parse = {axis.name: axis.parse for axis in family.axes}
    return select_cases(family, {name: parse[name](text) for name, text in options.items()},
                        emulated=True)


def prepared(family, **options):
    (case,) = cases(family, **options)
    return family.prepare(case, emulated.get("h100"), ())


def test_a_kernel_has_the_settings_it_uses(family):
    found = cases(family, kernel="argmax,softmax,sample", top_k="0,50", shape="2x64")
    assert [(c.kernel, c.params.get("top_k"), c.params.get("temperature")) for c in found] == [
        ("sampling.argmax", None, None), ("sampling.softmax", None, 0.8),
        ("sampling.sample", 0, 0.8), ("sampling.sample", 50, 0.8)]


@pytest.mark.parametrize("kernel", ["argmax", "softmax", "sample", "resident", "gumbel", "top_k"])
def test_the_check_takes_the_right_answer_alone(family, kernel):
    case = prepared(family, kernel=kernel, shape="3x40", top_k="5")
    case.poison()
    assert not case.check().ok
    case.work.launch(0)
    assert case.check().ok
    out = case.outputs[0]
    out[2] = out[2][::-1].copy() if kernel == "softmax" else (out[2] + 1) % 40
    assert not case.check().ok


@pytest.mark.parametrize("kernel", ["s1", "s2", "s3", "s4", "s5"])
def test_rungs_are_cases_too(family, kernel):
    (case,) = cases(family, kernel=kernel, shape="2x40", top_k="5", threads="128")
    assert "min_p" not in case.params
    ready = family.prepare(case, emulated.get("h100"), ())
    ready.poison()
    ready.work.launch(0)
    assert ready.check().ok
    kept = set(np.argsort(ready.inputs[0][1])[-5:])
    ready.outputs[0][1] = next(token for token in range(40) if token not in kept)
    assert not ready.check().ok
    assert ready.launch["block"] == 128
    assert (ready.launch["workspace"] > 0) == (kernel in ("s1", "s2"))


def test_too_large_to_emulate(family):
    with pytest.raises(UnsupportedError, match="too many to emulate; at most 16384"):
        prepared(family, shape="64x128256")


@pytest.mark.parametrize("text", ["x", "1.5", "-0.1", "nan", ""])
def test_reals_stay_in_their_range(text):
    with pytest.raises(ArgumentError, match=r"is not a number from 0\.0 to 1\.0"):
        Reals(0.0, 1.0)(text)


def test_bytes_are_those_read_and_written(family):
    case = prepared(family, kernel="softmax", shape="2x32", dtype="bf16")
    assert case.bytes_moved == 2 * 32 * (2 + 4)
    assert prepared(family, kernel="argmax", shape="2x32").bytes_moved == 2 * 32 * 4 + 2 * 8
    assert isinstance(case.launch["grid"], int | np.integer)
    assert SimpleNamespace(**case.launch).cluster == 8
