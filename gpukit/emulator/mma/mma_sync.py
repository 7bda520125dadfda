"""mma.sync: one warp multiplies two small matrices held in its registers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpukit.emulator.instructions import Modifiers, Op, Unsupported, op
from gpukit.emulator.mma import arithmetic, fragments
from gpukit.emulator.mma.formats import FORMATS, Format
from gpukit.emulator.mma.fragments import Fragment
from gpukit.emulator.ptx.ir import Instr, Operand, Vec
from gpukit.emulator.warp.collective import aligned

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler
    from gpukit.emulator.lanes import Lanes
    from gpukit.emulator.outcomes import Outcome

# (shape, family of A and B) that exist; K is 4, 8, 16, ... for 16, 32, ... bits a lane and register
_SHAPES: dict[str, tuple[str, ...]] = {
    "f16": ("m8n8k4", "m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f8": ("m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "i8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "i4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
_RESULTS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f8": ("f16", "f32"),
    "f64": ("f64",), "i8": ("s32",), "i4": ("s32",), "b1": ("s32",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One operand: register rows of a file and how the matrix lies in them."""

    rows: Any
    fragment: Fragment
    bits: int = 32  # width of a register

    def words(self, lanes: Lanes) -> Any:
        """[warp, register, lane], C-contiguous."""
        block = lanes.registers(self.bits)[self.rows]
        return np.ascontiguousarray(block.reshape(self.rows.size, -1, 32).swapaxes(0, 1))

    def matrix(self, elements: Any) -> Any:
        """[warp, row, column] of elements in register order."""
        return elements.reshape(elements.shape[0], -1).take(self.fragment.gather, axis=1)

    def store(self, lanes: Lanes, values: Any) -> None:
        """Write a matrix [warp, ...] of the accumulator's type."""
        flat = values.reshape(lanes.width // 32, -1).take(self.fragment.scatter, axis=1)
        words = flat.view(f"u{self.bits // 8}").reshape(-1, self.rows.size, 32).swapaxes(0, 1)
        lanes.registers(self.bits)[self.rows] = words.reshape(self.rows.size, -1)


@dataclass(frozen=True, slots=True)
class _Types:
    """The types of one instruction, in the order of its opcode."""

    d: str
    a: Format
    b: Format
    c: str


@op("mma.sync")
def mma(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    if not modifiers.flag("aligned"):
        raise Unsupported("needs .aligned")
    shape = modifiers.words.pop(0) if modifiers.words else ""
    layouts = _layout(modifiers), _layout(modifiers)
    saturate = modifiers.flag("satfinite")
    types = _types(modifiers)
    operation = _bit_operation(modifiers, types)
    _check(shape, types, layouts, saturate)
    modifiers.drop("rn")
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    quads = 4 if shape == "m8n8k4" and types.a.name == "f16" else 1
    d, a, b, c = _bind(instr, assembler, types, (m, k), layouts)
    count, flops = f"flops {types.a.family}", 2 * m * n * k * quads
    result, addend = arithmetic.ACCUMULATORS[types.d], arithmetic.ACCUMULATORS[types.c]

    def body(lanes: Lanes) -> Outcome:
        warps = lanes.width // 32
        left = a.matrix(types.a.widen(a.words(lanes))).reshape(-1, m, k)
        right = b.matrix(types.b.widen(b.words(lanes))).reshape(-1, k, n)
        old = c.matrix(c.words(lanes).view(addend)).reshape(-1, m, n)
        sums = arithmetic.product(left, right, operation)
        d.store(lanes, arithmetic.accumulate(sums, old, result, saturate))
        lanes.wave.launch.count("mma.sync", warps)
        lanes.wave.launch.count(count, flops * warps)
        return None

    return aligned("mma", body)


@op("mma.sp", "mma.sp::ordered_metadata")
def sparse(instr: Instr, modifiers: Modifiers, assembler: Assembler) -> Op:
    raise Unsupported("MMA with a sparse A is not emulated")


def _layout(modifiers: Modifiers) -> str:
    if not modifiers.words or modifiers.words[0] not in ("row", "col"):
        raise Unsupported("needs .row or .col for A and B")
    return modifiers.words.pop(0)


def _types(modifiers: Modifiers) -> _Types:
    words = modifiers.words[:4]
    if len(words) < 4 or words[1] not in FORMATS or words[2] not in FORMATS:
        raise Unsupported(f"element types {' '.join('.' + w for w in words)} are not supported")
    del modifiers.words[:4]
    return _Types(words[0], FORMATS[words[1]], FORMATS[words[2]], words[3])


def _bit_operation(modifiers: Modifiers, types: _Types) -> str:
    if types.a.kind != "bit":
        return ""
    operation = modifiers.pick("and", "xor")
    if not modifiers.flag("popc"):
        raise Unsupported("needs .popc")
    return operation


def _check(shape: str, types: _Types, layouts: tuple[str, str], saturate: bool) -> None:
    """Refuse what the ISA does not have."""
    family = types.a.family
    if types.b.family != family:
        raise Unsupported(f"A is .{types.a.name} but B is .{types.b.name}")
    if shape not in _SHAPES[family]:
        raise Unsupported(f".{types.a.name} has the shapes {', '.join(_SHAPES[family])}")
    volta = shape == "m8n8k4" and family == "f16"
    if layouts != ("row", "col") and not volta:
        raise Unsupported("A must be .row and B .col")
    if types.d not in _RESULTS[family] or types.c not in _RESULTS[family]:
        raise Unsupported(f"D and C of .{types.a.name} must be .{' or .'.join(_RESULTS[family])}")
    if types.d != types.c and not (volta and types.c == "f16"):
        raise Unsupported("D and C must have the same type")
    if saturate and family not in ("i8", "i4"):
        raise Unsupported(".satfinite is for integers")


def _bind(
    instr: Instr, assembler: Assembler, types: _Types, mk: tuple[int, int], layouts: tuple[str, str]
) -> list[_Matrix]:
    """D, A, B and C."""
    m, k = mk
    width = 64 if types.a.bits == 64 else 32
    elements = width // types.a.bits
    halves = width // arithmetic.ACCUMULATORS[types.d].itemsize // 8
    others = width // arithmetic.ACCUMULATORS[types.c].itemsize // 8
    if m == 8 and types.a.name == "f16":
        shapes = [
            fragments.quad_accumulator(halves),
            fragments.quad_operand(True, layouts[0] == "row"),
            fragments.quad_operand(False, layouts[1] == "row"),
            fragments.quad_accumulator(others),
        ]
    else:
        shapes = [
            fragments.accumulator(m, halves),
            fragments.operand_a(m, k, elements),
            fragments.operand_b(k, elements),
            fragments.accumulator(m, others),
        ]
    per = (halves, elements, elements, others)
    if len(instr.operands) != 4:
        raise Unsupported(f"has {len(instr.operands)} operands, not 4")
    return [
        _Matrix(_rows(assembler, o, f.scatter.size // (32 * e), width), f, width)
        for o, f, e in zip(instr.operands, shapes, per, strict=True)
    ]


def _rows(assembler: Assembler, operand: Operand, count: int, bits: int) -> Any:
    """Register rows of a vector operand."""
    items: Iterable[Operand] = operand.items if isinstance(operand, Vec) else (operand,)
    rows = assembler.register_rows(items, bits)
    if rows.size != count:
        raise Unsupported(f"a fragment has {rows.size} registers, not {count}")
    return rows
