"""Kernel arguments as the driver wants them: an array of pointers to values of the exact types."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Final

from gpukit.devices import tensor_map

# struct codes of the kinds a spec may declare; pointers travel as 64-bit addresses.
_CODES = {"pointer": "Q", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d",
          "tensor_map": f"{tensor_map.BYTES}s"}
_SLOT = 8

ArgumentValue = int | float | bytes

#: Among fixed arguments, the place of one that every call brings.
LATER: Final = ...


def filled(values: Sequence[Any], fixed: Sequence[Any]) -> tuple[Any, ...]:
    """All arguments: the first ones and those that are `LATER` among the fixed are `values`."""
    first = len(values) - sum(x is LATER for x in fixed)
    rest = iter(values[first:])
    return (*values[:first], *(next(rest) if x is LATER else x for x in fixed))


class ArgumentBuffer:
    """Reusable storage for one parameter list; not shared between threads.

    Every scalar has an 8-byte slot and every tensor map one at a multiple of 64 bytes, so that one
    `struct` call writes them all.
    """

    def __init__(self, kinds: tuple[str, ...], fixed: Sequence[Any] = ()) -> None:
        """
        Args:
            fixed: values of the last parameters, written once and for all, except where it says
                `LATER`. They are stored behind the others.
        """
        template = (LATER,) * (len(kinds) - len(fixed)) + tuple(fixed)
        order = sorted(range(len(kinds)), key=lambda i: template[i] is not LATER)
        whole, offsets = _layout([kinds[i] for i in order])
        align = tensor_map.ALIGN
        self._storage = ctypes.create_string_buffer(whole.size + align)
        self._start = -ctypes.addressof(self._storage) % align
        self._format, _ = _layout([kinds[i] for i in order if template[i] is LATER])
        if fixed:
            nothing = {kind: b"" if kind == "tensor_map" else 0 for kind in kinds}
            whole.pack_into(self._storage, self._start, *(
                nothing[kinds[i]] if template[i] is LATER else template[i] for i in order))
        base = ctypes.addressof(self._storage) + self._start
        self._pointers = (ctypes.c_void_p * max(1, len(kinds)))()
        for i, at in zip(order, offsets, strict=True):
            self._pointers[i] = base + at
        self._address = ctypes.addressof(self._pointers)

    def write(self, values: Sequence[ArgumentValue]) -> int:
        """Write one value per parameter that is not fixed (addresses for pointers, the 128 bytes of
        `Device.tensor_map` for tensor maps); the pointer array's address.

        Too many, too few or values of the wrong kind raise struct.error; f32 values beyond the
        type's range raise OverflowError.
        """
        self._format.pack_into(self._storage, self._start, *values)
        return self._address


def _layout(kinds: Sequence[str]) -> tuple[struct.Struct, list[int]]:
    """The format that fills all slots, gaps included, and each parameter's offset."""
    text, end, offsets = "<", 0, []  # '<' packs without gaps of its own
    for kind in kinds:
        align = tensor_map.ALIGN if kind == "tensor_map" else _SLOT
        offset = -(-end // align) * align
        text += f"{offset - end}x{_CODES[kind]}"
        end = offset + struct.calcsize("<" + _CODES[kind])
        offsets.append(offset)
    return struct.Struct(text), offsets
