"""Device printf: formats like C from the argument buffer that the compiler packs."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from gpukit.emulator.errors import OutOfBoundsError
from gpukit.emulator.mem import windows

if TYPE_CHECKING:
    from gpukit.emulator.lanes import Lanes

_SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXeEfFgGaAcsp%])")


def read_bytes(lanes: Lanes, lane: int, address: int, size: int) -> bytes:
    """Bytes at a generic address, as one lane sees it."""
    space = windows.space_of(address)
    if space == "local":
        local = lanes.wave.local
        at = (lanes.lo + lane) * local.stride + address - windows.LOCAL
        return bytes(local.data[at : at + size].tobytes())
    if space == "shared":
        cta = lanes.wave.cta_of_lane(lanes.lo + lane)
        offset = address - windows.SHARED & windows.OFFSET_MASK
        at = lanes.wave.shared.start_of(cta.slot) + offset
        return bytes(lanes.wave.shared.data[at : at + size].tobytes())
    held = lanes.wave.launch.memory.find(address)
    if held is None:
        raise OutOfBoundsError(f"printf reads 0x{address:x}", lane=lane, address=address)
    at = address - held.base
    return bytes(held.data[at : at + size].tobytes())


def string_at(lanes: Lanes, lane: int, address: int) -> str:
    """A NUL-terminated string."""
    found = bytearray()
    while (byte := read_bytes(lanes, lane, address + len(found), 1)) not in (b"\x00", b""):
        found += byte
    return found.decode("utf-8", "replace")


def emit(lanes: Lanes, lane: int, format_address: int, arguments: int) -> None:
    """Format one lane's call and hand the text to the launch."""
    text = string_at(lanes, lane, format_address)
    lanes.wave.launch.printed(_Arguments(lanes, lane, arguments).format(text))


class _Arguments:
    """The packed argument buffer: each value aligned to its own size."""

    def __init__(self, lanes: Lanes, lane: int, address: int) -> None:
        self.lanes, self.lane, self.at = lanes, lane, address

    def format(self, text: str) -> str:
        return _SPEC.sub(self._one, text)

    def _take(self, code: str) -> int | float:
        size = struct.calcsize(code)
        self.at = -(-self.at // size) * size
        raw = read_bytes(self.lanes, self.lane, self.at, size)
        self.at += size
        return struct.unpack(f"<{code}", raw)[0]  # type: ignore[no-any-return]

    def _one(self, match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(self._take("i")) if width == "*" else width or ""
        precision = str(self._take("i")) if precision == "*" else precision
        spec = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        if kind in "eEfFgGaA":
            value = self._take("d")
            return float(value).hex() if kind in "aA" else (spec + kind) % value
        if kind == "s":
            return (spec + "s") % string_at(self.lanes, self.lane, int(self._take("Q")))
        if kind == "p":
            return f"0x{int(self._take('Q')):x}"
        if kind == "c":
            return (spec + "c") % chr(int(self._take("i")) & 0xFF)
        wide = length in ("l", "ll", "z", "j", "t")
        code = ("q" if wide else "i") if kind in "di" else ("Q" if wide else "I")
        return (spec + kind.replace("u", "d").replace("i", "d")) % self._take(code)
