"""Where a program's variables live: offsets in shared, local and parameter memory."""

from __future__ import annotations

from collections.abc import Iterable

from gpukit.emulator.mem import windows
from gpukit.emulator.ptx.ir import Addr, Function, Module, Sym, Var, Vec


def align_up(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


def pack(variables: Iterable[Var], start: int = 0) -> tuple[dict[Var, int], int]:
    """Offsets of variables laid one after the other, and the end."""
    offsets: dict[Var, int] = {}
    for var in variables:
        start = align_up(start, max(var.align, 1))
        offsets[var] = start
        start += var.size
    return offsets, start


def reachable(module: Module, kernel: Function) -> list[Function]:
    """The kernel and every function it may call or take the address of, kernel first."""
    order, pending = [kernel], [kernel]
    while pending:
        for callee in callees(pending.pop()):
            if callee not in order and callee.defined:
                order.append(callee)
                pending.append(callee)
    # An indirect call can reach whatever a table in memory names.
    for var in module.variables.values():
        for item in var.init:
            target = item.target if isinstance(item, Sym) else None
            target = module.functions.get(target) if isinstance(target, str) else target
            if isinstance(target, Function) and target not in order and target.defined:
                order.append(target)
    return order


def function_address(module: Module, function: Function) -> int:
    """What a pointer to a function holds: the same in all kernels of a module."""
    return windows.FUNCTIONS + 16 * list(module.functions).index(function.name)


def callees(function: Function) -> list[Function]:
    """Functions named by the instructions of one function."""
    found = []
    for instr in function.body:
        for operand in instr.operands:
            if isinstance(operand, Sym) and isinstance(operand.target, Function):
                found.append(operand.target)
    return found


def is_recursive(function: Function) -> bool:
    """Whether a function can reach itself."""
    seen: set[int] = set()
    pending = callees(function)
    while pending:
        callee = pending.pop()
        if callee is function:
            return True
        if id(callee) not in seen:
            seen.add(id(callee))
            pending += callees(callee)
    return False


def shared_layout(
    module: Module, functions: list[Function], start: int
) -> tuple[dict[Var, int], int]:
    """Static variables first, then ``extern`` ones, which all start the dynamic part."""
    wanted = {id(s) for f in functions for i in f.body for s in _symbols(i.operands)}
    declared = [v for f in functions for v in f.variables if v.space == "shared"]
    declared += [v for v in module.variables.values() if v.space == "shared" and id(v) in wanted]
    static = [v for v in declared if not v.extern and v.count != 0]
    dynamic = [v for v in declared if v.extern or v.count == 0]
    offsets, end = pack(static, start)
    base = align_up(end, max([v.align for v in dynamic], default=1))
    offsets.update(dict.fromkeys(dynamic, base))
    return offsets, base


def _symbols(operands: Iterable[object]) -> list[Var]:
    found: list[Var] = []
    for operand in operands:
        if isinstance(operand, Sym) and isinstance(operand.target, Var):
            found.append(operand.target)
        elif isinstance(operand, Vec):
            found += _symbols(operand.items)
        elif isinstance(operand, Addr):
            found += _symbols((operand.base, operand.coords))
    return found
