"""What short ways through attention calls share: keys of calls, and what of CuPy they need.

All that checks and choices depend on is in a key: types, shapes, strides, alignment and device of
the arrays, and the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpukit.ops import arrays

Spans = tuple[tuple[int, int], ...]


class Cupy:
    """What of CuPy short ways need, known after `learn`."""

    ndarray: Any = None
    alloc: Any = None
    stream: Any = None
    capturing: Any = None
    current_device: Callable[[], int] | None = None  # None with one GPU

    @classmethod
    def learn(cls) -> None:
        """After the first call by the long way."""
        if cls.ndarray is None:
            import cupy

            from gpukit.devices.cuda import device_count

            cls.alloc, cls.stream = cupy.cuda.alloc, cupy.cuda.get_current_stream
            cls.capturing = cupy.cuda.runtime.streamIsCapturing
            cls.current_device = cupy.cuda.runtime.getDevice if device_count() > 1 else None
            cls.ndarray = cupy.ndarray


def some(arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays if there is any; most calls have none of them, and nothing to do for each."""
    for x in arrays:
        if x is not None:
            return arrays
    return ()


def key(q: Any, k: Any, v: Any, out: Any, others: Sequence[Any],
        words: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Of a call; None if an array is no CuPy array."""
    ndarray = Cupy.ndarray
    if (type(q) is not ndarray or type(k) is not ndarray or type(v) is not ndarray
            or not (out is None or type(out) is ndarray)):
        return None
    key: tuple[Any, ...] = (words, _place(q), _place(k), _place(v),
                            None if out is None else _place(out))
    for i, x in enumerate(others):
        if x is not None:
            if type(x) is not ndarray:
                return None
            key += (i, _place(x))
    return key


def _place(array: Any) -> tuple[Any, ...]:
    """The private flag is an attribute; `strides` and `flags` build an object each time."""
    data = array.data
    return (array.shape, None if array._c_contiguous else array.strides, array.dtype,
            data.ptr & 15, data.device_id)


def on_current_device(array: Any) -> bool:
    """Whether kernels may be launched for it without further ado."""
    current = Cupy.current_device
    return current is None or current() == array.data.device_id


def spans(operands: Iterable[Any], device: Any) -> Spans:
    """Bytes from an array's address to its lowest byte and past its highest, of each."""
    found = []
    for array in operands:
        low, high = arrays.extent(array, device)
        start = device.address(array)
        found.append((low - start, high - start))
    return tuple(found)


def apart(of: Spans, q: int, k: int, v: int, out: int, *, same: bool) -> bool:
    """out shares no memory with q, k or v (all by address), except by being q if that is fine."""
    of_q, of_k, of_v, own = of
    low, high = out + own[0], out + own[1]
    return ((high <= k + of_k[0] or k + of_k[1] <= low)
            and (high <= v + of_v[0] or v + of_v[1] <= low)
            and (high <= q + of_q[0] or q + of_q[1] <= low or (same and q == out)))
