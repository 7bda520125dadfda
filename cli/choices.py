"""``gpukit show matmul --shape``: which kernel a problem gets, and what others would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from .table import Field, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpukit.ops.matmul.choose import Estimate
    from gpukit.ops.matmul.explain import Explanation

_SOURCES = {
    "tuned": "measured by `gpukit tune` on this machine",
    "model": "the cost model's best",
    "only one": "all there is for this problem",
}


def show_choices(
    shapes: Sequence[tuple[int, int, int]],
    *,
    device: str = "auto",
    out_dtype: str | None = None,
    **words: Any,
) -> None:
    """Print the choice for each problem and the candidates beside it."""
    from gpukit import devices
    from gpukit.ops.matmul.explain import dense, explain

    properties = devices.get(device).properties
    for shape in shapes:
        found = explain(dense(*shape, out=out_dtype, **words), properties)
        click.echo(f"{'x'.join(map(str, shape))} on {properties.name}: {found.config}")
        click.echo(f"{_SOURCES[found.source]}{_packed(found)}\n")
        if found.source != "only one":
            print_table(_fields(found, found.estimates))
            click.echo()


def _packed(found: Explanation) -> str:
    """Say what is copied first."""
    problem = found.problem
    names = [name for name, ok in (("A", problem.tma_a), ("B", problem.tma_b)) if not ok]
    if found.config.kind not in ("gemm", "narrow", "tcgen05") or not names:
        return ""
    return f"; {' and '.join(names)} packed first: TMA cannot address it as it is"


def _fields(found: Explanation, estimates: Sequence[Estimate]) -> list[Field]:
    flops = found.problem.flops
    return [
        Field("", tuple("*" if e.config == found.config else "" for e in estimates)),
        Field("config", tuple(str(e.config) for e in estimates)),
        Field("model (us)", _numbers([e.microseconds for e in estimates]), numeric=True),
        Field(
            "model (TFLOPS)",
            _numbers([flops / e.microseconds / 1e6 for e in estimates]),
            numeric=True,
            rank=1,
        ),
    ]


def _numbers(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(f"{value:.1f}" if math.isfinite(value) else "-" for value in values)
