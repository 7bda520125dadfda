"""Uses of Tensor Memory, and what each warp knows of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.emulator.check.async_ops import AsyncOp, Cells
    from gpukit.emulator.ptx.ir import Instr
    from gpukit.emulator.tcgen05.tmem import Allocated

OWN = {"tcgen05.ld": "wait::ld", "tcgen05.st": "wait::st"}  # and what completes them
COMMIT = "tcgen05.commit"
MANY = 64  # uses of a CTA's memory from which on reads are sorted out, too


@dataclass(eq=False, slots=True)
class Use:
    """Cells that an operation reads or writes, and the moment of its issue.

    ``chain`` are it and all those that it runs behind: when it is complete, so are they.
    """

    op: AsyncOp
    bit: int
    cells: Cells
    writes: bool
    moment: int
    chain: int


@dataclass(slots=True)
class Knowledge:
    """What one warp may rely on: sets of operations as bits.

    ``issued`` are its own to the tensor core, ``waited`` its own ld and st that it has waited for.
    ``complete`` and ``ordered`` are what it had heard of at its last ``fence::after_thread_sync``:
    operations that are complete, and those that what is pipelined may follow. ``pending`` are its
    own ld and st not waited for.
    """

    issued: int = 0
    waited: int = 0
    complete: int = 0
    ordered: int = 0
    pending: int = 0
    allocations: set[Allocated] = field(default_factory=set)


def pipelined(use: Use, later: AsyncOp) -> bool:
    """Whether ``later``, of the same thread, runs behind the operation by itself.

    The pairs of the ISA (9.7.16.6.2), and three that it does not list but that kernels everywhere
    rely on: a cp behind a cp, and a cp or mma behind an mma that only reads the cells (scale
    factors; A in Tensor Memory, as P of attention, whose columns the next scores take).
    """
    pair = use.op.kind[8:], later.kind[8:]
    if pair == ("mma", "mma"):
        return not use.writes or use.op.form == later.form
    if pair == ("mma", "cp"):
        return not use.writes
    if pair == ("shift", "cp"):
        return later.form == "4x256b"
    return pair in (("cp", "mma"), ("cp", "cp"), ("shift", "mma"), ("mma", "shift"))


def relaxed(instr: Instr) -> bool:
    """Whether an instruction may synchronise threads without being a release or acquire."""
    return instr.name in ("atom", "red") or bool({"relaxed", "volatile"} & set(instr.mods))


def lane_of(op: AsyncOp) -> int:
    """The lane of the thread that issued it."""
    return 0 if op.mask is None else int(op.mask.argmax())


def shown(cells: Cells) -> str:
    """Cells in words."""
    return (
        f"Tensor Memory lanes {cells.lane} to {cells.lane + cells.lanes - 1}, columns "
        f"{cells.column} to {cells.column + cells.columns - 1}"
    )
