"""A kernel ready to run: flat operations, register slots and memory layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpukit.emulator.instructions import Handler, Op, Rows
from gpukit.emulator.ptx.ir import Function, Instr, Module, Var

# Hardware keeps the first KiB of shared memory for itself, so offset 0 is never a valid address.
SHARED_START = 1024
# Cooperative groups keep barriers (zero at first) and scratch for tiles of several warps in there.
SCRATCH_START, SCRATCH_BARRIERS = SHARED_START - 288, 20
LAUNCH_CONTROL = "launch control"  # category of what cancels clusters that have not started


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a handler finds one operand: entry ``i`` of ``lanes.V`` is built from slot ``i``.

    ``kind`` is reg (key: width, row), const (key: bytes of one lane), param (key: offset),
    special (key: name), shared (key: offset) or symbol (key: the variable, byte offset).
    ``pack`` elements of ``dtype`` make one lane's value.
    """

    kind: str
    key: Any
    dtype: np.dtype[Any]
    pack: int = 1


@dataclass(eq=False, slots=True)
class Code:
    """One function placed in the flat program."""

    function: Function
    start: int = 0
    rows: dict[int, int] = field(default_factory=dict)  # width -> first row in the register file
    offsets: dict[Var, int] = field(default_factory=dict)  # local and param variables
    frame_bytes: int = 0
    recursive: bool = False

    def __hash__(self) -> int:
        return id(self)


@dataclass(eq=False, slots=True)
class Program:
    """A kernel with all functions it can reach, decoded once."""

    module: Module
    kernel: Function
    codes: list[Code] = field(default_factory=list)
    instrs: list[Instr] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    register_rows: dict[int, int] = field(default_factory=dict)
    shared_offsets: dict[Var, int] = field(default_factory=dict)
    static_shared: int = 0
    local_bytes: int = 0
    param_offsets: dict[Var, int] = field(default_factory=dict)
    param_bytes: int = 0
    # Per pc, split by kind so that the inner loop does no attribute look-ups.
    full: list[Any] = field(default_factory=list)
    masked: list[Any] = field(default_factory=list)
    handlers: list[Handler | None] = field(default_factory=list)
    gang_handlers: list[Handler | None] = field(default_factory=list)
    run_end: list[int] = field(default_factory=list)  # first non-ALU pc at or after this one
    _places: dict[int, str] = field(default_factory=dict)

    def code_at(self, pc: int) -> Code:
        """The function that ``pc`` belongs to."""
        return max((c for c in self.codes if c.start <= pc), key=lambda c: c.start)

    def reads(self, special: str) -> bool:
        """Whether the code reads the special register of this name."""
        return any(slot.kind == "special" and slot.key == special for slot in self.slots)

    @property
    def cancels_launches(self) -> bool:
        """Whether the code can take clusters of its grid over before they start."""
        return any(op.category == LAUNCH_CONTROL for op in self.ops)

    def worth_a_gang(self, pc: int) -> bool:
        """Whether warps standing here can do at least one operation together."""
        return self.run_end[pc] != pc or self.ops[pc].wide

    def place(self, pc: int) -> str:
        """Source position and text of an instruction, for messages."""
        found = self._places.get(pc)
        if found is None:
            instr = self.instrs[pc]
            found = self._places[pc] = f"{instr.place} ({instr.text})"
        return found


def plain(op: Op) -> bool:
    """Whether an operation only computes on registers."""
    return op.full is not None


def index_runs(ops: list[Op]) -> list[int]:
    """For each pc the first pc at or after it that is not plain ALU work."""
    ends = [len(ops)] * (len(ops) + 1)
    for pc in range(len(ops) - 1, -1, -1):
        ends[pc] = ends[pc + 1] if plain(ops[pc]) else pc
    return ends


def take_rows(program: Program, bits: int, count: int) -> int:
    """Reserve register rows; returns the first."""
    first = program.register_rows.get(bits, 0)
    program.register_rows[bits] = first + count
    return first


__all__ = ["LAUNCH_CONTROL", "SCRATCH_BARRIERS", "SCRATCH_START", "SHARED_START", "Code", "Program",
           "Rows", "Slot", "index_runs", "plain", "take_rows"]  # fmt: skip
