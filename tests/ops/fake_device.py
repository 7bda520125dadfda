"""A device that records what it is asked to launch: the ops' checks and choices without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukit.devices.protocol import Properties
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import KernelSpec, Tunables


class FakeArray:
    """A NumPy array with the attributes that the ops read of a CuPy array."""

    def __init__(self, array: np.ndarray, device: FakeDevice) -> None:
        self.array, self.device = array, device
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides
        self.size, self.nbytes, self.ndim, self.flags = (
            array.size, array.nbytes, array.ndim, array.flags)
        self.data = SimpleNamespace(ptr=array.ctypes.data)

    @property
    def T(self) -> FakeArray:  # noqa: N802
        return FakeArray(self.array.T, self.device)

    def __getitem__(self, key: Any) -> FakeArray:
        return FakeArray(self.array[key], self.device)


class FakeKernel:
    def __init__(self, device: FakeDevice, spec: KernelSpec, tunables: Tunables) -> None:
        self.device, self.spec, self.tunables = device, spec, tunables

    def launch(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        assert len(args) == len(self.spec.params)
        self.device.launches.append(SimpleNamespace(
            name=self.spec.name, tunables=self.tunables, grid=grid, block=block, args=args))


class FakeDevice:
    """A GPU of any compute capability that runs nothing."""

    def __init__(self, capability: tuple[int, int] = (9, 0), name: str = "fake:0") -> None:
        self.name = name
        self.launches: list[SimpleNamespace] = []
        self.properties = Properties(
            name="fake", uuid="", capability=capability, sm_count=100, threads_per_sm=2048,
            shared_per_cta=227 << 10, l2_bytes=50 << 20, memory_bytes=80 << 30)

    def compile(self, spec: KernelSpec, tunables: Tunables) -> FakeKernel:
        return FakeKernel(self, spec, spec.resolve(tunables))

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> FakeArray:
        return FakeArray(np.empty(shape, dtype, order), self)

    def array(self, shape: tuple[int, ...] | int, dtype: Any = "float32", *,
              offset: int = 0) -> FakeArray:
        """Zeros whose address is `offset` bytes past a multiple of 32."""
        shape = (shape,) if isinstance(shape, int) else shape
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.zeros(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 32 + offset
        return FakeArray(raw[start:start + nbytes].view(dtype).reshape(shape), self)


def adopt(name: str, array: Any, function: str = "gpukit") -> tuple[FakeDevice, FakeArray]:
    """Stands in for `gpukit.devices.adopt`."""
    if not isinstance(array, FakeArray):
        raise ArgumentError(f"{function}: {name} must be a fake array")
    return array.device, array
