"""Buffer sets, poison and sampled checks that the families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpukit.bench.execute import describe
from gpukit.bench.model import CheckResult
from gpukit.bench.peers import Absent, PeerWork
from gpukit.errors import LaunchError, UnsupportedError
from gpukit.reference.tolerance import Array, Bound, scaled_error

Launch = Callable[[int], None]

# Rotation comes back to a buffer set only after other sets of this many times the L2 were touched.
# Twice is what a flush reads; once more is for an L2 that does not replace the oldest line first.
ROTATE_OVER_L2 = 3
_FULL_CHECK = 1 << 20
_SAMPLE = 1 << 18
_EDGE = 4096

# One NaN for f32, f16 and bf16 that no instruction makes: arithmetic returns 0x7fff(ffff).
_POISON = {1: 0xDB, 2: 0x7FDB, 4: 0x7FDBDEAD, 8: 0x7FFBDEAD7FFBDEAD}


def slots_for(l2: str, footprint: int, device: Any, extra_bytes: int = 0) -> int:
    """How many buffer sets a case needs for its L2 state.

    Raises:
        UnsupportedError: they do not fit the GPU's memory; says how much is free.
    """
    slots = 1
    if l2 == "rotate":
        others = -(-ROTATE_OVER_L2 * device.properties.l2_bytes // max(1, footprint))
        slots = 1 + max(1, others)
    needed = slots * footprint + extra_bytes
    free = device.free_bytes()
    if needed > free:
        raise UnsupportedError(f"needs {needed / 1e9:.1f} GB of memory for {slots} buffer "
                               f"set(s), {free / 1e9:.1f} GB are free on {device.name}")
    return slots


def words(array: Any) -> Any:
    """The same memory as unsigned integers of the element's size."""
    return array.view(f"u{array.dtype.itemsize}")


def poison(array: Any) -> None:
    """Fill with a bit pattern that no right answer holds."""
    words(array).fill(_POISON[array.dtype.itemsize])


def poisoned(array: Any) -> bool:
    """Whether any element still holds the poison. Waits for the device."""
    return bool((words(array) == _POISON[array.dtype.itemsize]).any())


def sample_indices(n: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Which of n elements to compare: all of a small array, else both ends and a random sample."""
    if n <= _FULL_CHECK:
        return np.arange(n)
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, n, _SAMPLE)
    return np.unique(np.concatenate([np.arange(_EDGE), middle, np.arange(n - _EDGE, n)]))


def judge(got: Array, want: Array, bound: Bound, complete: bool) -> CheckResult:
    """The check's verdict; an output with unwritten elements is infinitely wrong."""
    error = scaled_error(got, want, bound) if complete else float("inf")
    return CheckResult(error, str(bound), error <= 1)


def torch_stream() -> Any:
    """A context that makes torch launch on CuPy's current stream, of CuPy's current device.

    The null stream has no pointer to give: torch takes 0 for "none" and hands out a stream of its
    pool, which does not wait for the null stream.
    """
    import cupy
    import torch

    pointer, index = stream_pointer(), int(cupy.cuda.runtime.getDevice())
    stream = (torch.cuda.ExternalStream(pointer, device=index) if pointer
              else torch.cuda.default_stream(index))
    return torch.cuda.stream(stream)


def stream_pointer() -> int:
    """The handle of CuPy's current stream."""
    import cupy

    return int(cupy.cuda.get_current_stream().ptr)


def as_torch(array: Any, dtype: np.dtype[Any] | None = None) -> Any:
    """A torch tensor of the same memory, which it keeps alive.

    The memory travels as integers and is viewed afterwards: not every version of every library
    passes narrow floats on. ``dtype`` is what the elements are, if the array does not say: the
    fp8 formats in bytes.

    Raises:
        UnsupportedError: the tensor is a copy, or lies otherwise in memory.
    """
    import torch

    kind = getattr(torch, (dtype or array.dtype).name)
    tensor = torch.from_dlpack(array.view(f"i{array.dtype.itemsize}")).view(kind)
    if tensor.data_ptr() != address(array) or not _lies_like(tensor, array):
        raise UnsupportedError(
            f"torch.from_dlpack gave a tensor of strides {tensor.stride()} at "
            f"{tensor.data_ptr():#x} for the array of {array.dtype} with strides {array.strides} "
            f"bytes at {address(array):#x}: not the same memory")
    return tensor


def _lies_like(tensor: Any, array: Any) -> bool:
    """Equal strides wherever they matter."""
    return tuple(tensor.shape) == array.shape and all(
        step * array.dtype.itemsize == stride for size, step, stride
        in zip(array.shape, tensor.stride(), array.strides, strict=True) if size > 1)


def address(array: Any) -> int:
    """Where a CuPy or NumPy array's first element is."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def peer_works(peers: Mapping[str, Callable[[], Launch]], slots: int,
               device: Any) -> tuple[tuple[PeerWork, ...], tuple[Absent, ...]]:
    """The peers that really run here, and the reason of each that does not.

    Each is made and tried once: what a peer supports differs by version. What a launch's
    attribute ``facts`` tells, if it has one, goes into the rows.

    Raises:
        LaunchError: a peer failed such that the device takes no more work; names the peer.
    """
    works, absent = [], []
    for name, make in peers.items():
        try:
            launch = tried(make, device)
            works.append(PeerWork(name, launch, slots, facts=getattr(launch, "facts", {})))
        except Exception as problem:  # whatever it says, this peer is left out
            require_alive(name, problem, device)
            absent.append(Absent(name, describe(problem)))
    return tuple(works), tuple(absent)


def tried(make: Callable[[], Launch], device: Any) -> Launch:
    """A launch that has run once to its end: its failure must not land on a later launch."""
    launch = make()
    launch(0)
    device.synchronize()
    return launch


def require_alive(name: str, problem: Exception, device: Any) -> None:
    """A CUDA error that sticks comes back at the next synchronisation."""
    try:
        device.synchronize()
    except Exception as sticky:
        raise LaunchError(f"peer {name} broke the device: {describe(problem)}") from sticky
