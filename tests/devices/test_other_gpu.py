"""A GPU that is not the current one, on a stand-in for CuPy: its kernels, its streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukit import kernels
from gpukit.devices import cuda
from gpukit.devices.protocol import Properties
from gpukit.ops.matmul import workspace

HOPPER = Properties(name="fake", uuid="", capability=(9, 0), sm_count=132, threads_per_sm=2048,
                    shared_per_cta=232448, l2_bytes=1 << 26, memory_bytes=1 << 30)


class Kernel:
    """A cupy.RawKernel: every GPU on which it is asked for has a function of its own."""

    def __init__(self, cupy: Cupy) -> None:
        self._cupy = cupy

    @property
    def kernel(self) -> Any:
        return SimpleNamespace(ptr=f"function of GPU {self._cupy.current}")


class Cupy:
    """What `gpukit.devices.cuda` uses of CuPy, on two GPUs of which 0 is the current one."""

    def __init__(self) -> None:
        self.current, self.capturing = 0, "stream of GPU 1"
        self.launches: list[tuple[Any, ...]] = []
        self.cuda = SimpleNamespace(
            Device=self.device, get_current_stream=self.stream,
            driver=SimpleNamespace(launchKernel=self.launch, CUDADriverError=RuntimeError),
            compiler=SimpleNamespace(CompileException=RuntimeError),
            runtime=SimpleNamespace(getDevice=lambda: self.current,
                                    streamIsCapturing=lambda ptr: ptr == self.capturing))

    def RawModule(self, **_: Any) -> Any:  # noqa: N802
        return SimpleNamespace(get_function=lambda _: Kernel(self))

    def ndarray(self, shape: Any, dtype: Any, order: str = "C") -> Any:
        return np.empty(shape, dtype, "F" if order == "F" else "C")

    def stream(self, index: int = -1) -> Any:
        return SimpleNamespace(ptr=f"stream of GPU {self.current if index < 0 else index}")

    def launch(self, function: str, *rest: Any) -> None:
        self.launches.append((self.current, function, rest[7]))

    def device(self, index: int) -> Any:
        return Current(self, index)


class Current:
    """A cupy.cuda.Device as a context."""

    def __init__(self, cupy: Cupy, index: int) -> None:
        self._cupy, self._index = cupy, index

    def __enter__(self) -> None:
        self._before, self._cupy.current = self._cupy.current, self._index

    def __exit__(self, *_: object) -> None:
        self._cupy.current = self._before


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    stand_in = Cupy()
    monkeypatch.setattr(cuda, "load_cupy", lambda: stand_in)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    return stand_in


def gpu(index: int) -> cuda.CudaDevice:
    device = cuda.CudaDevice(index)
    device.__dict__["properties"] = HOPPER
    return device


def test_a_kernel_runs_on_its_own_gpu_and_stream(cupy: Cupy) -> None:
    for current, index in ((0, 1), (1, 0), (1, 1)):
        cupy.current = current
        compiled = gpu(index).compile(kernels.get("matmul.pack_tiled"), {"dtype": "u16"})
        compiled.bind((1,), (256,))(0, 0, 1, 1, 1, 1, 1)
        assert cupy.launches.pop() == (index, f"function of GPU {index}", f"stream of GPU {index}")
        assert cupy.current == current


def test_workspaces_of_a_graph_of_another_gpu_are_kept(cupy: Cupy,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(workspace, "_captured", kept)
    workspace.empty(gpu(0), (4,), "float32")
    assert not kept
    array = workspace.empty(gpu(1), (4,), "float32")
    assert len(kept) == 1 and kept[0] is array
