"""Both ladders, modelled, beside what is known of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpukit.bench.model import TIMED_STATUSES
from gpukit.bench.published import published
from gpukit.bench.store import read_document
from gpukit.bench.timemodel.fit import fit, with_figures
from gpukit.bench.timemodel.machine import B200, FITTED, H200, SOURCES, Machine
from gpukit.bench.timemodel.predict import predict
from gpukit.bench.timemodel.work import Rung, measure
from gpukit.errors import ArgumentError

SIZE = 4096
RUNGS = range(1, 9)

Progress = Callable[[str], None]


def model(ladder: Path, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Fit the H200's figures to its measured ladder, then model the B200's.

    Args:
        ladder: results of `gpukit bench matmul --kernel all --shape 4096` on an H200.
        progress: told which rung is being counted.

    Returns:
        "rows": per rung and GPU the model beside the known figure, and the model's error in per
        cent; "machines": every figure of both GPUs, and "sources" where it comes from.

    Raises:
        ArgumentError: the results hold no such ladder.
    """
    times = _measured(ladder)
    hopper = {r: _count(r, "sm90", "h100", "nt", progress) for r in RUNGS}
    blackwell = {r: _count(r, "sm100", "b200", "nn", progress) for r in RUNGS}
    h200 = fit(H200, [(hopper[r], us) for r, us in times.items()], SIZE)
    b200 = with_figures(B200, [getattr(h200, name) for name in FITTED])
    measured = {r: 2 * SIZE**3 / us / 1e6 for r, us in times.items()}
    rows = [*_rows(hopper, h200, measured, "measured"),
            *_rows(blackwell, b200, _published(), "published")]
    return {"rows": rows, "machines": [asdict(h200), asdict(b200)], "sources": SOURCES}


def _count(rung: int, arch: str, gpu: str, naive: str, progress: Progress) -> Rung:
    """The published naive kernel reads B [K, N], the one measured on the H200 B [N, K]."""
    kernel = "matmul.k1" if rung == 1 else f"matmul.{arch}.k{rung}"
    progress(f"counting {kernel} on emu:{gpu}")
    return measure(kernel, gpu, naive if rung == 1 else "nt")


def _measured(ladder: Path) -> dict[int, float]:
    """us of each rung."""
    rows = read_document(ladder)["rows"]
    cube = {"m": SIZE, "n": SIZE, "k": SIZE}
    found = {int(match[1]): row["time_us"] for row in rows
             if (match := re.fullmatch(r"matmul\.(?:sm90\.)?k(\d)", row["kernel"]))
             and row["shape"] == cube and row["status"] in TIMED_STATUSES}
    if set(found) != set(RUNGS):
        raise ArgumentError(f"{ladder} has times of rungs {sorted(found)} at {SIZE}^3; accepted: "
                            f"all of {RUNGS[0]} to {RUNGS[-1]}")
    return found


def _published() -> dict[int, float]:
    """TFLOPS of each rung on a B200; empty outside a checkout."""
    figures = published("matmul") or []
    return {int(match[1]): figure.value for figure in figures
            if (match := re.match(r"kernel (\d)\b", figure.row))}


def _rows(rungs: Mapping[int, Rung], machine: Machine, known: Mapping[int, float],
          origin: str) -> Sequence[dict[str, Any]]:
    rows = []
    for number, rung in rungs.items():
        said = predict(rung, machine, SIZE, SIZE, SIZE)
        row = {"gpu": machine.name, "rung": number, "bound": said.bound,
               "model_us": round(said.us, 1), "model_TFLOPS": round(said.tflops, 1)}
        if number in known:
            row |= {"known_TFLOPS": round(known[number], 1), "known": origin,
                    "error_%": round(100 * (said.tflops / known[number] - 1), 1)}
        rows.append(row)
    return rows
