"""Asynchronous completions: a heap of what happens later, in emulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.emulator.policies import Policy


class EventQueue:
    """Time counts warp instructions issued. Events of one ``engine`` complete in order."""

    def __init__(self, policy: Policy) -> None:
        self.now = 0
        self._policy = policy
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._last: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def post(self, action: Callable[[], None], engine: Hashable = None) -> None:
        """Run ``action`` after a delay that the policy chooses; same engine = same order."""
        due = self.now + self._policy.latency()
        if engine is not None:
            due = self._last[engine] = max(due, self._last.get(engine, 0))
        heapq.heappush(self._heap, (due, next(self._numbers), action))

    def run_due(self) -> None:
        """Complete everything whose time has come."""
        while self._heap and self._heap[0][0] <= self.now:
            heapq.heappop(self._heap)[2]()

    def jump(self) -> bool:
        """Nothing can run: complete the next event, whenever it was due. False if none."""
        if not self._heap:
            return False
        due, _, action = heapq.heappop(self._heap)
        if due != float("inf"):
            self.now = max(self.now, int(due))
        action()
        return True
