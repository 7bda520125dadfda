"""What a demo found, as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.demo.probe import Found
from gpukit.layout.picture import Picture
from gpukit.layout.pictures.memory import CHUNK, chunks
from gpukit.layout.pictures.registers import fragment


def pictures(found: Found) -> tuple[Picture, Picture, Picture]:
    """D, A and B as the device has them. They must be whole: ``found.ok``."""
    return _results(found), _left(found), _memory(found, "B", found.b.found, found.case.b)


def _results(found: Found) -> Picture:
    row, column = np.divmod(found.d.found, found.case.n)
    per = 2 if found.case.acc == "f16" else 1
    return fragment(f"{found.case.shape} on {found.device}: D", row, column, ("m", "n"), per)


def _left(found: Found) -> Picture:
    case = found.case
    if case.a != "registers":
        return _memory(found, "A", found.a.found, case.a)
    row, k = _inverse(found.a.found)
    return fragment(f"{case.shape} on {found.device}: A in registers", row, k, ("m", "k"),
                    4 // case.itemsize)


def _inverse(numbers: Any) -> tuple[Any, Any]:
    """Row and k [thread, value] from the number of the value [row, k]."""
    order = np.argsort(numbers, axis=None)
    row, k = np.divmod(order.reshape(128, -1), numbers.shape[1])
    return row, k


def _memory(found: Found, which: str, at: Any, major: str) -> Picture:
    """Bytes of a tile; chunks run along K or along M or N."""
    per = CHUNK // found.case.itemsize
    places, axes = (at, ("mn", "k")) if major != "mn" else (at.T, ("k", "mn"))
    title = f"{found.case.shape} on {found.device}: {which} in shared memory, bytes of the tile"
    return chunks(title, places[:, ::per], axes, per)


def differences(found: Found, most: int = 6) -> list[str]:
    """The first places where device and algebra differ, in words."""
    lines = []
    for name, one in (("D", found.d), ("A", found.a), ("B", found.b)):
        wrong = np.argwhere(one.found != one.expected)
        lines += [f"{name}[{i}, {j}]: the device says {one.found[i, j]}, the algebra "
                  f"{one.expected[i, j]}" for i, j in wrong[:most]]
        if len(wrong) > most:
            lines.append(f"{name}: and {len(wrong) - most} more")
    return lines
