"""``gpukit layout``: where the elements of matrices lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpukit.errors import ArgumentError

from . import terminal
from .lazy import NamedGroup
from .options import PATH
from .outputs import writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpukit.layout.picture import Picture

_MODES = ("none", "32", "64", "128")
_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")


def _choice(name: str, values: tuple[str, ...], default: str, text: str) -> click.Option:
    return click.Option([f"--{name}"], type=click.Choice(list(values)), default=default,
                        show_default=True, help=text)


def _number(name: str, default: int, text: str, least: int = 1, most: int = 512) -> click.Option:
    return click.Option([f"--{name}"], type=click.IntRange(least, most), default=default,
                        show_default=True, help=text)


def _dtype(default: str = "bf16", values: tuple[str, ...] = _TYPES) -> click.Option:
    return _choice("dtype", values, default, "Element type.")


def _columns(default: int = 8) -> click.Option:
    return click.Option(["--n"], type=_Eighths(), default=default, show_default=True,
                        help="Columns: a multiple of 8 up to 256.")


class _Eighths(click.ParamType):  # type: ignore[type-arg]
    """A multiple of 8 up to 256."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not text.isascii() or not text.isdecimal() or int(text) % 8 \
                or not 8 <= int(text) <= 256:
            self.fail(f"{value!r} is not a multiple of 8 from 8 to 256", param, ctx)
        return int(text)


class _Window(click.ParamType):  # type: ignore[type-arg]
    """Rows or columns to show: ``8``, ``0:16``, ``16:``."""

    name = "FIRST:END"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> slice:
        match = re.fullmatch(r"(\d{0,6})(:?)(\d{0,6})", value, re.ASCII)
        if not match or not value.strip(":"):
            self.fail(f"{value!r} is not of the form FIRST:END", param, ctx)
        first = int(match[1] or 0)
        if not match[2]:
            return slice(first, first + 1)
        return slice(first, int(match[3]) if match[3] else None)


def _mode(default: str = "128") -> click.Option:
    return _choice("swizzle", _MODES, default, "Bytes of a row of the pattern.")


_ACCESS = _choice("access", ("rows", "row"), "rows",
                  "Look for conflicts in 8 rows of 16 bytes, or in 8 chunks of a row.")
_MAJOR = _choice("major", ("k", "mn"), "k", "Which way the matrix runs in memory.")
_TENSOR_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


@dataclass(frozen=True)
class _Kind:
    """One subcommand: what it shows, where its picture comes from, its own options."""

    summary: str
    builder: str
    options: tuple[click.Option, ...] = ()


_KINDS = {
    "wgmma-a": _Kind("A of wgmma, 64 rows: in shared memory or in registers.", "wgmma_a", (
        _choice("place", ("shared", "registers"), "shared", "Where A is."), _dtype(), _mode(),
        _MAJOR, _ACCESS)),
    "wgmma-b": _Kind("B of wgmma, N rows of K, in shared memory.", "wgmma_b", (
        _columns(), _dtype(), _mode(), _MAJOR, _ACCESS)),
    "wgmma-d": _Kind("D of wgmma, in registers.", "wgmma_d", (
        _columns(), _dtype("f32", ("f32", "f16", "s32")))),
    "tcgen05-ld": _Kind("What a warp's tcgen05.ld reads of tensor memory.", "tcgen05_ld", (
        _choice("shape", _TENSOR_SHAPES, "32x32b", "Of the instruction."),
        _number("repeat", 2, "The x1, x2, ... of the instruction.", most=128),
        _number("split", 16, "Second column of 16x32bx2."))),
    "tmem": _Kind("D of tcgen05.mma in tensor memory.", "tmem", (
        _choice("m", ("32", "64", "128", "256"), "128", "Rows of D."), _columns(64),
        _choice("cta-group", ("1", "2"), "1", "CTAs that multiply together."),
        click.Option(["--ws"], is_flag=True, help="Weight stationary."))),
    "swizzle": _Kind("One period of a swizzle: which chunk of which row lies where.", "swizzle", (
        _choice("swizzle", (*_MODES, "128/32"), "128", "Bytes of a row of the pattern."),)),
    "tma-box": _Kind("Where TMA puts the rows of a box.", "tma_box", (
        _number("inner", 64, "Elements of a row.", most=256),
        _number("outer", 8, "Rows.", most=256), _dtype(), _mode(), _ACCESS)),
    "warp-access": _Kind("A load or store of shared memory by a warp, and its conflicts.",
                         "warp_access", (
        _choice("pattern", ("fragment", "row", "column"), "fragment",
                "Lanes hold an accumulator's registers, walk along a row, or have a row each."),
        _choice("width", ("4", "8", "16"), "4", "Bytes per lane."),
        _number("row-bytes", 128, "Bytes from a row to the next.", 4, 1024), _mode("none"))),
    "mma-a": _Kind("A of mma.sync, in registers.", "mma_a", (_dtype(),)),
    "mma-b": _Kind("B of mma.sync, in registers.", "mma_b", (_dtype(),)),
    "mma-c": _Kind("C and D of mma.sync, in registers.", "mma_c", (
        _dtype("f32", ("f32", "f16", "s32")),)),
    "ldmatrix": _Kind("ldmatrix: what it gives, or the addresses it reads.", "ldmatrix", (
        _choice("show", ("registers", "addresses"), "addresses", "Which side."),
        _choice("count", ("1", "2", "4"), "4", "Matrices."),
        click.Option(["--trans"], is_flag=True, help="Transposed."),
        _number("row-bytes", 128, "Bytes from a row to the next.", 16, 1024), _mode("none"))),
}


#: Choices with which other options of a layout mean nothing.
_IDLE: dict[str, dict[tuple[str, str], tuple[str, ...]]] = {
    "wgmma_a": {("place", "registers"): ("swizzle", "major", "access")},
    "ldmatrix": {("show", "registers"): ("row_bytes", "swizzle"),
                 ("show", "addresses"): ("trans",)},
    "tcgen05_ld": {("shape", shape): ("split",) for shape in _TENSOR_SHAPES if shape[-2:] != "x2"},
}


class _Layouts(NamedGroup):
    """The layouts by name."""

    kind = "layout"

    def names(self) -> Any:
        return _KINDS.keys()

    def summaries(self) -> Mapping[str, str]:
        return {name: kind.summary for name, kind in _KINDS.items()}

    def load(self, name: str) -> click.Command:
        kind = _KINDS[name]
        return click.Command(name, params=[*kind.options, *_shared_options()], help=kind.summary,
                             callback=lambda **options: _show(kind.builder, **options))


def _shared_options() -> list[click.Option]:
    return [
        click.Option(["--rows"], type=_Window(), help="Show these rows only."),
        click.Option(["--columns"], type=_Window(), help="Show these columns only."),
        click.Option(["--out"], type=PATH, help="Write .svg, .html, .png, .json or .csv."),
    ]


@click.command(cls=_Layouts, name="layout")
def layout() -> None:
    """Draw a layout: which thread, register, address and bank holds each element."""


def _show(builder: str, rows: slice | None, columns: slice | None, out: Path | None,
          **options: Any) -> None:
    from . import layout_pictures

    _refuse_idle(builder, options)
    try:
        picture: Picture = getattr(layout_pictures, builder)(**options)
    except ValueError as problem:
        raise ArgumentError(str(problem)) from problem
    part = picture.window(rows or slice(None), columns or slice(None))
    if not part.rows or not part.columns:
        raise ArgumentError(f"--rows, --columns: nothing is there; the picture has "
                            f"{len(picture.rows)} rows and {len(picture.columns)} columns")
    if out is None:
        from .grid import print_picture

        print_picture(part)
    else:
        _write(part, out)


def _refuse_idle(builder: str, options: dict[str, Any]) -> None:
    """Raise ArgumentError for an option that was given and would change nothing."""
    context = click.get_current_context()
    for (name, value), idle in _IDLE.get(builder, {}).items():
        for other in idle if options[name] == value else ():
            if context.get_parameter_source(other) is not click.core.ParameterSource.DEFAULT:
                raise ArgumentError(f"--{other.replace('_', '-')} means nothing with --{name} "
                                    f"{value}")


def _write(picture: Picture, out: Path) -> None:
    from gpukit.layout.draw import encoded

    try:
        content = encoded(picture, out)
    except ValueError as problem:
        raise ArgumentError(f"--out {problem}") from problem
    with writing("--out ", out):
        out.write_bytes(content)
    terminal.warn(f"wrote {out}")
