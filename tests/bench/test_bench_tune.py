"""`gpukit tune matmul`: the contest, on an emulated GPU with made-up times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpukit.measure
from gpukit.bench import tune as tuning
from gpukit.bench.families import buffers
from gpukit.bench.model import Case
from gpukit.devices import emulated
from gpukit.devices.emulated import EmulatedDevice
from gpukit.errors import UnsupportedError
from gpukit.ops.matmul import Vector, choose, run, tuned
from gpukit.ops.matmul.choose import modelled
from gpukit.ops.matmul.explain import allowed, dense

SHAPE = (40, 64, 128)


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EmulatedDevice:
    monkeypatch.setenv("GPUKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(buffers, "slots_for", lambda *given, **words: 2)
    tuned.forget()
    device = emulated.get("h100")
    device.use()
    return device


def case(dtype: str = "bf16", shape: tuple[int, int, int] = SHAPE, **params: str) -> Case:
    return Case("matmul", "matmul.auto", dtype, dict(zip("mnk", shape, strict=True)),
                {"layout": "nt", "out": "bf16", **params})


def clock(monkeypatch: pytest.MonkeyPatch, times: dict[str, float]) -> list[list[str]]:
    """Works take what `times` says, 10 us otherwise; the contests held."""
    contests = []

    def time_works(works: Sequence[Any], options: Any) -> list[Any]:
        assert options.l2 == "rotate" and options.method == "graph"
        contests.append([work.name for work in works])
        for work in works:
            work.launch(work.slots - 1)
        return [SimpleNamespace(median_us=times.get(work.name, 10.0)) for work in works]

    monkeypatch.setattr(gpukit.measure, "time_works", time_works)
    return contests


def test_the_fastest_is_remembered_and_used(h100: EmulatedDevice,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense(*SHAPE)
    estimates = allowed(problem, h100.properties, 4)
    model, other = str(estimates[0].config), str(estimates[2].config)
    contests = clock(monkeypatch, {other: 7.0})
    steps: list[str] = []
    outcome = tuning.tune(case(), h100, 4, steps.append)
    assert outcome.winner == other and outcome.candidates[0].config == other
    assert outcome.speedup() == pytest.approx(10 / 7)
    assert [len(contest) for contest in contests] == [4, 3] and model in contests[1]
    assert steps[0].startswith("compiling 1 of 4: ") and steps[-1] == "timing 3 finalists"
    assert str(choose(problem, h100.properties)) == other
    assert modelled(problem, h100.properties) == estimates[0].config


def test_the_models_choice_stays_unless_it_is_beaten(h100: EmulatedDevice,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = allowed(dense(*SHAPE), h100.properties, 3)
    clock(monkeypatch, {str(estimates[1].config): 9.97})
    assert tuning.tune(case(), h100, 3).winner == str(estimates[0].config)


def test_wrong_and_broken_candidates_do_not_win(h100: EmulatedDevice,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (str(e.config) for e in allowed(dense(*SHAPE), h100.properties, 3))
    right = run._run

    def sabotaged(call: Any, forced: Any) -> Any:
        if str(forced) == first:
            raise UnsupportedError("no room")
        launch = right(call, forced)
        if str(forced) == second:
            call.out[..., 0] = 7
        return launch

    monkeypatch.setattr(run, "_run", sabotaged)
    clock(monkeypatch, {})
    outcome = tuning.tune(case(), h100, 3)
    assert outcome.winner == third
    notes = {measured.config: measured.note for measured in outcome.candidates}
    assert "no room" in notes[first]
    assert notes[second].startswith("its result is wrong")


def test_nothing_to_choose_from(h100: EmulatedDevice) -> None:
    with pytest.raises(UnsupportedError, match="vector is all there is"):
        tuning.tune(case("f32", (8, 64, 128), out="f32"), h100, 8)
    assert choose(dense(8, 64, 128, dtype="f32"), h100.properties) == Vector()


def test_float32(h100: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, {})
    outcome = tuning.tune(case("f32", out="f32"), h100, 2)
    assert outcome.winner.startswith("sgemm:")


def test_8_bit_operands(h100: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, {})
    outcome = tuning.tune(case("e4m3", scales="block"), h100, 2)
    assert outcome.winner.startswith("narrow:")
    assert all(measured.median_us for measured in outcome.candidates)
