"""How many CTAs a GPU holds at once, which bounds the grid of a cooperative launch."""

from __future__ import annotations

import re

_SMS = {80: 108, 90: 132, 100: 148}  # A100, H100 and H200, B200
_THREADS, _CTAS, _SHARED = 2048, 32, 228 * 1024  # of one SM


def most_resident(target: str, threads: int, shared_bytes: int) -> int:
    """CTAs of ``threads`` threads and ``shared_bytes`` (with the reserved KiB) that fit at once.

    Registers may allow fewer: only ptxas knows. ``target`` is a PTX target such as ``sm_90a``; one
    that is not known counts as the largest GPU.
    """
    arch = re.search(r"\d+", target)
    sms = _SMS.get(int(arch[0]) if arch else 0, max(_SMS.values()))
    warps = -(-threads // 32)
    return sms * min(_CTAS, _THREADS // (32 * warps), _SHARED // shared_bytes)
