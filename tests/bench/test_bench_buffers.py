"""How many buffer sets a case gets, and what lies between two uses of one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from gpukit.bench.families import buffers
from gpukit.errors import UnsupportedError
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
