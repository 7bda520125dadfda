"""A device that records what it is asked to launch: the ops' checks and choices without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukit.devices import tensor_map
from gpukit.devices.arguments import filled
from gpukit.devices.protocol import Properties
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import KernelSpec, Tunables


class FakeArray(np.ndarray):
    """A NumPy array, and its views, that know their device."""

    home: FakeDevice  # `device` is taken: NumPy says "cpu"

    def __array_finalize__(self, parent: Any) -> None:
        if isinstance(parent, FakeArray):
            self.home = parent.home


class FakeKernel:
    def __init__(self, device: FakeDevice, spec: KernelSpec, tunables: Tunables) -> None:
        self.device, self.spec, self.tunables = device, spec, tunables

    def launch(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        assert len(args) == len(self.spec.params)
        self.device.launches.append(SimpleNamespace(
            name=self.spec.name, tunables=self.tunables, grid=grid, block=block, args=args))

    def bind(self, grid: tuple[int, ...], block: tuple[int, ...],
             fixed: tuple[Any, ...] = ()) -> Any:
        return lambda *args: self.launch(grid, block, filled(args, fixed))


class FakeDevice:
    """A GPU of any compute capability that runs nothing."""

    xp = np
    emulated = True  # has no warm path

    def __init__(self, capability: tuple[int, int] = (9, 0), name: str = "fake:0") -> None:
        self.name = name
        self.launches: list[SimpleNamespace] = []
        self.properties = Properties(
            name="fake", uuid="", capability=capability, sm_count=100, threads_per_sm=2048,
            shared_per_cta=227 << 10, l2_bytes=50 << 20, memory_bytes=80 << 30)

    def compile(self, spec: KernelSpec, tunables: Tunables) -> FakeKernel:
        return FakeKernel(self, spec, spec.resolve(tunables))

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> FakeArray:
        return self.own(np.empty(shape, dtype, order))

    def address(self, array: FakeArray) -> int:
        return array.ctypes.data

    def phase(self, array: FakeArray) -> int:
        return array.ctypes.data % 256

    def pointer(self, array: FakeArray) -> FakeArray:
        return array

    def tensor_map(self, array: FakeArray, request: TensorMap, offset_bytes: int = 0) -> TensorMap:
        tensor_map.check(request)
        return request

    def array(self, shape: tuple[int, ...] | int, dtype: Any = "float32", *,
              offset: int = 0) -> FakeArray:
        """Zeros whose address is `offset` bytes past a multiple of 32."""
        shape = (shape,) if isinstance(shape, int) else shape
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.zeros(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 32 + offset
        return self.own(raw[start:start + nbytes].view(dtype).reshape(shape))

    def own(self, array: np.ndarray) -> FakeArray:
        """The array as one of this device."""
        owned = array.view(FakeArray)
        owned.home = self
        return owned


def adopt(name: str, array: Any, function: str = "gpukit") -> tuple[FakeDevice, FakeArray]:
    """Stands in for `gpukit.devices.adopt`."""
    if not isinstance(array, FakeArray):
        raise ArgumentError(f"{function}: {name} must be a fake array")
    return array.home, array
