"""Generic addresses: which window of the 64-bit space belongs to which state space."""

from __future__ import annotations

WINDOW_BITS = 40
GLOBAL = 0x10_0000_0000  # first allocation; everything below the shared window is global
SHARED = 1 << WINDOW_BITS  # then the 32-bit shared::cluster address, CTA rank in bits 24 and up
LOCAL = 2 << WINDOW_BITS
PARAMS = 3 << WINDOW_BITS
FUNCTIONS = 4 << WINDOW_BITS

RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
SHARED_MASK = 0xFFFFFFFF  # what instructions on shared memory take of an address

BASES = {"shared": SHARED, "local": LOCAL, "global": 0, "const": 0, "param": 0}


def space_of(address: int) -> str:
    """The state space a generic address points into."""
    window = address >> WINDOW_BITS
    return {1: "shared", 2: "local"}.get(window, "global")
