"""Bytes with typed views and, where it matters, a map of which bytes have been written."""

from __future__ import annotations

from typing import Any

import numpy as np


class Store:
    """``data`` and ``init`` are uint8 arrays of the same length; ``init`` None = all written."""

    __slots__ = ("_views", "data", "init")

    def __init__(self, data: Any, init: Any = None) -> None:
        self.data = data
        self.init = init
        self._views: dict[Any, Any] = {}

    def address_of(self, index: int) -> int:
        """The address within its state space that byte ``index`` has."""
        return index

    def phase(self, size: int) -> int:
        """Where the first element of ``size`` bytes is whose address is a multiple of ``size``."""
        return 0

    def words(self, dtype: Any) -> Any:
        """``data`` as elements of ``dtype`` at aligned addresses (parts of one are left out).

        The element with byte ``i`` is number ``i // size``, whatever the phase.
        """
        view = self._views.get(dtype)
        if view is None:
            size = np.dtype(dtype).itemsize
            view = self._views[dtype] = self._whole(self.data, size).view(dtype)
        return view

    def marks(self, size: int) -> Any:
        """``init`` as unsigned words of ``size`` bytes; a zero byte in one is an unwritten byte."""
        view = self._views.get(size)
        if view is None:
            assert self.init is not None
            view = self._views[size] = self._whole(self.init, size).view(f"u{size}")
        return view

    def _whole(self, array: Any, size: int) -> Any:
        start = self.phase(size)
        return array[start : start + max(0, array.size - start) // size * size]


WRITTEN = {size: int.from_bytes(b"\x01" * size, "little") for size in (1, 2, 4, 8)}
