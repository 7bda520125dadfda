"""The real GPU: CuPy compiles (RawModule, NVRTC), owns memory and streams; we launch.

Launching goes through CuPy's driver binding with a ready-packed argument buffer. RawKernel's own
call converts every argument by type on each launch, which doubles the host cost and accepts any
argument: here the spec says what each parameter is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

from gpukit import sources
from gpukit.devices import cuda_tensor_map
from gpukit.devices.arguments import ArgumentBuffer, ArgumentValue
from gpukit.devices.protocol import Dim3, Properties
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import (
    CompileError,
    GpukitError,
    LaunchError,
    NoDeviceError,
    UnsupportedError,
    missing,
)
from gpukit.kernels.spec import KernelSpec, Tunables, Value


@cache
def load_cupy() -> Any:
    """Import CuPy, turning the ways that can fail into one line of advice each."""
    try:
        import cupy
    except ImportError as error:
        raise missing("CuPy", "cuda13", "running on a GPU") from error
    except OSError as error:  # CuPy creates its kernel cache at import
        raise GpukitError(
            f"CuPy cannot create its kernel cache ({error}); "
            "set CUPY_CACHE_DIR to a writable folder"
        ) from error
    return cupy


@cache
def device_count() -> int:
    """Usable CUDA devices; 0 without a driver."""
    cupy = load_cupy()
    return int(cupy.cuda.runtime.getDeviceCount()) if cupy.cuda.is_available() else 0


@cache
def get(index: int = 0) -> CudaDevice:
    """The CUDA device with this index.

    Raises:
        NoDeviceError: no driver, no GPU, or no GPU of that index.
    """
    count = device_count()
    if count == 0:
        raise NoDeviceError("no usable CUDA device: no driver or no GPU is visible here")
    if not 0 <= index < count:
        raise NoDeviceError(f"device cuda:{index} does not exist; this machine has "
                            f"{count}: cuda:0 to cuda:{count - 1}")
    return CudaDevice(index)


class CudaDevice:
    """One GPU, by CUDA index."""

    emulated = False

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"
        self._cupy = load_cupy()
        self._kernels: dict[tuple[Any, ...], CudaKernel] = {}
        self._compiling: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    @cached_property
    def properties(self) -> Properties:
        """Facts of the GPU, read once."""
        p = self._cupy.cuda.runtime.getDeviceProperties(self.index)
        return Properties(
            name=p["name"].decode(),
            uuid=_uuid(p["uuid"]),
            capability=(p["major"], p["minor"]),
            sm_count=p["multiProcessorCount"],
            threads_per_sm=p["maxThreadsPerMultiProcessor"],
            shared_per_cta=p["sharedMemPerBlockOptin"],
            l2_bytes=p["l2CacheSize"],
            memory_bytes=p["totalGlobalMem"],
        )

    def compile(self, spec: KernelSpec, tunables: Tunables) -> CudaKernel:
        """The compiled variant, from memory, CuPy's disk cache or NVRTC, in that order.

        Raises:
            ArgumentError: a tunable is unknown or not accepted.
            UnsupportedError: wrong arch or more shared memory than the GPU has.
            CompileError: NVRTC's or ptxas's own text.
        """
        key = (spec.name, *sorted(tunables.items()))
        kernel = self._kernels.get(key)
        if kernel is None:
            with self._lock:
                lock = self._compiling.setdefault(key, threading.Lock())
            with lock:  # others may compile other variants meanwhile
                kernel = self._kernels.get(key) or self._compile(spec, spec.resolve(tunables))
                self._kernels[key] = kernel
        return kernel

    def _compile(self, spec: KernelSpec, tunables: dict[str, Value]) -> CudaKernel:
        arch = spec.arch_for(self.properties.capability)
        shared = spec.shared_bytes(tunables)
        if shared > self.properties.shared_per_cta:
            raise UnsupportedError(
                f"{spec.name} needs {shared / 1024:.0f} KB shared memory, "
                f"{self.properties.shared_per_cta / 1024:.0f} available on {self.properties.name}")
        with self._cupy.cuda.Device(self.index):
            function = self._build(spec, tunables, arch)
            if shared:
                function.max_dynamic_shared_size_bytes = shared
            handle = function.kernel.ptr  # of the current GPU: CuPy loads one for each that asks
        return CudaKernel(self, spec, arch, function, handle, shared)

    def _build(self, spec: KernelSpec, tunables: dict[str, Value], arch: str) -> Any:
        """A loaded RawKernel. CuPy appends the GPU's plain -arch; an `a` given here sticks."""
        expression = spec.expression(tunables)
        module = self._cupy.RawModule(
            code=sources.code(spec.source),
            options=(*sources.compile_options(spec.source), f"-arch={arch}"),
            name_expressions=(expression,),
        )
        try:
            kernel = module.get_function(expression)
            _ = kernel.kernel  # loads the module now, so that no launch pays for it
            return kernel
        except self._cupy.cuda.compiler.CompileException as error:
            raise CompileError(f"{expression} does not compile for {arch}:\n{error}") from error

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Any:
        """An uninitialised CuPy array on this GPU."""
        if self._cupy.cuda.runtime.getDevice() == self.index:
            return self._cupy.ndarray(shape, dtype, order=order)
        with self._cupy.cuda.Device(self.index):
            return self._cupy.ndarray(shape, dtype, order=order)

    @property
    def xp(self) -> Any:
        """CuPy."""
        return self._cupy

    def address(self, array: Any) -> int:
        """The device address of an array's first element."""
        return int(array.data.ptr)

    def phase(self, array: Any) -> int:
        """The address modulo 256: what alignment checks look at."""
        return int(array.data.ptr) % 256

    def pointer(self, array: Any) -> int:
        """What a bound launch takes for an array: its address, 0 for None."""
        return 0 if array is None else int(array.data.ptr)

    def tensor_map(self, array: Any, request: TensorMap, offset_bytes: int = 0) -> bytes:
        """The 128 bytes that the driver makes of a request; see `Device.tensor_map`."""
        return cuda_tensor_map.encode(int(array.data.ptr) + offset_bytes, request)

    def free_bytes(self) -> int:
        """Memory a new allocation can get: free on the GPU or kept by CuPy's pool."""
        with self._cupy.cuda.Device(self.index):
            free = self._cupy.cuda.runtime.memGetInfo()[0]
            return int(free + self._cupy.get_default_memory_pool().free_bytes())

    def release_memory(self) -> None:
        """Hand CuPy's cached blocks back to the GPU."""
        with self._cupy.cuda.Device(self.index):
            self._cupy.get_default_memory_pool().free_all_blocks()

    def to_host(self, array: Any) -> Any:
        """A NumPy copy; waits for the device."""
        return self._cupy.asnumpy(array)

    def synchronize(self) -> None:
        """Wait for everything enqueued on this GPU so far."""
        with self._cupy.cuda.Device(self.index) as device:
            device.synchronize()


class CudaKernel:
    """A loaded kernel and the argument layout its spec declares."""

    def __init__(self, device: CudaDevice, spec: KernelSpec, arch: str, function: Any, handle: int,
                 shared_bytes: int) -> None:
        self.device = device
        self.spec = spec
        self.arch = arch
        self.function = function
        self.handle = handle
        self.shared_bytes = shared_bytes
        self._local = _Buffers(tuple(p.kind for p in spec.params))

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any]) -> None:
        """Enqueue on the current stream.

        Raises:
            LaunchError: the driver's own words, with the launch configuration.
        """
        self.bind(grid, block)(*(
            arg if param.kind != "pointer" else 0 if arg is None else arg.data.ptr
            for arg, param in zip(args, self.spec.params, strict=True)))

    def bind(self, grid: Dim3, block: Dim3,
             fixed: tuple[Any, ...] = ()) -> Callable[..., None]:
        """See `gpukit.devices.protocol.Kernel.bind`; pointers are addresses.

        Everything it needs is looked up here once; a call costs little more than the driver's own.
        """
        cupy = self.device._cupy
        launch_kernel, stream = cupy.cuda.driver.launchKernel, cupy.cuda.get_current_stream
        driver_error = cupy.cuda.driver.CUDADriverError
        handle, shared = self.handle, self.shared_bytes
        local = _Buffers(tuple(p.kind for p in self.spec.params), fixed) if fixed else self._local
        gx, gy, gz = (*grid, 1, 1)[:3]
        bx, by, bz = (*block, 1, 1)[:3]

        def enqueue(*values: ArgumentValue) -> None:
            try:
                launch_kernel(handle, gx, gy, gz, bx, by, bz, shared, stream().ptr,
                              local.buffer.write(values), 0)
            except driver_error as error:
                raise LaunchError(f"{self.spec.name} with grid {grid}, block {block}: {error}"
                                  ) from error

        return enqueue if device_count() == 1 else self._on_own_device(enqueue)

    def _on_own_device(self, enqueue: Callable[..., None]) -> Callable[..., None]:
        """With several GPUs, the current one need not be ours; launching there is an error."""
        cupy, index = self.device._cupy, self.device.index

        def guarded(*values: ArgumentValue) -> None:
            if cupy.cuda.runtime.getDevice() == index:
                enqueue(*values)
            else:
                with cupy.cuda.Device(index):
                    enqueue(*values)

        return guarded


class _Buffers(threading.local):
    """One argument buffer per thread: the driver reads it during the call only."""

    def __init__(self, kinds: tuple[str, ...], fixed: tuple[Any, ...] = ()) -> None:
        self.buffer = ArgumentBuffer(kinds, fixed)


def _uuid(raw: bytes) -> str:
    """NVML's spelling of a device UUID."""
    text = bytes(raw[:16]).hex()
    cuts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return "GPU-" + "-".join(cuts)
