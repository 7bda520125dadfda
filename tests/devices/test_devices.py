"""Devices by name, and which arrays are adopted, where there is no GPU to ask."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukit import devices
from gpukit.devices import cuda
from gpukit.devices.cuda import _uuid
from gpukit.devices.protocol import Properties
from gpukit.errors import ArgumentError, MissingDependencyError, NoDeviceError


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cuda, "load_cupy", cuda.load_cupy.__wrapped__)
    monkeypatch.setattr(cuda, "device_count", cuda.device_count.__wrapped__)
    monkeypatch.setattr(cuda, "get", cuda.get.__wrapped__)


@pytest.mark.parametrize(("name", "message"), [
    ("cuda:x", "device 'cuda:x' is not of the form cuda:0"),
    ("cuda:-1", "device 'cuda:-1' is not of the form cuda:0"),
    ("gpu", "device 'gpu' is unknown; accepted: auto, cuda:N, emu:h100, emu:b200"),
    ("emu:a100", "device 'emu:a100' is unknown; emulated models: .*emu:h100"),
    ("", "device '' is unknown"),
])
def test_names_that_are_refused(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        devices.get(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
@pytest.mark.usefixtures("no_cupy")
def test_without_cupy_the_extra_is_named(name: str) -> None:
    with pytest.raises(MissingDependencyError, match=r"needs CuPy.*pip install 'gpukit\[cuda13\]'"):
        devices.get(name)


@pytest.mark.usefixtures("no_cupy")
def test_auto_without_cupy_is_the_emulator() -> None:
    assert devices.get("auto") is devices.get("emu")


def test_auto_is_the_first_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "get", lambda index: f"GPU {index}")
    assert devices.get("auto") == "GPU 0"


@pytest.mark.parametrize(("count", "index", "message"), [
    (0, 0, "no usable CUDA device"),
    (2, 2, "device cuda:2 does not exist; this machine has 2: cuda:0 to cuda:1"),
])
def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch, count: int, index: int,
                                    message: str) -> None:
    monkeypatch.setattr(cuda, "device_count", lambda: count)
    with pytest.raises(NoDeviceError, match=message):
        cuda.get.__wrapped__(index)


def test_numpy_arrays_are_emulated() -> None:
    x = np.ones(3)
    device, array = devices.adopt("x", x, "exp")
    assert device.name.startswith("emu:") and array is x


def test_a_tensor_on_the_cpu_is_not_adopted() -> None:
    tensor = SimpleNamespace(__dlpack_device__=lambda: (1, 0))
    with pytest.raises(ArgumentError, match=r"exp: x must be .*, got SimpleNamespace"):
        devices.adopt("x", tensor, "exp")


@pytest.mark.usefixtures("no_cupy")
@pytest.mark.parametrize("tensor", [
    SimpleNamespace(__dlpack_device__=lambda: (2, 0)),
    SimpleNamespace(__cuda_array_interface__={}),
], ids=["dlpack", "cuda_array_interface"])
def test_a_cuda_tensor_without_cupy_names_the_extra(tensor: Any) -> None:
    with pytest.raises(MissingDependencyError, match=r"gpukit\[cuda13\]"):
        devices.adopt("x", tensor, "exp")


def test_uuid_is_spelled_as_nvml_does() -> None:
    raw = bytes(range(16)) + b"padding"
    assert _uuid(raw) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(("capability", "arch"), [((9, 0), "sm_90"), ((8, 9), "sm_89"),
                                                  ((10, 0), "sm_100"), ((12, 1), "sm_121")])
def test_arch_of_a_capability(capability: tuple[int, int], arch: str) -> None:
    facts = Properties(name="", uuid="", capability=capability, sm_count=1, threads_per_sm=1,
                       shared_per_cta=1, l2_bytes=1, memory_bytes=1)
    assert facts.arch == arch
