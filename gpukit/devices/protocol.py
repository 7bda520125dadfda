"""What the rest of gpukit may ask of a device, real or emulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels.spec import KernelSpec, Tunables

Dim3 = tuple[int, ...]


@dataclass(frozen=True)
class Properties:
    """Facts of one GPU that kernels and benchmarks depend on.

    Attributes:
        shared_per_cta: dynamic + static shared memory one CTA may opt in to, bytes.
    """

    name: str
    uuid: str
    capability: tuple[int, int]
    sm_count: int
    threads_per_sm: int
    shared_per_cta: int
    l2_bytes: int
    memory_bytes: int

    @property
    def arch(self) -> str:
        """The plain arch name, "sm_90"."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


class Kernel(Protocol):
    """One compiled variant, ready to launch on the device that compiled it."""

    spec: KernelSpec
    arch: str

    def launch(self, grid: Dim3, block: Dim3, args: Sequence[Any]) -> None:
        """Enqueue on the current stream. `args` follow `spec.params`: arrays (None for a null
        pointer), ints, floats and what `Device.tensor_map` returned."""

    def bind(self, grid: Dim3, block: Dim3, fixed: tuple[Any, ...] = ()) -> Callable[..., None]:
        """`launch` with its configuration, and the last arguments if given, fixed, except where
        they say `gpukit.devices.arguments.LATER`; call it with the others: `Device.pointer`s,
        numbers and `Device.tensor_map`s."""


class Device(Protocol):
    """A place where arrays live and kernels run."""

    name: str
    xp: Any  # the array module: cupy or numpy
    emulated: bool

    @property
    def properties(self) -> Properties:
        """Facts of the GPU."""

    def compile(self, spec: KernelSpec, tunables: Tunables) -> Kernel:
        """The compiled variant; compiled once per process and device, thread-safe."""

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Any:
        """An uninitialised array on this device."""

    def address(self, array: Any) -> int:
        """Where an array's first element is."""

    def phase(self, array: Any) -> int:
        """The address of an array's first element modulo 256, for alignment."""

    def pointer(self, array: Any) -> Any:
        """What a bound launch takes for an array, or for None: a null pointer."""

    def tensor_map(self, array: Any, request: TensorMap, offset_bytes: int = 0) -> Any:
        """What `launch` and a bound launch take for a parameter of kind "tensor_map".

        Element [0, ..., 0] lies `offset_bytes` past the array's first element. Like an address, the
        result does not keep the array alive, and it may be used for any number of launches.

        Raises:
            ArgumentError: the request or the base's alignment breaks a rule of tensor maps.
        """

    def free_bytes(self) -> int:
        """Memory a new allocation can get, bytes."""

    def release_memory(self) -> None:
        """Give cached memory back."""

    def to_host(self, array: Any) -> Any:
        """A NumPy array of the same values; waits for the device."""

    def synchronize(self) -> None:
        """Wait for everything enqueued so far."""
