"""The opcodes of ``tcgen05.mma``: which modifiers and operands go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpukit.emulator.instructions import Modifiers, Unsupported
from gpukit.emulator.ptx.ir import Addr, Imm, Instr, Not, Operand, Vec
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.tcgen05.idesc import Target
from gpukit.emulator.tcgen05.kinds import KINDS
from gpukit.emulator.tcgen05.pair import take_group
from gpukit.emulator.tcgen05.target import require_target

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes

U32, U64, PRED = TYPES["u32"], TYPES["u64"], TYPES["pred"]
_VECTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4, "block16": 4, "block32": 0}
_COLLECTED = ("fill", "use", "lastuse", "discard")
MAX_INPUT_SHIFT = 15


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one thread passes: addresses, descriptors and predicate as numbers.

    ``disabled`` is the mask of lanes that stay as they are, ``scales`` the addresses of the scale
    factors of A and B, ``zeros`` the zero-column mask descriptor.
    """

    d: int
    a: int
    b: int
    idesc: int
    add: bool
    disabled: int = 0
    scales: tuple[int, int] | None = None
    zeros: int | None = None


class _Number:
    """A register operand, or a tensor memory address in brackets, per lane."""

    def __init__(self, assembler: Assembler, operand: Operand, bits: int) -> None:
        self._bits = bits
        self._offset: int | None = None
        if isinstance(operand, Addr):
            self._slot, self._offset = assembler.address(operand)
        else:
            self._slot = assembler.src(operand, U32 if bits == 32 else U64)

    def at(self, lanes: Lanes, lane: int) -> int:
        value = int(lanes.V[self._slot][lane])
        if self._offset is not None:
            value += int(lanes.V[self._offset][lane])
        return value & (1 << self._bits) - 1


class Form:
    """The opcode of one instruction, and where its operands are."""

    def __init__(
        self, instr: Instr, modifiers: Modifiers, assembler: Assembler, ws: bool = False
    ) -> None:
        require_target(assembler)
        self.ws = ws
        self.cta_group = take_group(modifiers, assembler)
        if ws and self.cta_group == 2:
            raise Unsupported(".ws is for .cta_group::1")
        self.kind = KINDS[modifiers.pick(*(f"kind::{name}" for name in KINDS))[6:]]
        self.vector = self._take_vector(modifiers)
        if modifiers.flag("ashift"):
            raise Unsupported(".ashift is not emulated")
        self.collector = self._take_collector(modifiers)
        self._bind(instr, assembler)
        self.target = Target(self.kind, self.cta_group, ws, self.a_in_tensor_memory, self.vector)

    def _take_vector(self, modifiers: Modifiers) -> int:
        """Scale factors per row and instruction, 0 without."""
        kind = self.kind
        if modifiers.flag("block_scale") != kind.scaled or (kind.scaled and self.ws):
            needs = "needs" if kind.scaled and not self.ws else "does not take"
            raise Unsupported(f".kind::{kind.name} {needs} .block_scale")
        word = modifiers.pick(*_VECTORS, default="")
        if not kind.scaled:
            if word:
                raise Unsupported(f".{word} needs .block_scale")
            return 0
        if not word and len(kind.vectors) > 1:
            raise Unsupported(f".kind::{kind.name} needs .scale_vec::NX or .blockN")
        vector = (_VECTORS[word] if word else 0) or kind.vectors[0]
        if vector not in kind.vectors:
            raise Unsupported(f".kind::{kind.name} does not take .{word}")
        return vector

    def _take_collector(self, modifiers: Modifiers) -> tuple[str, str]:
        """The buffer and what happens to it; matrix A's, or with ``.ws`` matrix B's."""
        buffers = tuple(f"b{i}" for i in range(4)) if self.ws else ("a",)
        words = [f"collector::{b}::{use}" for b in buffers for use in _COLLECTED]
        word = modifiers.pick(*words, default=f"collector::{buffers[0]}::discard")
        _, buffer, use = word.split("::")
        return buffer, use

    # Operands

    def _bind(self, instr: Instr, assembler: Assembler) -> None:
        if len(instr.operands) < 5:
            raise Unsupported("needs D, A, B, an instruction descriptor and enable-input-d")
        d, a, b, idesc, *rest = instr.operands
        if not isinstance(d, Addr):
            raise Unsupported("D must be a [tensor memory address]")
        self.a_in_tensor_memory = isinstance(a, Addr)
        self._d = _Number(assembler, d, 32)
        self._a = _Number(assembler, a, 32 if self.a_in_tensor_memory else 64)
        self._b = _Number(assembler, b, 64)
        self._idesc = _Number(assembler, idesc, 32)
        self._disabled = self._take_disabled(assembler, rest)
        self._scales = self._take_scales(assembler, rest)
        self._take_predicate(assembler, rest)
        self._zeros = _Number(assembler, rest.pop(0), 64) if self.ws and rest else None
        self.input_shift = self._take_input_shift(rest)
        if rest:
            raise Unsupported(f"operand {rest[0]} is one too many")

    def _take_disabled(self, assembler: Assembler, rest: list[Operand]) -> list[_Number]:
        if not isinstance(rest[0], Vec):
            return []
        vector = rest.pop(0)
        assert isinstance(vector, Vec)
        if self.ws or self.kind.scaled or len(vector.items) != 4 * self.cta_group:
            raise Unsupported(
                f"disable-output-lane has {len(vector.items)} registers; accepted: 4 with "
                ".cta_group::1, 8 with ::2, none with .ws or .block_scale"
            )
        return [_Number(assembler, item, 32) for item in vector.items]

    def _take_scales(self, assembler: Assembler, rest: list[Operand]) -> list[_Number]:
        if not self.kind.scaled:
            return []
        if len(rest) < 3 or not all(isinstance(item, Addr) for item in rest[:2]):
            raise Unsupported("needs [scale-A] and [scale-B]")
        return [_Number(assembler, rest.pop(0), 32) for _ in range(2)]

    def _take_predicate(self, assembler: Assembler, rest: list[Operand]) -> None:
        operand = rest.pop(0)
        self._inverted = isinstance(operand, Not)
        self._add = assembler.src(operand.operand if isinstance(operand, Not) else operand, PRED)

    def _take_input_shift(self, rest: list[Operand]) -> int:
        """``scale-input-d``: D is multiplied by 2 to the power of minus this."""
        if not rest:
            return 0
        operand = rest.pop(0)
        if not isinstance(operand, Imm) or self.kind.name not in ("f16", "tf32") or self.ws:
            raise Unsupported("scale-input-d is a constant, for .kind::f16 and .kind::tf32")
        if not 0 <= int(operand.value) <= MAX_INPUT_SHIFT:
            raise Unsupported(f"scale-input-d {operand.value}; accepted: 0 to {MAX_INPUT_SHIFT}")
        return int(operand.value)

    def arguments(self, lanes: Lanes, lane: int) -> Arguments:
        """What the operands hold now, for one lane."""
        disabled = 0
        for i, number in enumerate(self._disabled):
            disabled |= number.at(lanes, lane) << 32 * i
        scales = [number.at(lanes, lane) for number in self._scales]
        return Arguments(
            self._d.at(lanes, lane), self._a.at(lanes, lane), self._b.at(lanes, lane),
            self._idesc.at(lanes, lane), bool(lanes.V[self._add][lane]) != self._inverted,
            disabled, (scales[0], scales[1]) if scales else None,
            None if self._zeros is None else self._zeros.at(lanes, lane),
        )  # fmt: skip
