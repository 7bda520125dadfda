"""A simulated device: a host clock, a stream that runs in order, a blocker and an L2 flag.

Launching costs host time; device operations take device time and start no earlier than they
are enqueued, so an unblocked stream shows launch gaps exactly where a real one does. The first
kernel after an event, alone or as a node of a graph, starts late, as measured on an H200: a pair
around a kernel takes longer than the kernel and a pair around nothing together.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpukit.measure.works import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAUNCH_US = 20.0
EVENT_HOST_US = 5.0
PAIR_US = 1.3
START_US = 1.5
LATENCY_US = PAIR_US + START_US  # what a pair around a kernel contains besides the kernel
EMPTY_US = 0.5
SHARE_US = 0.01  # over what a replay of 512 launches leaves of the latency in each of them
FLUSH_US = 60.0
BLOCKER_TIMEOUT_US = 1e6


class SimulatedDevice:
    """`gpukit.measure.backend.Backend` without a device; all times in microseconds."""

    def __init__(self, uuid: str | None = None) -> None:
        self.host_us = 0.0
        self.log: list[str] = []
        self.releases = 0
        self.gave_up_count = 0
        self._device_us = 0.0
        self._after_event = False
        self._pending: list[Callable[[], None]] = []
        self._held_since: float | None = None
        self._gave_up = False
        self._recorded: list[Callable[[], None]] | None = None
        self._uuid = uuid

    # --- what works call -------------------------------------------------------------

    def launch(self, name: str, duration_us: Callable[[], float]) -> None:
        """Enqueue an operation; its duration is asked for when it starts."""
        self.host_us += LAUNCH_US
        self._enqueue(lambda: self._run(name, duration_us))

    def wait_for_device(self) -> None:
        """What a launch that synchronises does: under a blocker it waits until the time-out."""
        if self._held_since is not None:
            self.host_us = max(self.host_us, self._held_since + BLOCKER_TIMEOUT_US)
            self._time_out()
        self.synchronize()

    # --- Backend ---------------------------------------------------------------------

    @contextmanager
    def session(self) -> Iterator[tuple[str, ...]]:
        try:
            yield ()
        finally:
            self.synchronize()

    def seconds(self) -> float:
        return self.host_us / 1e6

    def synchronize(self) -> None:
        assert self._held_since is None, "synchronised with the blocker still held: a deadlock"
        self.host_us = max(self.host_us, self._device_us)

    def event(self) -> list[float]:
        return [0.0]

    def record(self, event: list[float]) -> None:
        self.host_us += EVENT_HOST_US
        self._enqueue(lambda: self._stamp(event))

    def elapsed_us(self, start: list[float], stop: list[float]) -> float:
        return stop[0] - start[0]

    def block(self) -> None:
        self._held_since = self.host_us
        self._gave_up = False

    def release(self) -> None:
        self.releases += 1
        if self._held_since is None:
            return
        if self.host_us - self._held_since >= BLOCKER_TIMEOUT_US:
            self._time_out()
        self._resume(self.host_us)

    def gave_up(self) -> bool:
        return self._gave_up

    def flush_l2(self) -> None:
        self.launch("flush", lambda: FLUSH_US)

    def empty_kernel(self) -> None:
        self.launch("empty", lambda: EMPTY_US)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        self._recorded = recorded = []
        try:
            enqueue()
        finally:
            self._recorded = None
        return lambda: self._replay(recorded)

    def uuid(self) -> str | None:
        return self._uuid

    # --- the stream ------------------------------------------------------------------

    def _enqueue(self, operation: Callable[[], None]) -> None:
        if self._recorded is not None:
            self._recorded.append(operation)
        elif self._held_since is not None:
            self._pending.append(operation)
        else:
            self._device_us = max(self._device_us, self.host_us)
            operation()

    def _replay(self, recorded: list[Callable[[], None]]) -> None:
        self.host_us += LAUNCH_US

        def run() -> None:
            for operation in recorded:
                operation()

        self._enqueue(run)

    def _run(self, name: str, duration_us: Callable[[], float]) -> None:
        self.log.append(name)
        self._device_us += duration_us() + (START_US if self._after_event else 0.0)
        self._after_event = False

    def _stamp(self, event: list[float]) -> None:
        self.log.append("event")
        self._device_us += PAIR_US
        self._after_event = True
        event[0] = self._device_us

    def _time_out(self) -> None:
        assert self._held_since is not None
        self._gave_up = True
        self.gave_up_count += 1
        self._resume(self._held_since + BLOCKER_TIMEOUT_US)

    def _resume(self, now_us: float) -> None:
        self._held_since = None
        self._device_us = max(self._device_us, now_us)
        pending, self._pending = self._pending, []
        for operation in pending:
            operation()


def constant_work(
    device: SimulatedDevice, name: str, duration_us: float, slots: int = 1, kernels: int = 1
) -> Work:
    """A work that always takes ``duration_us`` on the device, in ``kernels`` equal parts."""

    def launch(slot: int) -> None:
        for _ in range(kernels):
            device.launch(f"{name}[{slot}]", lambda: duration_us / kernels)

    return Work(name, launch, slots)
