"""How many buffer sets a case gets, and what lies between two uses of one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from gpukit.bench.families import buffers
from gpukit.bench.families.tuning import Tuned
from gpukit.bench.peers import Absent
from gpukit.errors import LaunchError, UnsupportedError
from gpukit.measure.sampling import interleave

L2 = 50 << 20


def gpu(free: int = 100 << 30):
    return SimpleNamespace(properties=SimpleNamespace(l2_bytes=L2), name="a GPU",
                           free_bytes=lambda: free)


@pytest.mark.parametrize("footprint", [L2 // 40, L2 // 3, L2, 2 * L2, 3 * L2, 9 * L2])
@pytest.mark.parametrize("works", [1, 2, 3, 4])
def test_rotation_touches_l2_sizes_between_two_uses_of_a_set_by_anyone(footprint, works):
    slots = buffers.slots_for("rotate", footprint, gpu())
    last_used, touched = {}, 0
    for work, slot in itertools.islice(interleave(works, slots), 3 * works * slots):
        if slot in last_used:
            between = touched - last_used[slot]
            assert between >= buffers.ROTATE_OVER_L2 * L2 >= 2 * L2, (work, slot)
        touched += footprint
        last_used[slot] = touched
    assert len(last_used) == slots


@pytest.mark.parametrize(
    ("l2", "footprint", "slots"),
    [("rotate", 3 * L2, 2), ("rotate", 3 * L2 - 1, 3), ("rotate", 99 * L2, 2),
     ("rotate", L2, 4), ("hot", L2, 1), ("flush", 1, 1)],
)  # fmt: skip
def test_slots(l2, footprint, slots):
    assert buffers.slots_for(l2, footprint, gpu()) == slots


def test_sets_that_do_not_fit_are_refused():
    with pytest.raises(UnsupportedError, match=r"0\.2 GB of memory for 4 buffer set\(s\), 0\.1 GB"):
        buffers.slots_for("rotate", L2, gpu(free=10**8))


class Stream:
    """A device whose launches fail at the next synchronisation, once or for good."""

    def __init__(self) -> None:
        self.pending, self.sticky = [], False

    def synchronize(self):
        if self.pending:
            raise RuntimeError(self.pending[0] if self.sticky else self.pending.pop())


def failing(stream, sticky=False):
    def launch(slot):
        stream.pending.append("illegal\naddress")
        stream.sticky = sticky

    return lambda: launch


def absent():
    raise UnsupportedError("no such op")


def test_peers_are_tried_to_their_end_and_those_that_fail_are_noted():
    stream, ran = Stream(), []
    makers = {"absent": absent, "late": failing(stream), "fine": lambda: ran.append}
    works, notes = buffers.peer_works(makers, 3, stream)
    assert [(work.name, work.slots) for work in works] == [("fine", 3)]
    assert ran == [0] and not stream.pending
    assert notes == (
        Absent("absent", "no such op"),
        Absent("late", "RuntimeError: illegal address"),
    )


def test_what_a_launch_tells_of_itself_travels_with_the_peer():
    tuned = Tuned(lambda slot: None, {"candidates": 16, "winner": 3})
    (work,), _ = buffers.peer_works({"tuned": lambda: tuned}, 2, Stream())
    assert work.facts == {"candidates": 16, "winner": 3}


def test_a_peer_that_breaks_the_device_is_named():
    stream = Stream()
    with pytest.raises(LaunchError, match="peer bad broke the device: RuntimeError: illegal addr"):
        buffers.peer_works({"bad": failing(stream, sticky=True)}, 1, stream)
