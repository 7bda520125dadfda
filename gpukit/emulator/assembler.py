"""Decodes a kernel: places functions, binds operands to slots, builds every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from gpukit.emulator import closures, layout
from gpukit.emulator.errors import UnsupportedInstructionError
from gpukit.emulator.guards import gang_handler, guarded
from gpukit.emulator.immediates import immediate
from gpukit.emulator.instructions import Expr, Op, Unsupported, build
from gpukit.emulator.mem import windows
from gpukit.emulator.program import SHARED_START, Code, Program, Slot, index_runs, take_rows
from gpukit.emulator.ptx.ir import (
    Addr,
    Function,
    Imm,
    Instr,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Special,
    Sym,
    Var,
)
from gpukit.emulator.ptx.types import TYPES, PtxType
from gpukit.emulator.special import is_constant

T = TypeVar("T")
U32, U64, S64, PRED = TYPES["u32"], TYPES["u64"], TYPES["s64"], TYPES["pred"]


def assemble(module: Module, kernel: Function) -> Program:
    """Decode ``kernel``. Raises ``UnsupportedInstructionError`` listing all it cannot run."""
    return Assembler(module, kernel).program


class Assembler:
    """State while decoding one kernel; instruction builders bind their operands through it."""

    def __init__(self, module: Module, kernel: Function) -> None:
        self.module = module
        self.program = Program(module, kernel)
        self.pc = 0
        self._slots: dict[Slot, int] = {}
        self._internal: dict[tuple[str, int], Slot] = {}
        self._analyses: dict[type, Any] = {}
        functions = layout.reachable(module, kernel)
        self._place(functions)
        self.code = self.program.codes[0]
        self._decode()

    # Layout

    def _place(self, functions: list[Function]) -> None:
        program = self.program
        for function in functions:
            code = Code(function, start=len(program.instrs))
            code.recursive = layout.is_recursive(function)
            for bits, count in function.register_counts.items():
                code.rows[bits] = take_rows(program, bits, count)
            formal = [] if function.is_entry else [*function.params, *function.returns]
            framed = [v for v in (*formal, *function.variables) if v.space in ("local", "param")]
            code.offsets, size = layout.pack(framed)
            code.frame_bytes = layout.align_up(size, 16)
            program.codes.append(code)
            program.instrs += [*function.body, _implicit_return(function)]
        program.shared_offsets, program.static_shared = layout.shared_layout(
            self.module, functions, SHARED_START
        )
        program.param_offsets, program.param_bytes = layout.pack(functions[0].params)
        program.local_bytes = sum(code.frame_bytes for code in program.codes)

    def code_of(self, function: Function) -> Code:
        """Where a function was placed."""
        for code in self.program.codes:
            if code.function is function:
                return code
        raise Unsupported(f"function {function.name} is declared but not defined")

    # Decoding

    def _decode(self) -> None:
        program, missing = self.program, []
        for self.code in program.codes:
            end = self.code.start + len(self.code.function.body) + 1
            for instr in program.instrs[self.code.start : end]:
                try:
                    made = self._guard(instr, self._build(instr))
                except Unsupported as why:
                    missing.append(f"{instr.place}: {instr.text}: {why}")
                    made = Op("missing", handler=lambda lanes, mask: None)
                program.ops.append(made)
                self.pc += 1
        if missing:
            raise UnsupportedInstructionError(_listing(program.kernel.name, missing))
        for analysis in self._analyses.values():
            analysis.finish()
        program.run_end = index_runs(program.ops)
        program.full = [op.full for op in program.ops]
        program.masked = [op.masked for op in program.ops]
        program.handlers = [op.handler for op in program.ops]
        program.gang_handlers = [gang_handler(op) for op in program.ops]

    def _build(self, instr: Instr) -> Op:
        try:
            return build(instr, self)
        except (LookupError, ValueError, OverflowError) as why:  # no builder counts its operands
            raise Unsupported("its operands or types do not fit it") from why

    def _guard(self, instr: Instr, made: Op) -> Op:
        if instr.pred is None:
            return made
        p = self.src(instr.pred, PRED)
        if made.masked is not None:
            full, masked = closures.predicated(made.masked, p, instr.negated)
            return Op(made.category, full, masked)
        assert made.handler is not None
        handler = guarded(made.handler, p, instr.negated)
        return Op(made.category, handler=handler, wide=made.wide)

    def analysis(self, factory: Callable[[Assembler], T]) -> T:
        """A family's view of this kernel, made on first use.

        Its ``finish()`` is called once all instructions are decoded and may replace operations.
        """
        if factory not in self._analyses:
            self._analyses[factory] = factory(self)  # type: ignore[index]
        return self._analyses[factory]  # type: ignore[index,no-any-return]

    # Operands

    def slot(self, slot: Slot) -> int:
        """The index in ``lanes.V`` of a slot."""
        index = self._slots.get(slot)
        if index is None:
            index = self._slots[slot] = len(self._slots)
            self.program.slots.append(slot)
        return index

    def src(self, operand: Operand, type_: PtxType) -> int:
        """A source read as ``type_``; a wider register gives its low bits."""
        if isinstance(operand, Reg):
            return self._register(operand, type_)
        if isinstance(operand, Imm):
            return self.constant(immediate(operand, type_), type_)
        if isinstance(operand, Special):
            if not is_constant(operand.name):
                raise Unsupported(f"special register %{operand.name} cannot be read here")
            return self.slot(Slot("special", operand.name, type_.dtype))
        if isinstance(operand, Sym):
            return self._symbol(operand, type_)
        raise Unsupported(f"operand {operand} cannot be read here")

    def dst(self, operand: Operand, type_: PtxType) -> int:
        """A destination written as ``type_``; a wider register is zero- or sign-extended."""
        if isinstance(operand, Sink):
            return self.scratch(type_)
        if not isinstance(operand, Reg):
            raise Unsupported(f"operand {operand} cannot be written")
        if operand.type.bits > type_.bits and type_.kind != "p":
            if type_.is_float or type_.pack > 1:
                raise Unsupported(f"{type_} result in a {operand.type.bits}-bit register")
            type_ = TYPES[f"{'s' if type_.signed else 'u'}{operand.type.bits}"]
        return self._register(operand, type_)

    def _register(self, reg: Reg, type_: PtxType) -> int:
        bits = reg.type.bits
        if bits < type_.bits or (bits == 1) != (type_.bits == 1):
            raise Unsupported(f"{reg.name} has {bits} bits, {type_} needs {type_.bits}")
        row = self.code.rows[bits] + reg.index
        return self.slot(Slot("reg", (bits, row), type_.dtype, type_.pack))

    def register_rows(self, operands: Iterable[Operand], bits: int) -> Any:
        """Row numbers (int64 array) of registers, for operations on many of them at once."""
        rows = []
        for operand in operands:
            if not (isinstance(operand, Reg) and operand.type.bits == bits):
                raise Unsupported(f"operand {operand} must be a {bits}-bit register")
            rows.append(self.code.rows[bits] + operand.index)
        return np.array(rows, np.int64)

    def constant(self, value: Any, type_: PtxType) -> int:
        """A value that all lanes share: a number, or the bytes of a packed one."""
        raw = value if isinstance(value, bytes) else np.asarray(value, type_.dtype).tobytes()
        return self.slot(Slot("const", raw, type_.dtype, type_.pack))

    def param(self, offset: int, dtype: Any) -> int:
        """A kernel parameter: the same for all lanes of a launch."""
        return self.slot(Slot("param", offset, dtype))

    def scratch(self, type_: PtxType) -> int:
        """A register row of our own that nobody reads."""
        return self.internal("scratch", type_)

    def internal(self, name: str, type_: PtxType) -> int:
        """A hidden register of the machine (carry flag, stack pointer), by name."""
        key = (name, type_.bits)
        if key not in self._internal:
            row = take_rows(self.program, type_.bits, 1)
            self._internal[key] = Slot("reg", (type_.bits, row), type_.dtype, type_.pack)
        kept = self._internal[key]
        return self.slot(Slot("reg", kept.key, type_.dtype, type_.pack))

    def _symbol(self, sym: Sym, type_: PtxType) -> int:
        target = sym.target
        if isinstance(target, Function):
            address = layout.function_address(self.module, self.code_of(target).function)
            return self.constant(address, type_)
        if not isinstance(target, Var):
            raise Unsupported(f"unknown symbol {target}")
        if target in self.program.param_offsets:
            offset = self.program.param_offsets[target] + sym.offset
            return self.constant(windows.PARAMS + offset, type_)
        if target.space == "shared":
            offset = self.program.shared_offsets[target] + sym.offset
            return self.slot(Slot("shared", offset, type_.dtype))
        if target in self.code.offsets:
            if self.code.function.is_entry:
                return self.constant(self.code.offsets[target] + sym.offset, type_)
            raise Unsupported(f"the address of {target.name} can only be taken by mov")
        if type_.bits != 64:
            raise Unsupported(f"the address of {target.name} has 64 bits, {type_} does not")
        return self.slot(Slot("symbol", (target, sym.offset), type_.dtype))

    def address(self, operand: Operand) -> tuple[int, int | None]:
        """An ``[address]``: the slots of its base and, unless it is 0, of its byte offset."""
        base, offset = self._address(operand)
        if offset == 0:
            return base, None
        dtype = self.program.slots[base].dtype
        raw = (offset & ((1 << 8 * dtype.itemsize) - 1)).to_bytes(dtype.itemsize, "little")
        return base, self.slot(Slot("const", raw, dtype))

    def _address(self, operand: Operand) -> tuple[int, int]:
        if not isinstance(operand, Addr):
            raise Unsupported(f"operand {operand} is not an address")
        base = operand.base
        if isinstance(base, Reg):
            type_ = S64 if base.type.bits == 64 else U32
            return self.src(base, type_), operand.offset
        if isinstance(base, Sym) and self.is_framed(base):
            assert isinstance(base.target, Var)
            return self.stack_pointer(), self.code.offsets[base.target] + operand.offset
        return self.src(base, S64), operand.offset

    def is_framed(self, sym: Sym) -> bool:
        """Whether a symbol lies in the current function's stack frame."""
        return isinstance(sym.target, Var) and sym.target in self.code.offsets

    def stack_pointer(self) -> int:
        """Start of the current frame in each lane's local memory; 0 in the kernel itself."""
        if self.code.function.is_entry:
            return self.constant(0, S64)
        return self.internal("stack pointer", S64)

    def target(self, operand: Operand) -> int:
        """The flat pc of a label."""
        if not isinstance(operand, Label) or operand.pc < 0:
            raise Unsupported(f"operand {operand} is not a label")
        return self.code.start + operand.pc

    # Expressions

    def bind(self, instr: Instr, expr: Expr) -> Op:
        """The usual shape: first operand = destination, the rest = sources."""
        first, *sources = instr.operands
        destinations = [first.first, first.second] if isinstance(first, Pair) else [first]
        return self.bind_to(destinations, sources, expr)

    def bind_to(
        self, destinations: Iterable[Operand], sources: Iterable[Operand], expr: Expr
    ) -> Op:
        """Closures for ``expr`` on these operands."""
        sources, targets = list(sources), list(destinations)
        if len(sources) != len(expr.args):
            raise Unsupported(f"has {len(sources)} source operands, not {len(expr.args)}")
        fn, out = expr.fn, expr.out
        inverted = [isinstance(s, Not) for s in sources]
        if any(inverted):
            fn, out = _inverting(fn, inverted), False
        plain = [s.operand if isinstance(s, Not) else s for s in sources]
        args = [self.src(s, t) for s, t in zip(plain, expr.args, strict=True)]
        fn, result = _fitting(fn, expr.result, targets[0])
        types = (result, *expr.extra)[: len(targets)]
        dests = [self.dst(d, t) for d, t in zip(targets, types, strict=True)]
        category = expr.category or ("float" if expr.args[0].is_float else "integer")
        if expr.extra:
            full, masked = closures.several(_first(fn, len(dests)), args, dests)
        else:
            fits = self.program.slots[dests[0]].dtype == expr.result.dtype
            full, masked = closures.single(fn, args, dests[0], out and fits, result.pack)
        return Op(category, full, masked)


def _implicit_return(function: Function) -> Instr:
    """Running off the end of a function returns."""
    last = function.body[-1] if function.body else None
    line, source = (last.ptx_line, last.source) if last else (0, None)
    return Instr("ret", (), (), None, False, f"end of {function.name}", line, source)


def _fitting(fn: Any, result: PtxType, target: Operand) -> tuple[Any, PtxType]:
    """A float result in a wider register is zero-extended as bits."""
    wider = isinstance(target, Reg) and target.type.bits > result.bits
    if not (wider and result.is_float and result.pack == 1):
        return fn, result
    unsigned = TYPES[f"u{result.bits}"]
    return (lambda *args: fn(*args).view(unsigned.dtype)), unsigned


def _inverting(fn: Any, inverted: list[bool]) -> Any:
    def run(*args: Any) -> Any:
        return fn(*(~a if flip else a for a, flip in zip(args, inverted, strict=True)))

    return run


def _first(fn: Any, count: int) -> Any:
    return lambda *args: fn(*args)[:count]


def _listing(kernel: str, missing: list[str]) -> str:
    lines = "\n  ".join(dict.fromkeys(missing))
    return f"{kernel}: {len(missing)} unsupported instruction(s):\n  {lines}"
