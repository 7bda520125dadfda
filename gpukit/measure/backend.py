"""What the timers need from a GPU: the one seam between the measuring logic and CUDA.

`gpukit.measure.cuda` implements it with CuPy; the tests implement it with a simulated clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Backend(Protocol):
    """One device and the one stream that everything here is ordered on."""

    def session(self) -> AbstractContextManager[tuple[str, ...]]:
        """Make the timing stream current and neutralise persisting L2 lines.

        Yields notes on what could not be done; on exit no enqueued work is left running.
        """

    def seconds(self) -> float:
        """Host clock, monotonic."""

    def synchronize(self) -> None:
        """Wait until the stream is idle."""

    def event(self) -> Any:
        """A new timing event."""

    def record(self, event: Any) -> None:
        """Enqueue the event."""

    def elapsed_us(self, start: Any, stop: Any) -> float:
        """Device time between two events that have happened, in microseconds."""

    def block(self) -> None:
        """Hold the stream: what is enqueued from here on starts after `release`."""

    def release(self) -> None:
        """Let the stream go on; harmless when nothing is held."""

    def gave_up(self) -> bool:
        """Whether the last `block` timed out before its `release` (valid once synchronised)."""

    def flush_l2(self) -> None:
        """Enqueue a read of twice the L2, which leaves it full of clean foreign lines."""

    def empty_kernel(self) -> None:
        """Enqueue a kernel that does nothing."""

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Capture what ``enqueue`` launches into a graph; returns the call that replays it."""

    def uuid(self) -> str | None:
        """The device's UUID as NVML spells it, or None when it cannot be told."""
