"""``gpukit tune FAMILY``: measure what `gpukit` may choose from, remember the fastest."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from gpukit.bench.axes import Choices, Shapes
from gpukit.errors import GpukitError, NoDeviceError

from . import terminal
from .main import FAILED, OK
from .options import Parsed, merged
from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpukit.bench.model import Case
    from gpukit.bench.tune import Outcome
    from gpukit.devices.cuda import CudaDevice

_DTYPES = ("bf16", "f16", "f32", "tf32", "e4m3", "e5m2")
_LAYOUTS = ("nt", "nn", "tn", "tt")
_OUTPUTS = ("same", "bf16", "f16", "f32")
_SCALES = ("tensor", "none", "rowcol", "block")


@click.group()
def tune() -> None:
    """Measure the kernels that gpukit may choose from and remember the fastest.

    Choices are kept in GPUKIT_CACHE_DIR (~/.cache/gpukit by default), for this GPU and version of
    gpukit, and used from then on; GPUKIT_TUNE=0 leaves them unread.
    """


@tune.command()
@click.option(
    "--shape",
    "shapes",
    required=True,
    multiple=True,
    type=Parsed(Shapes(("M", "N", "K"), 1), "MxNxK[,...]"),
    help="Problems.  [repeatable]",
)
@click.option(
    "--dtype",
    "types",
    multiple=True,
    type=Parsed(Choices(_DTYPES), "DTYPE[,...]"),
    help="Type of A and B.  [default: bf16]",
)
@click.option(
    "--layout",
    "layouts",
    multiple=True,
    type=Parsed(Choices(_LAYOUTS), "LAYOUT[,...]"),
    help="How A and B are stored: n as is, t transposed.  [default: nt]",
)
@click.option("--out-dtype", type=click.Choice(_OUTPUTS), default="same", show_default=True)
@click.option(
    "--scales",
    type=click.Choice(_SCALES),
    default="tensor",
    show_default=True,
    help="Of 8-bit operands.",
)
@click.option(
    "--top",
    type=click.IntRange(2, 200),
    default=24,
    show_default=True,
    help="Candidates per problem: the cost model's best.",
)
@click.option("--device", default="auto", show_default=True, help="cuda:0, 1, ...")
@click.option("--format", "how", type=click.Choice(["table", "json"]), default="table")
def matmul(
    shapes: tuple[tuple[Any, ...], ...],
    types: tuple[tuple[Any, ...], ...],
    layouts: tuple[tuple[Any, ...], ...],
    device: str,
    top: int,
    how: str,
    **words: str,
) -> int:
    """Tune gpukit.matmul for problems."""
    gpu = _gpu(device)
    outcomes, code = [], OK
    for case in _cases(merged(shapes), merged(types), merged(layouts), **words):
        try:
            outcomes.append(_tuned(case, gpu, top, how))
        except GpukitError as problem:
            terminal.warn(f"gpukit: error: {case.key}: {problem}")
            code = FAILED
    if how == "json":
        click.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return code


def _gpu(name: str) -> CudaDevice:
    """Return the GPU of that name, made current; what is emulated has no clock."""
    from gpukit.bench.target import GpuTarget, open_target

    target = open_target(name)
    if not isinstance(target, GpuTarget):
        raise NoDeviceError(f"tuning measures, and {target.name} has no clock: it needs a GPU")
    return target.device


def _cases(
    shapes: tuple[Any, ...],
    types: tuple[Any, ...],
    layouts: tuple[Any, ...],
    out_dtype: str,
    scales: str,
) -> Iterator[Case]:
    from gpukit.bench.families.matmul import FAMILY

    for shape, dtype, layout in itertools.product(shapes, types or ("bf16",), layouts or ("nt",)):
        selection: dict[str, tuple[Any, ...]] = {
            "kernel": ("auto",),
            "shape": (shape,),
            "suite": (),
            "dtype": (dtype,),
            "layout": (layout,),
            "out_dtype": (out_dtype,),
            "scales": (scales,),
            "accumulate": ("exact",),
        }
        yield from FAMILY.cases(selection)


def _tuned(case: Case, gpu: CudaDevice, top: int, how: str) -> Outcome:
    from gpukit.bench.tune import tune as tune_case

    outcome = tune_case(case, gpu, top, _announce)
    if how == "table":
        click.echo(f"\n{outcome.case}")
        print_table(_fields(outcome))
    return outcome


def _announce(step: str) -> None:
    if terminal.interactive(sys.stderr):
        terminal.warn(step)


def _fields(outcome: Outcome) -> list[Field]:
    rows = outcome.candidates
    return [
        Field("", tuple("*" if row.config == outcome.winner else "" for row in rows)),
        Field("config", tuple(row.config for row in rows)),
        Field("us", tuple(_number(row.median_us) for row in rows), numeric=True),
        Field("model (us)", tuple(_number(row.model_us) for row in rows), numeric=True, rank=1),
        *([Field("note", tuple(row.note for row in rows), rank=2)] if any(
            row.note for row in rows) else []),
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
