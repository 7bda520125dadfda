"""Module variables (.global and .const) in memory, with their initial values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.layout import function_address
from gpukit.emulator.mem.allocations import Allocation, GlobalMemory
from gpukit.emulator.ptx.ir import Module, Sym, Var


def variables_of(module: Module, memory: GlobalMemory) -> dict[Var, Allocation]:
    """The module's variables in ``memory``; they keep their values between launches."""
    if module not in memory.modules:
        memory.modules[module] = _place_variables(module, memory)
    return memory.modules[module]


def _place_variables(module: Module, memory: GlobalMemory) -> dict[Var, Allocation]:
    """Allocate every ``.global`` and ``.const`` variable and fill it."""
    placed: dict[Var, Allocation] = {}
    for var in module.variables.values():
        if var.space in ("global", "const"):
            placed[var] = memory.add(_zeros(var), var.name, writable=var.space == "global")
    by_name = {var.name: held for var, held in placed.items()}
    for var, held in placed.items():
        _initialise(var, held, by_name, module)
    return placed


def _zeros(var: Var) -> Any:
    try:
        return np.zeros(max(var.size, 1), np.uint8)
    except MemoryError:
        raise LaunchError(f"{var.name}: no memory for a variable of {var.size} bytes") from None


def _initialise(
    var: Var, held: Allocation, by_name: dict[str, Allocation], module: Module
) -> None:
    size = var.type.bytes
    if size * len(var.init) > var.size:
        raise LaunchError(f"{var.name}: {len(var.init)} initial values for {var.size} bytes")
    for k, value in enumerate(var.init):
        if isinstance(value, Sym):
            value = _address(value, var, by_name, module)
        if isinstance(value, float) and not var.type.is_float:
            raise LaunchError(f"{var.name}: the initial value {value} is no .{var.type.name}")
        if isinstance(value, float) or (var.type.is_float and size >= 4 and abs(value) < 1):
            raw = np.asarray(value, var.type.dtype).tobytes()
        else:
            raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        held.data[k * size : (k + 1) * size] = np.frombuffer(raw, np.uint8)


def _address(sym: Sym, var: Var, by_name: dict[str, Allocation], module: Module) -> int:
    name = sym.target if isinstance(sym.target, str) else sym.target.name
    if name in by_name:
        return by_name[name].base + sym.offset
    function = module.functions.get(name)
    if function is None:
        raise _refused(var, f"{name} is no variable of .global or .const and no function")
    if function.is_entry or not function.defined:
        kind = "is a kernel" if function.is_entry else "is declared but not defined"
        raise _refused(var, f"function {name} {kind}: its address is not supported")
    return function_address(module, function)


def _refused(var: Var, why: str) -> LaunchError:
    return LaunchError(f"{var.name}: initialiser in PTX line {var.line}: {var.text}: {why}")
