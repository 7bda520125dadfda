"""Asynchronous completions: a heap of what happens later, in emulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import TYPE_CHECKING

from gpukit.emulator.errors import KernelFault

if TYPE_CHECKING:
    from gpukit.emulator.policies import Policy


class EventQueue:
    """Time counts warp instructions issued. Events of one ``engine`` complete in order."""

    def __init__(self, policy: Policy) -> None:
        self.now = 0
        self._policy = policy
        self._heap: list[tuple[float, int, Callable[[], None], str]] = []
        self._numbers = count()
        self._last: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def post(self, action: Callable[[], None], engine: Hashable = None, where: str = "") -> None:
        """Run ``action`` after a delay that the policy chooses; same engine = same order.

        ``where`` (``lanes.where()``) locates a ``KernelFault`` that the action raises.
        """
        due = self.now + self._policy.latency()
        if engine is not None:
            due = self._last[engine] = max(due, self._last.get(engine, 0))
        heapq.heappush(self._heap, (due, next(self._numbers), action, where))

    def run_due(self) -> bool:
        """Complete everything whose time has come; whether there was anything."""
        any_due = False
        while self._heap and self._heap[0][0] <= self.now:
            _, _, action, where = heapq.heappop(self._heap)
            _complete(action, where)
            any_due = True
        return any_due

    def jump(self) -> bool:
        """Nothing can run: complete the next event, whenever it was due. False if none."""
        if not self._heap:
            return False
        due, _, action, where = heapq.heappop(self._heap)
        if due != float("inf"):
            self.now = max(self.now, int(due))
        _complete(action, where)
        return True


def _complete(action: Callable[[], None], where: str) -> None:
    try:
        action()
    except KernelFault as fault:
        fault.locate(where)
        raise
