"""Instruction descriptors: the 32-bit word that tells ``tcgen05.mma`` shapes and types.

Assemblers do not look into it; here every field is checked against tables 42 to 44 of the PTX ISA,
and a wrong one is an error that shows the word decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gpukit.emulator.errors import KernelFault
from gpukit.emulator.tcgen05.elements import Element
from gpukit.emulator.tcgen05.kinds import Kind

Field = tuple[int, int]  # position, bits
_COMMON: dict[str, Field] = {
    "sparse": (2, 1), "a": (7, 3), "negate A": (13, 1), "negate B": (14, 1),
    "transpose A": (15, 1), "transpose B": (16, 1), "n": (17, 6),
}  # fmt: skip
_PLAIN: dict[str, Field] = {
    **_COMMON, "sparsity selector": (0, 2), "saturate": (3, 1), "d": (4, 2), "b": (10, 3),
    "m": (24, 5), "max shift": (30, 2),
}  # fmt: skip
_SCALED: dict[str, Field] = {
    **_COMMON, "b": (10, 3), "B scale ID": (4, 2), "scale type": (23, 1), "m": (27, 2),
    "A scale ID": (29, 2),
}  # fmt: skip
_FOUR_BITS: dict[str, Field] = {**_SCALED, "b": (10, 2), "K dimension": (31, 1)}
SHIFTS = (0, 8, 16, 32)


class InstructionDescriptorError(KernelFault):
    """An instruction descriptor that means nothing, or not what its instruction can do."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the instruction itself fixes: its kind and form; ``vector`` scales per row (or 0)."""

    kind: Kind
    cta_group: int = 1
    ws: bool = False
    a_in_tensor_memory: bool = False
    vector: int = 0


@dataclass(frozen=True, slots=True)
class InstructionDescriptor:
    """A valid instruction descriptor. ``result`` is the type of D, ``max_shift`` in columns.

    ``scale_type`` is "ue8m0" or "ue4m3"; ``a_scale`` and ``b_scale`` are the scale factor IDs, the
    first byte of a cell that is used.
    """

    raw: int
    m: int
    n: int
    a: Element
    b: Element
    result: str
    a_k_major: bool
    b_k_major: bool
    negative: bool
    saturate: bool
    max_shift: int
    scale_type: str
    a_scale: int
    b_scale: int


@lru_cache(maxsize=1024)
def decode(raw: int, target: Target) -> InstructionDescriptor:
    """Take the word apart. Raises ``InstructionDescriptorError`` if any field does not fit."""
    word = _Word(raw, target)
    word.check()
    f, kind = word.fields, target.kind
    return InstructionDescriptor(
        raw, word.m, word.n, kind.codes[f["a"]], kind.codes[f["b"]], word.result,
        not f["transpose A"], not f["transpose B"], f["negate A"] != f["negate B"],
        bool(f.get("saturate")), SHIFTS[f.get("max shift", 0)],
        "ue8m0" if f.get("scale type") else "ue4m3", f.get("A scale ID", 0), f.get("B scale ID", 0),
    )  # fmt: skip


def _layout(kind: Kind) -> dict[str, Field]:
    if not kind.scaled:
        return _PLAIN
    return _SCALED if kind.name == "mxf8f6f4" else _FOUR_BITS


class _Word:
    """The fields of a word as one kind reads them."""

    def __init__(self, raw: int, target: Target) -> None:
        self.raw, self.target = raw, target
        layout = _layout(target.kind)
        self.fields = {name: raw >> at & (1 << size) - 1 for name, (at, size) in layout.items()}
        known = sum((1 << size) - 1 << at for at, size in layout.values())
        self.reserved = raw & ~known & 0xFFFFFFFF
        self.m = self.fields["m"] * (128 if target.kind.scaled else 16)
        self.n = self.fields["n"] * 8

    @property
    def result(self) -> str:
        results = self.target.kind.results
        return "f32" if results is None else results.get(self.fields["d"], "?")

    def __str__(self) -> str:
        f, codes = self.fields, self.target.kind.codes
        parts = [f"M {self.m}", f"N {self.n}"]
        for name in "AB":
            code = f[name.lower()]
            element = codes[code].name if code in codes else f"type code {code}"
            sign = "-" if f[f"negate {name}"] else ""
            major = f"{'M' if name == 'A' else 'N'}-major" if f[f"transpose {name}"] else "K-major"
            parts.append(f"{name} {sign}{element} {major}")
        parts.append(f"D {self.result}")
        parts += [f"{name} {f[name]}" for name in f if name not in _SHOWN and f[name]]
        return f"0x{self.raw:08x} (kind::{self.target.kind.name}: {', '.join(parts)})"

    def refuse(self, why: str) -> InstructionDescriptorError:
        return InstructionDescriptorError(f"instruction descriptor {self}: {why}")

    def check(self) -> None:
        if self.reserved:
            raise self.refuse(f"reserved bits 0x{self.reserved:x} are set")
        self._check_sparsity()
        self._check_types()
        self._check_operations()
        self._check_shape()
        if self.target.kind.scaled:
            self._check_scales()

    def _check_sparsity(self) -> None:
        if self.fields["sparse"]:
            raise self.refuse("bit 2 says that A is sparse, but the instruction is dense")
        if self.fields.get("sparsity selector"):
            raise self.refuse("a sparsity selector (bits 0-1) needs a sparse A")

    def _check_types(self) -> None:
        kind, f = self.target.kind, self.fields
        for name in "ab":
            if f[name] not in kind.codes:
                accepted = ", ".join(f"{code} ({e.name})" for code, e in kind.codes.items())
                raise self.refuse(f"type code {f[name]} of {name.upper()}; accepted: {accepted}")
        if kind.results is not None and f["d"] not in kind.results:
            accepted = ", ".join(f"{code} ({name})" for code, name in kind.results.items())
            raise self.refuse(f"type code {f['d']} of D; accepted: {accepted}")
        if self.result == "f16" and kind.name == "f16" and (f["a"], f["b"]) != (0, 0):
            raise self.refuse("D can be f16 only if A and B are f16")

    def _check_operations(self) -> None:
        kind, f = self.target.kind, self.fields
        if f.get("saturate") and kind.name != "i8":
            raise self.refuse("saturation (bit 3) is for integers")
        if not kind.negates and (f["negate A"] or f["negate B"]):
            raise self.refuse("this kind cannot negate A or B (bits 13, 14)")
        if not kind.transposes and (f["transpose A"] or f["transpose B"]):
            raise self.refuse("this kind cannot transpose A or B (bits 15, 16)")
        if self.target.a_in_tensor_memory and f["transpose A"]:
            raise self.refuse("A in tensor memory is K-major; bit 15 must be 0")
        if f.get("max shift") and not self.target.ws:
            raise self.refuse("a maximum shift of B (bits 30-31) is for .ws")
        if f.get("K dimension"):
            raise self.refuse("K = 96 (bit 31) is for sm_103a")

    def _check_shape(self) -> None:
        target = self.target
        form = ".ws" if target.ws else f".cta_group::{target.cta_group}"
        rows = target.kind.rows(target.cta_group, target.ws)
        if self.m not in rows:
            raise self.refuse(f"M = {self.m}; accepted with {form}: {_listed(rows)}")
        transposed = bool(self.fields["transpose B"])
        columns = target.kind.columns(target.cta_group, target.ws, transposed)
        if self.n not in columns:
            major = " and B N-major" if transposed else ""
            raise self.refuse(f"N = {self.n}; accepted with {form}{major}: {_listed(columns)}")

    def _check_scales(self) -> None:
        f, vector = self.fields, self.target.vector
        if not f["scale type"] and vector != 4:
            raise self.refuse("scale factors of ue4m3 (bit 23 = 0) need .scale_vec::4X; these are"
                              f" .scale_vec::{vector}X and must be ue8m0 (1)")  # fmt: skip
        for name in ("A scale ID", "B scale ID"):
            if f[name] % vector:
                accepted = ", ".join(str(i) for i in range(0, 4, vector))
                raise self.refuse(
                    f"{name} {f[name]}; accepted with .scale_vec::{vector}X: {accepted}"
                )


_SHOWN = {"a", "b", "d", "m", "n", "negate A", "negate B", "transpose A", "transpose B"}


def _listed(values: tuple[int, ...]) -> str:
    """``8, 16, 24, ... 256``, or all of a few."""
    if len(values) <= 5:
        return ", ".join(map(str, values))
    head = ", ".join(map(str, values[:3]))
    return f"{head}, ... {values[-1]} (steps of {values[-1] - values[-2]})"
