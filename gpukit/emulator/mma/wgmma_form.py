"""The opcodes of ``wgmma.mma_async``: which shapes, types and immediates go together."""

from __future__ import annotations

import re

from gpukit.emulator.instructions import Modifiers, Unsupported
from gpukit.emulator.mma.formats import FORMATS, Format
from gpukit.emulator.ptx.ir import Imm, Instr, Operand, Vec

_RESULTS: dict[str, tuple[str, ...]] = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f8": ("f16", "f32"),
    "i8": ("s32",), "b1": ("s32",),
}  # fmt: skip


class Form:
    """The opcode: shape, types, and what the immediate operands say."""

    def __init__(self, instr: Instr, modifiers: Modifiers) -> None:
        if not (modifiers.flag("sync") and modifiers.flag("aligned")):
            raise Unsupported("needs .sync.aligned")
        words = modifiers.words
        shape = re.fullmatch(r"m64n(\d+)k(\d+)", words.pop(0) if words else "")
        if shape is None:
            raise Unsupported("needs a shape .m64nNkK")
        self.n, self.k = int(shape[1]), int(shape[2])
        self.saturate = modifiers.flag("satfinite")
        if len(words) < 3 or words[1] not in FORMATS or words[2] not in FORMATS:
            raise Unsupported("needs three element types")
        self.result = words[0]
        self.a: Format = FORMATS[words[1]]
        self.b: Format = FORMATS[words[2]]
        del words[:3]
        if self.a.kind == "bit" and not (modifiers.flag("and") and modifiers.flag("popc")):
            raise Unsupported("single bits need .and.popc")
        self.a_in_registers = isinstance(instr.operands[1], Vec)
        self._check()
        self._take_immediates(instr.operands[4:])

    def _check(self) -> None:
        family = self.a.family
        if self.b.family != family or (self.a.bits == 16 and self.a is not self.b):
            raise Unsupported(f"A is .{self.a.name} but B is .{self.b.name}")
        if self.result not in _RESULTS.get(family, ()):
            allowed = " or .".join(_RESULTS.get(family, ("nothing",)))
            raise Unsupported(f"D of .{self.a.name} must be .{allowed}")
        if self.k != 256 // self.a.bits:
            raise Unsupported(f"K of .{self.a.name} is {256 // self.a.bits}, not {self.k}")
        step = 16 if self.a.kind != "float" and self.n > 32 else 8
        if not 8 <= self.n <= 256 or self.n % step or (self.a.kind != "float" and self.n == 40):
            raise Unsupported(
                f"N = {self.n}: .{self.a.name} takes multiples of 8 up to "
                + ("256" if self.a.kind == "float" else "32, then of 16 up to 256")
            )
        if self.saturate and self.a.family != "i8":
            raise Unsupported(".satfinite is for integers")

    def _take_immediates(self, operands: tuple[Operand, ...]) -> None:
        """imm-scale-a, imm-scale-b, then imm-trans-a (A in shared memory), imm-trans-b."""
        values = [int(o.value) if isinstance(o, Imm) else None for o in operands]
        scales = 2 if self.a.kind == "float" else 0
        transposes = (1 if self.a_in_registers else 2) if self.a.bits == 16 else 0
        if len(values) != scales + transposes:
            raise Unsupported(f"needs {scales + transposes} immediates, has {len(values)}")
        if any(v not in (1, -1) for v in values[:scales]):
            raise Unsupported("imm-scale-a and -b must be 1 or -1")
        if any(v not in (0, 1) for v in values[scales:]):
            raise Unsupported("imm-trans-a and -b must be 0 or 1")
        self.negative = scales == 2 and values[0] != values[1]
        self.a_k_major = transposes < 2 or values[2] == 0
        self.b_k_major = transposes < 1 or values[-1] == 0
