"""The call convention: stack frames in local memory, and the functions the driver provides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator import printf
from gpukit.emulator.errors import KernelFault, TrapError
from gpukit.emulator.frames import Frame
from gpukit.emulator.instructions import Mask, Op, Unsupported
from gpukit.emulator.program import Code
from gpukit.emulator.ptx.ir import Operand, Sym

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

Copies = tuple[tuple[int, int, int], ...]


def _active(lanes: Lanes, mask: Mask) -> Any:
    return np.arange(lanes.width) if mask is None else np.flatnonzero(mask)


def _copy(lanes: Lanes, active: Any, source: Any, target: Any, size: int) -> None:
    """Move ``size`` bytes of each active lane between two of its own addresses."""
    local = lanes.wave.local
    rows = (active + lanes.lo)[:, None] * local.stride
    span = np.arange(size)
    from_, to = rows + source[:, None] + span, rows + target[:, None] + span
    local.data[to] = local.data[from_]
    local.init[to] = local.init[from_]


def enter(
    lanes: Lanes, mask: Mask, pointer: int, caller: Code, callee: Code, copies: Copies
) -> None:
    """Push a frame and copy the arguments into it."""
    active = _active(lanes, mask)
    old = lanes.V[pointer][active] if not caller.function.is_entry else np.zeros(active.size, int)
    new = old + caller.frame_bytes
    local = lanes.wave.local
    if int(new.max()) + callee.frame_bytes > local.end:
        lane = int(active[new.argmax()])
        raise KernelFault(
            f"stack overflow calling {callee.function.name}: a thread has {local.end} bytes "
            "of local memory (raise stack_bytes=)",
            lane=lane,
        )
    lanes.V[pointer][active] = new
    _forget(lanes, active, new, callee.frame_bytes)
    for start, offset, size in copies:
        _copy(lanes, active, old + start, new + offset, size)


def _forget(lanes: Lanes, active: Any, start: Any, size: int) -> None:
    local = lanes.wave.local
    rows = (active + lanes.lo)[:, None] * local.stride
    local.init[rows + start[:, None] + np.arange(size)] = 0


def leave(lanes: Lanes, mask: Mask, pointer: int, own: Code, frame: Frame) -> None:
    """Copy results back, restore the caller's registers and pop the frame."""
    active = _active(lanes, mask)
    new = lanes.V[pointer][active]
    old = new - frame.caller.frame_bytes
    for start, offset, size in frame.copy_back:
        _copy(lanes, active, new + offset, old + start, size)
    lanes.V[pointer][active] = old
    if frame.saved is not None:
        restore_registers(lanes, active, frame)


def save_registers(lanes: Lanes, code: Code) -> dict[int, Any]:
    """Copies of a function's registers, for a call that may come back to it."""
    saved = {}
    for bits, first in code.rows.items():
        count = code.function.register_counts[bits]
        saved[bits] = lanes.wave.files[bits][first : first + count, lanes.lo : lanes.hi].copy()
    return saved


def restore_registers(lanes: Lanes, active: Any, frame: Frame) -> None:
    """Undo what the callee did to the caller's registers."""
    assert frame.saved is not None
    for bits, rows in frame.saved.items():
        first = frame.caller.rows[bits]
        file = lanes.wave.files[bits]
        file[first : first + len(rows), lanes.lo + active] = rows[:, active]


# Functions of the driver


def system_call(name: str, returns: list[Operand], args: list[Operand], assembler: Assembler) -> Op:
    """printf and assert."""
    if name not in ("vprintf", "__assertfail"):
        raise Unsupported(f"function {name} is declared but not defined")
    pointer = assembler.stack_pointer()
    where = [assembler.code.offsets[a.target] for a in args if isinstance(a, Sym)]  # type: ignore[index]
    result = [assembler.code.offsets[r.target] for r in returns if isinstance(r, Sym)]  # type: ignore[index]

    def argument(lanes: Lanes, lane: int, k: int, size: int = 8) -> int:
        at = (lanes.lo + lane) * lanes.wave.local.stride + int(lanes.V[pointer][lane]) + where[k]
        return int.from_bytes(lanes.wave.local.data[at : at + size].tobytes(), "little")

    def print_(lanes: Lanes, mask: Mask) -> Outcome:
        local = lanes.wave.local
        for lane in _active(lanes, mask).tolist():
            printf.emit(lanes, lane, argument(lanes, lane, 0), argument(lanes, lane, 1))
            at = (lanes.lo + lane) * local.stride + int(lanes.V[pointer][lane]) + result[0]
            local.data[at : at + 4] = 0
            local.init[at : at + 4] = 1
        return None

    def fail(lanes: Lanes, mask: Mask) -> Outcome:
        lane = int(_active(lanes, mask)[0])
        texts = [printf.string_at(lanes, lane, argument(lanes, lane, k)) for k in (0, 1, 3)]
        line = argument(lanes, lane, 2, 4)
        raise TrapError(f"{texts[1]}:{line}: {texts[2]}: assertion `{texts[0]}` failed", lane=lane)

    return Op("branch", handler=print_ if name == "vprintf" else fail, wide=True)
