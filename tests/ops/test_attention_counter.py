"""Counters of tiles: shared by a stream's launches, never by graphs."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukit.ops.attention import counter as counters


class Stand:
    """A device of two streams, one of which may be capturing."""

    emulated, name = False, "cuda:1"

    def __init__(self) -> None:
        self.stream, self.capturing, self.made = 7, False, 0
        runtime = SimpleNamespace(streamIsCapturing=lambda stream: self.capturing)
        cuda = SimpleNamespace(
            runtime=runtime, Device=lambda index: nullcontext(),
            get_current_stream=lambda index: SimpleNamespace(ptr=self.stream))
        self.xp = SimpleNamespace(cuda=cuda, zeros=self.zeros)

    def zeros(self, count: int, dtype: str) -> Any:
        self.made += 1
        return np.zeros(count, dtype)

    def synchronize(self) -> None:
        pass


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    for name, empty in (("_counters", {}), ("_spare", {}), ("_captured", [])):
        monkeypatch.setattr(counters, name, empty)
    return Stand()


def take(stand: Stand) -> Any:
    device: Any = stand
    return counters.counter(device)


def test_launches_of_a_stream_share_one(stand: Stand) -> None:
    first = take(stand)
    assert take(stand) is first
    stand.stream = 8
    assert not np.shares_memory(take(stand), first)


def test_captured_launches_have_their_own_and_keep_it(stand: Stand) -> None:
    eager = take(stand)
    made, stand.capturing = stand.made, True
    own = [take(stand) for _ in range(3)]
    assert stand.made == made  # nothing is cleared inside the graph
    for i, one in enumerate(own):
        assert not np.shares_memory(one, eager)
        assert not any(np.shares_memory(one, other) for other in own[:i])
    assert all(any(one is kept for kept in counters._captured) for one in own)


def test_a_capture_before_any_launch_clears_its_own(stand: Stand) -> None:
    stand.capturing = True
    assert not np.shares_memory(take(stand), take(stand))
    assert stand.made == 2
