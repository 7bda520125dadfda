"""Errors of the emulator: what was wrong, where, and what is accepted."""

from __future__ import annotations


class EmulatorError(Exception):
    """Base class of everything the emulator raises on purpose."""


class CompileError(EmulatorError):
    """NVRTC is missing, or it rejected the source."""


class PtxSyntaxError(EmulatorError):
    """The PTX text cannot be read; names the line."""


class UnsupportedInstructionError(EmulatorError):
    """Some instructions have no implementation; lists each with its text and line."""


class LaunchError(EmulatorError):
    """Grid, block, arguments or options do not fit the kernel."""


class KernelFault(EmulatorError):  # noqa: N818 - what a GPU calls a fault
    """A running kernel did something a GPU would fault on, or that is undefined.

    ``what`` is the bare complaint and ``lane`` the lane inside the executing unit; the engine
    completes the message with kernel, source line, CTA, warp and lane. ``address`` is the byte
    address concerned, if any.
    """

    def __init__(self, what: str, *, lane: int | None = None, address: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.lane = lane
        self.address = address
        self.where = ""

    def locate(self, where: str) -> None:
        """Add the place, once: the innermost handler knows best."""
        self.where = self.where or where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class OutOfBoundsError(KernelFault):
    """An access outside every allocation, or past the end of one."""


class MisalignedError(KernelFault):
    """An address that is not a multiple of the access size."""


class UninitializedReadError(KernelFault):
    """A read of bytes that nothing has written."""


class BarrierError(KernelFault):
    """Barrier counts or participants that do not fit together."""


class CollectiveError(KernelFault):
    """A warp-wide instruction whose named lanes did not all arrive together."""


class TrapError(KernelFault):
    """``trap`` or a failed ``assert``."""


class DeadlockError(KernelFault):
    """Nothing can run and nothing is in flight; the text names every blocked warp."""


class LivelockError(DeadlockError):
    """Warps poll what nobody can change; the text names every warp and what it polls."""


class BudgetExceededError(KernelFault):
    """The launch issued more warp instructions than its budget allows."""


class DataRaceError(KernelFault):
    """Two warps touch the same bytes, one of them writing, with nothing that orders them."""


class MissingProxyFenceError(KernelFault):
    """The async proxy reads what a generic store wrote, without ``fence.proxy.async`` between."""


class AsyncHazardError(KernelFault):
    """Bytes used while an asynchronous operation may still be writing or reading them."""


class PendingAsyncError(BarrierError):
    """A CTA ends while an asynchronous operation may still use its shared memory."""


class RemoteAccessError(KernelFault):
    """A CTA ends although another CTA of the cluster may still access its shared memory."""


class TensorMemoryError(KernelFault):
    """Tensor Memory allocated, freed or accessed against its rules."""


class MissingTensorFenceError(KernelFault):
    """tcgen05 operations of two threads that a ``tcgen05.fence`` should order and none does."""
