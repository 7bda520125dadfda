"""What gpukit knows about a kernel before compiling it.

A spec is data: the launch code, `gpukit list`, `gpukit show`, the offline compile check and the
tests all read the same declaration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpukit.errors import ArgumentError, UnsupportedError

Value = int | str
Tunables = Mapping[str, Value]


@dataclass(frozen=True)
class Tunable:
    """One compile-time choice of a kernel, substituted into its template arguments."""

    name: str
    choices: tuple[Value, ...]
    default: Value
    help: str

    def check(self, kernel: str, value: Value) -> None:
        """Raise ArgumentError unless `value` is one of the choices."""
        if value not in self.choices:
            accepted = ", ".join(map(str, self.choices))
            raise ArgumentError(f"{kernel}: {self.name}={value!r} is not accepted; "
                                f"choose one of {accepted}")


@dataclass(frozen=True)
class Param:
    """One launch parameter.

    Attributes:
        kind: "pointer", the exact scalar type the kernel reads ("i32", "u32", "i64", "u64", "f32",
            "f64"), or "tensor_map" for a `const __grid_constant__` struct of 128 bytes aligned to
            64.
    """

    name: str
    kind: str
    help: str


def no_shared(tunables: Tunables) -> int:
    """The dynamic shared memory of most simple kernels: none."""
    return 0


@dataclass(frozen=True)
class KernelSpec:
    """A kernel: a `.cu` file, the template instance to take from it, and what it asks for.

    Attributes:
        name: dotted name users type ("elementwise.exp").
        source: file below `cuda_src/`.
        entry: template-id with tunables in braces ("unary<ops::Exp, {dtype}, {vec}, ...>").
        summary: one line for `gpukit list`.
        archs: targets it is built for. A plain target ("sm_80") also covers newer GPUs; one with
            the `a` suffix ("sm_90a") uses features of exactly that GPU.
        tunables, params: see their types.
        shared_bytes: dynamic shared memory in bytes as a function of the tunables.
        variants: the tunable settings that the offline build check compiles.
        requires: conditions on the problem that the caller checks, in words.
    """

    name: str
    source: str
    entry: str
    summary: str
    archs: tuple[str, ...]
    tunables: tuple[Tunable, ...]
    params: tuple[Param, ...]
    shared_bytes: Callable[[Tunables], int] = no_shared
    variants: tuple[dict[str, Value], ...] = field(default=({},))
    requires: tuple[str, ...] = ()

    @cached_property
    def defaults(self) -> dict[str, Value]:
        """The default value of every tunable."""
        return {t.name: t.default for t in self.tunables}

    def resolve(self, given: Tunables) -> dict[str, Value]:
        """Complete `given` with defaults, refusing unknown names and values.

        Raises:
            ArgumentError: names the tunable, the value and the accepted ones.
        """
        unknown = set(given) - set(self.defaults)
        if unknown:
            raise ArgumentError(f"{self.name} has no tunable {sorted(unknown)[0]!r}; "
                                f"it has {', '.join(self.defaults) or 'none'}")
        full = {**self.defaults, **given}
        for tunable in self.tunables:
            tunable.check(self.name, full[tunable.name])
        return full

    def expression(self, tunables: Tunables) -> str:
        """The C++ name expression of one variant."""
        return self.entry.format(**tunables)

    def arch_for(self, capability: tuple[int, int]) -> str:
        """The `-arch` value for a GPU of the given compute capability.

        Raises:
            UnsupportedError: none of the kernel's targets runs there.
        """
        gpu = capability[0] * 10 + capability[1]
        if f"sm_{gpu}a" in self.archs:
            return f"sm_{gpu}a"
        plain = [arch_number(a) for a in self.archs if not a.endswith("a")]
        if any(number <= gpu for number in plain):
            return f"sm_{gpu}"
        raise UnsupportedError(f"{self.name} needs {' or '.join(self.archs)}, "
                               f"this GPU is sm_{gpu}")


def arch_number(arch: str) -> int:
    """The number in an arch name: 90 for "sm_90a"."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", arch)
    if match is None:
        raise ArgumentError(f"arch {arch!r} is not of the form sm_90 or sm_90a")
    return int(match.group(1))
