"""One kernel per form of a register-to-register instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .model import EXACT, Buffer, Case, Comparison, output
from .values import KINDS, columns

HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
BLOCK = 128


@dataclass(frozen=True)
class Form:
    """``code`` reads registers %a, %b, ... and writes %d, %e, ...; by default one instruction.

    ``sources`` and ``results`` are names of ``values.KINDS``.
    """

    op: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    code: str = ""
    comparison: Comparison = EXACT
    lanes: int = 512

    @property
    def text(self) -> str:
        if self.code:
            return self.code
        operands = [f"%{d}" for d, _ in zip("de", self.results, strict=False)]
        target = "|".join(operands)
        return f"{self.op} {', '.join([target, *(f'%{s}' for s in 'abcf'[: len(self.sources)])])};"


def _register(name: str) -> str:
    return "pred" if name == "pred" else f"b{max(KINDS[name].bits, 16)}"


def _load(name: str, kind: str, parameter: int) -> str:
    size = KINDS[kind].storage.itemsize
    text = f".reg .{_register(kind)} %{name}; ld.param.u64 %x, [p{parameter}]; "
    text += f"mad.wide.u32 %x, %i, {size}, %x; "
    if kind == "pred":
        return text + f"ld.global.u8 %h, [%x]; setp.ne.u16 %{name}, %h, 0;"
    letter = "s" if kind.startswith("s") else "u" if kind.startswith("u") else "b"
    return text + f"ld.global.{letter}{8 * size} %{name}, [%x];"


def _store(name: str, kind: str, parameter: int) -> str:
    size = KINDS[kind].storage.itemsize
    text = f"ld.param.u64 %x, [p{parameter}]; mad.wide.u32 %x, %i, {size}, %x; "
    if kind == "pred":
        return text + f"selp.u16 %h, 1, 0, %{name}; st.global.u8 [%x], %h;"
    return text + f"st.global.b{8 * size} [%x], %{name};"


def kernel(form: Form) -> str:
    """PTX of a kernel that applies the form to each element of its arrays."""
    count = len(form.sources) + len(form.results)
    lines = [f"{HEADER}.visible .entry k({', '.join(f'.param .u64 p{i}' for i in range(count))})"]
    lines.append("{\n.reg .b64 %x; .reg .b32 %i, %j; .reg .b16 %h;")
    lines.append(f"mov.u32 %i, %tid.x; mov.u32 %j, %ctaid.x; mad.lo.u32 %i, %j, {BLOCK}, %i;")
    lines += [_load("abcf"[i], kind, i) for i, kind in enumerate(form.sources)]
    lines += [f".reg .{_register(kind)} %{'de'[i]};" for i, kind in enumerate(form.results)]
    lines.append(form.text)
    first = len(form.sources)
    lines += [_store("de"[i], kind, first + i) for i, kind in enumerate(form.results)]
    return "\n".join([*lines, "ret;\n}\n"])


def case(form: Form) -> Case:
    """The form on corners and random values."""
    name = form.op + (f" {'/'.join(form.sources)}" if form.code else "")
    inputs = columns(form.sources, name, form.lanes)
    results = [output(form.lanes, KINDS[kind].storage.itemsize) for kind in form.results]
    args = (*map(Buffer, inputs), *results)
    return Case(re.sub(r"\s+", " ", name), kernel(form), args, form.lanes // BLOCK, BLOCK,
                comparison=form.comparison)  # fmt: skip
