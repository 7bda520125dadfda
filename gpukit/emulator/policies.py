"""Scheduling policies: who runs next, for how long, and how late async work completes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import shown

T = TypeVar("T")


class Policy(Protocol):
    """A legal schedule. A correct kernel gives the same answer under every one."""

    def pick(self, ready: Sequence[T]) -> T:
        """Choose among the runnable warps (never empty; in order of warp number)."""

    def quantum(self) -> int:
        """How many instructions the chosen unit may issue before others get a turn."""

    def latency(self) -> float:
        """Instructions from issue to completion of an asynchronous operation."""

    def together(self, warps: int) -> int:
        """How many of the ``warps`` that stand at the same instruction run in lockstep."""


class RandomPolicy:
    """Seeded random order, quanta and latencies; warps at the same place run in lockstep."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, ready: Sequence[T]) -> T:
        return ready[int(self._random.random() * len(ready))]

    def quantum(self) -> int:
        return 32 + int(self._random.random() * 224)

    def latency(self) -> float:
        return int(self._random.random() * 400)

    def together(self, warps: int) -> int:
        return warps


class EarlyPolicy(RandomPolicy):
    """Asynchronous work completes as soon as it is issued."""

    def latency(self) -> float:
        return 0


class LatePolicy(RandomPolicy):
    """Asynchronous work completes only when nothing else can run."""

    def latency(self) -> float:
        return float("inf")


class StarvedPolicy(RandomPolicy):
    """The first warp in order runs only when no other can; no lockstep."""

    def pick(self, ready: Sequence[T]) -> T:
        return super().pick(ready[1:] or ready)

    def together(self, warps: int) -> int:
        return 1


POLICIES: dict[str, type[RandomPolicy]] = {
    "random": RandomPolicy,
    "early": EarlyPolicy,
    "late": LatePolicy,
    "starved": StarvedPolicy,
}


def policy(name: str, seed: int) -> Policy:
    """The policy of that name."""
    if not isinstance(name, str) or name not in POLICIES:
        raise LaunchError(f"policy: {shown(name)} is unknown; accepted: {', '.join(POLICIES)}")
    return POLICIES[name](seed)
