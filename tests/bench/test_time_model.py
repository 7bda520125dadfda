"""The model of the ladders' time: what it counts, how it adds up, what it finds again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpukit.bench.timemodel.fit import fit, with_figures
from gpukit.bench.timemodel.machine import B200, FITTED, H200, SOURCES
from gpukit.bench.timemodel.predict import predict
from gpukit.bench.timemodel.work import Rung, Work, measure

NOTHING = Work(0, 0, 0, 0, 0, 0)
STEP = Work(flops=2 * 128 * 256 * 64, l2_bytes=49152, rows=384, lines=0, instructions=200,
            stored_bytes=0)
ONCE = replace(NOTHING, stored_bytes=65536)
SERIAL = Rung("a", (128, 256), STEP, ONCE, depth=1, resident=1, pair=False, rate=1.0,
              persistent=False)
RING = replace(SERIAL, depth=4)


@pytest.mark.parametrize("name", ["sm90.k3", "sm90.k8"])
def test_work_is_that_of_the_tile(name: str) -> None:
    rung = measure(f"matmul.{name}", "h100")
    rows, columns = rung.tile
    assert rung.step.flops == 2 * rows * columns * 64
    assert rung.once.flops == 0
    assert rung.once.stored_bytes == 2 * rows * columns
    shared = 1 if name.endswith("3") else 2  # CTAs that a tile of B is fetched for
    assert rung.step.l2_bytes == 128 * (rows + columns / shared)


def test_sixteen_byte_rows_are_eight_times_as_many() -> None:
    second, third = (measure(f"matmul.sm90.k{rung}", "h100") for rung in (2, 3))
    assert second.step.rows == 8 * third.step.rows
    assert second.step.l2_bytes == third.step.l2_bytes


def test_every_figure_has_a_source() -> None:
    assert set(SOURCES) == set(H200.__dataclass_fields__) - {"name"}


def test_a_ring_hides_latency_until_the_tensor_cores_are_the_limit() -> None:
    slow, fast = (predict(rung, H200, 4096, 4096, 4096) for rung in (SERIAL, RING))
    assert (slow.bound, fast.bound) == ("latency", "mma")
    assert fast.us < slow.us
    steps, turns = 64, 4
    busy = steps * STEP.flops / (H200.mma_flops * H200.mma_share) / H200.ghz / 1e3
    assert turns * busy < fast.us < 1.5 * turns * busy


def test_a_persistent_kernel_hides_its_writes() -> None:
    assert predict(replace(RING, persistent=True), H200, 4096, 4096, 4096).us < \
        predict(RING, H200, 4096, 4096, 4096).us


def test_more_work_takes_longer() -> None:
    for rung in (SERIAL, RING):
        assert predict(rung, B200, 4096, 4096, 8192).us > predict(rung, B200, 4096, 4096, 4096).us
        assert predict(rung, B200, 8192, 4096, 4096).us > predict(rung, B200, 4096, 4096, 4096).us


def test_fit_comes_close_to_a_machine_it_does_not_know() -> None:
    hidden = with_figures(H200, [getattr(H200, name) * 1.3 for name in FITTED])
    rungs = [SERIAL, RING, replace(SERIAL, pair=True), replace(SERIAL, resident=3),
             replace(SERIAL, step=replace(STEP, rows=8000))]
    measured = [(rung, predict(rung, hidden, 4096, 4096, 4096).us) for rung in rungs]
    found = fit(H200, measured, 4096)
    for rung, us in measured:
        assert predict(rung, found, 4096, 4096, 4096).us == pytest.approx(us, rel=0.05)


def test_command_refuses_results_without_a_ladder(tmp_path: Path) -> None:
    from gpukit_cli.main import cli

    empty = tmp_path / "none.json"
    empty.write_text(json.dumps({"schema_version": 1, "rows": []}))
    result = CliRunner().invoke(cli, ["model", "matmul", "--ladder", str(empty)])
    assert "accepted: all of 1 to 8" in str(result.exception)
