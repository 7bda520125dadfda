"""Kernel arguments as the driver wants them: an array of pointers to values of the exact types."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

# struct codes of the scalar kinds a spec may declare; pointers travel as 64-bit addresses.
_CODES = {"pointer": "Q", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d"}
_SLOT = 8


class ArgumentBuffer:
    """Reusable storage for one parameter list; not shared between threads.

    Every parameter has an 8-byte slot, so that one `struct` call writes them all.
    """

    def __init__(self, kinds: tuple[str, ...]) -> None:
        codes = [_CODES[kind] for kind in kinds]
        # '<' packs without gaps; pad bytes fill the slots of 4-byte values.
        self._format = struct.Struct("<" + "".join(
            code if struct.calcsize(code) == _SLOT else code + "4x" for code in codes))
        self._values = ctypes.create_string_buffer(max(1, self._format.size))
        base = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * max(1, len(kinds)))(
            *(base + _SLOT * i for i in range(len(kinds))))
        self._address = ctypes.addressof(self._pointers)

    def write(self, values: Sequence[int | float]) -> int:
        """Write one value per parameter (addresses for pointers); the pointer array's address.

        Too many, too few or values of the wrong kind raise struct.error; f32 values beyond the
        type's range raise OverflowError.
        """
        self._format.pack_into(self._values, 0, *values)
        return self._address
