"""The emulated GPU: NumPy arrays in, the kernel's own PTX run by `gpukit.emulator`.

The source is compiled by NVRTC for the model's architecture, so what runs is what a GPU of that
kind would get. Launches are synchronous. The counters of the last launch stay on the device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.devices import nvrtc, tensor_map
from gpukit.devices.arguments import filled
from gpukit.devices.emulated_memory import EmulatedMap, map_arrays, root_of
from gpukit.devices.models import DEFAULT, MODELS, Model
from gpukit.devices.protocol import Dim3, Properties
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import ArgumentError, LaunchError, UnsupportedError
from gpukit.kernels.spec import KernelSpec, Tunables

if TYPE_CHECKING:
    from gpukit.emulator import Counters

_SCALARS = {"i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
            "f32": np.float32, "f64": np.float64}


def get(name: str = DEFAULT) -> EmulatedDevice:
    """The emulated device of a model; one object per model.

    Raises:
        ArgumentError: no such model; lists the known ones.
    """
    if name not in MODELS:
        raise ArgumentError(f"device 'emu:{name}' is unknown; emulated models: "
                            f"{', '.join(f'emu:{known}' for known in MODELS)}")
    return _open(name)


@cache
def _open(name: str) -> EmulatedDevice:
    return EmulatedDevice(name, MODELS[name])


_current = ContextVar("current emulated device", default=DEFAULT)


def current() -> EmulatedDevice:
    """The emulated device that NumPy arrays run on; `EmulatedDevice.use` changes it."""
    return get(_current.get())


class EmulatedDevice:
    """A GPU model on the CPU."""

    xp = np
    emulated = True

    def __init__(self, name: str, model: Model) -> None:
        self.name = f"emu:{name}"
        self.model = model
        self.last_counters: Counters | None = None
        self._kernels: dict[tuple[Any, ...], EmulatedKernel] = {}
        self._lock = threading.Lock()

    def use(self) -> None:
        """Make this the device of NumPy arrays in this thread (or task)."""
        _current.set(self.name.removeprefix("emu:"))

    @property
    def properties(self) -> Properties:
        """Facts of the model."""
        return self.model.properties

    def compile(self, spec: KernelSpec, tunables: Tunables) -> EmulatedKernel:
        """The variant's PTX, compiled once per process.

        Raises:
            ArgumentError: a tunable is unknown or not accepted.
            UnsupportedError: the kernel is not for this model.
            CompileError, MissingDependencyError: from NVRTC.
        """
        full = spec.resolve(tunables)
        key = (spec.name, *sorted(full.items()))
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._compile(spec, full)
            return self._kernels[key]

    def _compile(self, spec: KernelSpec, tunables: Tunables) -> EmulatedKernel:
        arch = self._arch(spec)
        shared = spec.shared_bytes(tunables)
        if shared > self.properties.shared_per_cta:
            raise UnsupportedError(f"{spec.name} needs {shared / 1024:.0f} KB shared memory, "
                                   f"{self.properties.shared_per_cta / 1024:.0f} available")
        compiled = nvrtc.compile_kernel(spec, tunables, arch.replace("sm_", "compute_"))
        return EmulatedKernel(self, spec, compiled, shared)

    def _arch(self, spec: KernelSpec) -> str:
        """The model's own architecture: also plain kernels are compiled as its GPU would."""
        spec.arch_for(self.properties.capability)
        return self.model.arch

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Any:
        """An uninitialised NumPy array."""
        return np.empty(shape, dtype, order="F" if order == "F" else "C")

    def address(self, array: Any) -> int:
        """Where an array's first element is."""
        return int(array.__array_interface__["data"][0])

    def phase(self, array: Any) -> int:
        """The offset in the array's own buffer, modulo 256: a GPU would align the buffer to that,
        wherever the host put it."""
        return (self.address(array) - self.address(root_of(array))) % 256

    def pointer(self, array: Any) -> Any:
        """What a bound launch takes for an array: the array, whose bounds the emulator checks, or
        None for a null pointer."""
        return array

    def tensor_map(self, array: Any, request: TensorMap, offset_bytes: int = 0) -> EmulatedMap:
        """The array and the request, encoded at each launch; see `Device.tensor_map`."""
        tensor_map.check(request)
        tensor_map.check_base(self.phase(array) + offset_bytes)
        return EmulatedMap(array, request, offset_bytes, self.model.arch)

    def free_bytes(self) -> int:
        """The host's available memory, as far as the model would have it: arrays live there."""
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(self.properties.memory_bytes, available)

    def release_memory(self) -> None:
        """Nothing is kept back."""

    def to_host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def synchronize(self) -> None:
        """Launches are synchronous: nothing to wait for."""


class EmulatedKernel:
    """One kernel's PTX and how to run it."""

    def __init__(self, device: EmulatedDevice, spec: KernelSpec, compiled: nvrtc.Compiled,
                 shared_bytes: int) -> None:
        self.device = device
        self.spec = spec
        self.arch = device.model.arch
        self.ptx = compiled.image.rstrip(b"\0").decode()
        self.entry = compiled.entry
        self.shared_bytes = shared_bytes

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any]) -> None:
        """Run to the end.

        Raises:
            LaunchError: bad configuration, or what the kernel did wrong (bounds, races, ...), with
                the line of its `.cu` file.
        """
        from gpukit import emulator

        params = list(zip(self.spec.params, args, strict=True))
        try:
            memory, arrays = map_arrays([(param.name, arg) for param, arg in params
                                         if param.kind not in _SCALARS and arg is not None])
            arrays |= {param.name: np.uint64(0) for param, arg in params if arg is None}
            values = [_SCALARS[param.kind](arg) if param.kind in _SCALARS else arrays[param.name]
                      for param, arg in params]
            result = emulator.run(self.ptx, grid, block, values, kernel=self.entry,
                                  arch=self.arch, shared_bytes=self.shared_bytes, memory=memory)
        except emulator.EmulatorError as error:
            raise LaunchError(f"{self.spec.name}: {error}") from error
        self.device.last_counters = result.counters

    def bind(self, grid: Dim3, block: Dim3, fixed: tuple[Any, ...] = ()) -> Callable[..., None]:
        """See `gpukit.devices.protocol.Kernel.bind`; takes arrays, not addresses, and
        `EmulatedMap`s."""
        return lambda *args: self.launch(grid, block, filled(args, fixed))
