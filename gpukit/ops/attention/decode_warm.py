"""The short way through a decode call that has been made before.

All that the checks and the cut depend on is in a key: types, shapes, strides, alignment and device
of the arrays, and the words. A call of CuPy arrays whose key has been seen goes straight to its
bound launch; anything else takes the long way, with its errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpukit.ops import arrays
from gpukit.ops.attention.decode_arguments import Call

_CAPACITY = 4096  # a program that never repeats a shape must not grow without bound
_PER_THREAD = 2  # CUDA's name for the default stream that every thread has for itself


class Given(NamedTuple):
    """The arrays of a call as the caller passed them, and what else it said."""

    q: Any
    k: Any
    v: Any
    out: Any
    lengths: Any
    table: Any
    sinks: Any
    slopes: Any
    bias: Any
    relative: Any
    q_scale: Any
    k_scale: Any
    v_scale: Any
    words: tuple[Any, ...]  # the last one: whether the LSE is wanted


class _Entry(NamedTuple):
    """A bound launch and what keeps its workspace alive; the results it makes; and what q, k, v and
    out span: (lowest byte, byte past the highest) from the address of each."""

    launch: Callable[..., None]
    plan: Any
    shape: tuple[int, ...]
    dtype: Any
    nbytes: int
    lse_shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    scaled: bool  # whether it takes scales


Entries = dict[tuple[Any, ...], _Entry]


@dataclass
class _State:
    """Entries of calls without a plan, and what of CuPy the short way needs."""

    entries: Entries = field(default_factory=dict)
    ndarray: Any = None
    alloc: Any = None
    stream: Any = None
    capturing: Any = None
    current_device: Callable[[], int] | None = None  # None with one GPU


_state = _State()


def call(given: Given, plan: Any) -> Any:
    """Launch and return (out, lse), or None: go the long way."""
    entry = _find(given, plan)
    if entry is None:
        return None
    q, k, v, out, lengths, table, sinks, slopes, bias, relative, *scales, words = given
    extra = relative if bias is None else bias
    at_q, at_k, at_v = q.data.ptr, k.data.ptr, v.data.ptr
    if out is None:
        out = _state.ndarray(entry.shape, entry.dtype, _state.alloc(entry.nbytes))
    elif not _apart(entry, at_q, at_k, at_v, out.data.ptr):
        return None
    lse = _state.ndarray(entry.lse_shape, "f4") if words[-1] else None
    entry.launch(at_q, at_k, at_v, out.data.ptr, 0 if lse is None else lse.data.ptr,
                 0 if lengths is None else lengths.data.ptr, 0 if table is None else table.data.ptr,
                 0 if sinks is None else sinks.data.ptr, 0 if slopes is None else slopes.data.ptr,
                 0 if extra is None else extra.data.ptr,
                 *(map(_pointer, scales) if entry.scaled else ()))
    return out, lse


def _pointer(scale: Any) -> int:
    """Of an array; numbers are in the launch."""
    return int(scale.data.ptr) if type(scale) is _state.ndarray else 0


def keep(given: Given, checked: Call, plan: Any, launch: Callable[..., None],
         own: bool) -> None:
    """Remember the launch of a call that has passed every check.

    Args:
        own: whether the caller passed the plan.
    """
    _learn_cupy()
    key = _key(given)
    if key is None:
        return
    entries = _state.entries
    if own:
        entries = plan.entries
    elif plan.meets:
        if _captured():
            return
        key += (_stream(),)
    if len(entries) >= _CAPACITY:
        entries.clear()
    out, lse = checked.results()
    entries[key] = _Entry(launch, plan, out.shape, out.dtype, out.nbytes,
                          () if lse is None else lse.shape,
                          tuple(_span(x, checked.device)
                                for x in (checked.q, checked.k, checked.v, checked.out)),
                          bool(checked.problem.queries))


def _learn_cupy() -> None:
    if _state.ndarray is None:
        import cupy

        from gpukit.devices.cuda import device_count

        _state.alloc, _state.stream = cupy.cuda.alloc, cupy.cuda.get_current_stream
        _state.capturing = cupy.cuda.runtime.streamIsCapturing
        _state.current_device = cupy.cuda.runtime.getDevice if device_count() > 1 else None
        _state.ndarray = cupy.ndarray


def _find(given: Given, plan: Any) -> _Entry | None:
    """The entry of calls with such arguments, with that plan or, without one, on this stream."""
    key = _key(given)
    if key is None:
        return None
    try:
        if plan is not None:
            entry = plan.entries.get(key)
        else:  # splits that meet nowhere have no stream of their own
            entry = _state.entries.get(key) or _state.entries.get((*key, _stream()))
    except TypeError:  # a word that cannot be one
        return None
    if entry is None or (plan is None and entry.plan.meets and _captured()):
        return None
    current = _state.current_device
    return entry if current is None or current() == given.q.data.device_id else None


def _key(given: Given) -> tuple[Any, ...] | None:
    """None if something is neither a CuPy array nor a number."""
    ndarray = _state.ndarray
    key: list[Any] = [given[-1]]
    for x in given[:-1]:
        if x is None:
            key.append(None)
        elif type(x) is ndarray:
            place = x.data
            key.append((x.shape, x.strides, x.dtype, place.ptr & 15, place.device_id))
        elif type(x) is float:
            key.append(x)
        else:
            return None
    return tuple(key)


def _stream() -> tuple[int, int]:
    return stream_name(int(_state.stream().ptr))


def stream_name(pointer: int) -> tuple[int, int]:
    """A stream, and the thread where threads have streams of one name."""
    return pointer, threading.get_ident() if pointer == _PER_THREAD else 0


def _captured() -> bool:
    return bool(_state.capturing(_state.stream().ptr))


def _span(array: Any, device: Any) -> tuple[int, int]:
    """Bytes from an array's address to its lowest byte and past its highest."""
    low, high = arrays.extent(array, device)
    start = device.address(array)
    return low - start, high - start


def _apart(entry: _Entry, q: int, k: int, v: int, out: int) -> bool:
    """out shares no memory with q, k or v, except by being q."""
    of_q, of_k, of_v, own = entry.spans
    low, high = out + own[0], out + own[1]
    return ((high <= k + of_k[0] or k + of_k[1] <= low)
            and (high <= v + of_v[0] or v + of_v[1] <= low)
            and (high <= q + of_q[0] or q + of_q[1] <= low or q == out))
