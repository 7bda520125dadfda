"""Kernel arguments as the driver wants them: an array of pointers to values of the exact types."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from gpukit.devices import tensor_map

# struct codes of the kinds a spec may declare; pointers travel as 64-bit addresses.
_CODES = {"pointer": "Q", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d",
          "tensor_map": f"{tensor_map.BYTES}s"}
_SLOT = 8

ArgumentValue = int | float | bytes


class ArgumentBuffer:
    """Reusable storage for one parameter list; not shared between threads.

    Every scalar has an 8-byte slot and every tensor map one at a multiple of 64 bytes, so that one
    `struct` call writes them all.
    """

    def __init__(self, kinds: tuple[str, ...], fixed: Sequence[ArgumentValue] = ()) -> None:
        """
        Args:
            fixed: values of the last parameters, written once and for all.
        """
        whole, offsets = _layout(kinds)
        align = tensor_map.ALIGN
        self._storage = ctypes.create_string_buffer(whole.size + align)
        self._start = -ctypes.addressof(self._storage) % align
        changing = kinds[:len(kinds) - len(fixed)]
        self._format, _ = _layout(changing)
        if fixed:
            nothing = (b"" if kind == "tensor_map" else 0 for kind in changing)
            whole.pack_into(self._storage, self._start, *nothing, *fixed)
        base = ctypes.addressof(self._storage) + self._start
        self._pointers = (ctypes.c_void_p * max(1, len(kinds)))(*(base + at for at in offsets))
        self._address = ctypes.addressof(self._pointers)

    def write(self, values: Sequence[ArgumentValue]) -> int:
        """Write one value per parameter that is not fixed (addresses for pointers, the 128 bytes of
        `Device.tensor_map` for tensor maps); the pointer array's address.

        Too many, too few or values of the wrong kind raise struct.error; f32 values beyond the
        type's range raise OverflowError.
        """
        self._format.pack_into(self._storage, self._start, *values)
        return self._address


def _layout(kinds: tuple[str, ...]) -> tuple[struct.Struct, list[int]]:
    """The format that fills all slots, gaps included, and each parameter's offset."""
    text, end, offsets = "<", 0, []  # '<' packs without gaps of its own
    for kind in kinds:
        align = tensor_map.ALIGN if kind == "tensor_map" else _SLOT
        offset = -(-end // align) * align
        text += f"{offset - end}x{_CODES[kind]}"
        end = offset + struct.calcsize("<" + _CODES[kind])
        offsets.append(offset)
    return struct.Struct(text), offsets
