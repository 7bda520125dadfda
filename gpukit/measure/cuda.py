"""`Backend` on a CUDA device through CuPy. Every CUDA call of the timers lives here."""

from __future__ import annotations

import ctypes
import functools
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.errors import NoDeviceError, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The blocker must end by itself if the host never releases it; long against any honest batch.
BLOCKER_TIMEOUT_S = 1.0

SOURCE = r"""
// mailbox[0]: the last ticket the host has released; mailbox[1]: the last ticket given up on.
// Tickets only grow, so no reset of the mailbox can race with a blocker still reading it.
extern "C" __global__ void hold(volatile unsigned int* mailbox, unsigned int ticket,
                                unsigned long long timeout_ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  while ((int)(mailbox[0] - ticket) < 0) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - begin > timeout_ns) {
      mailbox[1] = ticket;
      __threadfence_system();
      return;
    }
  }
}

// Reads, never writes: the lines it leaves in L2 are clean, so the work that follows pays no
// write-back but its own. The buffer is all zero, which the compiler cannot know.
extern "C" __global__ void sweep(const uint4* data, unsigned long long count, unsigned int* sink) {
  unsigned int seen = 0;
  const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 4
  for (; i < count; i += stride) {
    const uint4 v = __ldcg(&data[i]);
    seen |= v.x | v.y | v.z | v.w;
  }
  if (seen) *sink = seen;
}

extern "C" __global__ void empty() {}
"""


class CudaBackend:
    """`Backend` for the device that is current when it is built."""

    def __init__(self) -> None:
        self._cupy = _cupy()
        self._device = self._cupy.cuda.Device()
        # Not a non-blocking stream: work that strays onto the legacy default stream is then
        # still ordered between our events instead of escaping them.
        self._stream = self._cupy.cuda.Stream()
        module = self._cupy.RawModule(code=SOURCE, options=("-std=c++17",))
        self._hold = module.get_function("hold")
        self._sweep = module.get_function("sweep")
        self._empty = module.get_function("empty")
        self._mailbox = _mapped_words(self._cupy, 2)
        self._ticket = 0

    @contextmanager
    def session(self) -> Iterator[tuple[str, ...]]:
        self._device.synchronize()  # the caller may have filled its buffers on any stream
        with self._stream, _no_persisting_l2() as notes:
            self.flush_l2()  # allocate and load now, not behind a blocker
            self.empty_kernel()
            try:
                yield notes
            finally:
                self._stream.synchronize()

    def seconds(self) -> float:
        return time.perf_counter()

    def synchronize(self) -> None:
        self._stream.synchronize()

    def event(self) -> Any:
        return self._cupy.cuda.Event()

    def record(self, event: Any) -> None:
        event.record(self._stream)

    def elapsed_us(self, start: Any, stop: Any) -> float:
        return float(self._cupy.cuda.get_elapsed_time(start, stop)) * 1e3

    def block(self) -> None:
        self._ticket += 1
        mailbox = np.uint64(ctypes.addressof(self._mailbox))  # unified addressing: same pointer
        timeout_ns = np.uint64(BLOCKER_TIMEOUT_S * 1e9)
        self._hold((1,), (1,), (mailbox, np.uint32(self._ticket), timeout_ns))

    def release(self) -> None:
        self._mailbox[0] = self._ticket

    def gave_up(self) -> bool:
        return self._ticket > 0 and self._mailbox[1] == self._ticket

    def flush_l2(self) -> None:
        buffer, sink = self._flush_buffer
        grid = (4 * self._device.attributes["MultiProcessorCount"],)
        self._sweep(grid, (512,), (buffer, np.uint64(buffer.nbytes // 16), sink))

    def empty_kernel(self) -> None:
        self._empty((1,), (1,), ())

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        self._stream.begin_capture()
        try:
            enqueue()
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                self._stream.end_capture()
            raise
        graph = self._stream.end_capture()
        graph.upload(self._stream)
        return functools.partial(graph.launch, self._stream)

    def uuid(self) -> str | None:
        return device_uuid(self._device.id)

    @functools.cached_property
    def _flush_buffer(self) -> tuple[Any, Any]:
        """Twice the L2 in zeros, and a word that is never written."""
        size = 2 * self._device.attributes["L2CacheSize"]
        return self._cupy.zeros(size, np.uint8), self._cupy.zeros(1, np.uint32)


def current_backend() -> CudaBackend:
    """The backend of the current CuPy device, built once per device."""
    cupy = _cupy()
    try:
        return _backend_of(cupy.cuda.Device().id)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoDeviceError(f"no usable CUDA device to time on: {error}") from error


@functools.cache
def _backend_of(device_id: int) -> CudaBackend:
    return CudaBackend()


def device_uuid(device_id: int) -> str | None:
    """UUID of a CUDA device by its CUDA index, like ``GPU-5fbb...``; None without cuda-bindings."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    with suppress(RuntimeError):  # no driver on this machine
        driver.cuInit(0)
        error, device = driver.cuDeviceGet(device_id)
        if error == driver.CUresult.CUDA_SUCCESS:
            error, uuid = driver.cuDeviceGetUuid(device)
        if error == driver.CUresult.CUDA_SUCCESS:
            return format_uuid(uuid.bytes)
    return None


def format_uuid(octets: bytes) -> str:
    """Sixteen octets as NVML writes them: ``GPU-`` and 8-4-4-4-12 hexadecimal digits."""
    digits = octets.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@contextmanager
def _no_persisting_l2() -> Iterator[tuple[str, ...]]:
    """Persisting L2 lines reset and their limit at 0 inside the block, the old limit after it."""
    try:
        from cuda.bindings import driver
    except ImportError:
        yield ("persisting L2 lines were not reset: cuda-bindings is not installed",)
        return
    limit, code = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, driver.CUresult
    error, before = driver.cuCtxGetLimit(limit)
    results = (error, *driver.cuCtxResetPersistingL2Cache(), *driver.cuCtxSetLimit(limit, 0))
    # Parts older than Ampere have no persisting lines and say so.
    fine = (code.CUDA_SUCCESS, code.CUDA_ERROR_UNSUPPORTED_LIMIT, code.CUDA_ERROR_NOT_SUPPORTED)
    try:
        yield tuple(f"persisting L2 lines may remain: {r.name}" for r in results if r not in fine)
    finally:
        if error == code.CUDA_SUCCESS and before:
            driver.cuCtxSetLimit(limit, before)


def _mapped_words(cupy: Any, count: int) -> Any:
    """``count`` zeroed 32-bit words of pinned host memory that kernels can read and write.

    Never freed: a blocker that outlives its owner must not spin on unmapped memory.
    """
    runtime = cupy.cuda.runtime
    address = runtime.hostAlloc(4 * count, runtime.hostAllocMapped)
    words = (ctypes.c_uint32 * count).from_address(address)
    words[:] = [0] * count
    return words


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise missing("CuPy", "cuda13", "timing on a GPU") from error
    return cupy
