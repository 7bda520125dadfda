"""Module variables (.global and .const) in memory, with their initial values."""

from __future__ import annotations

import numpy as np

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.mem.allocations import Allocation, GlobalMemory
from gpukit.emulator.ptx.ir import Function, Module, Sym, Var


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
            data = np.zeros(max(var.size, 1), np.uint8)
            placed[var] = memory.add(data, var.name, writable=var.space == "global")
    by_name = {var.name: held for var, held in placed.items()}
    for var, held in placed.items():
        _initialise(var, held, by_name)
    return placed


def _initialise(var: Var, held: Allocation, by_name: dict[str, Allocation]) -> None:
    size = var.type.bytes
    for k, value in enumerate(var.init):
        if isinstance(value, Sym):
            value = _address(value, var, by_name)
        if isinstance(value, float) or (var.type.is_float and size >= 4 and abs(value) < 1):
            raw = np.asarray(value, var.type.dtype).tobytes()
        else:
            raw = (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        held.data[k * size : (k + 1) * size] = np.frombuffer(raw, np.uint8)


def _address(sym: Sym, var: Var, by_name: dict[str, Allocation]) -> int:
    target = sym.target
    if isinstance(target, Function):
        raise LaunchError(f"{var.name}: function addresses in initialisers are not supported")
    name = target if isinstance(target, str) else target.name
    if name not in by_name:
        raise LaunchError(f"{var.name}: initialiser names the unknown variable {name}")
    return by_name[name].base + sym.offset
