"""Faults planted in rung 8 of the Blackwell ladder, and parts that it could do without."""

from __future__ import annotations

from functools import partial

import pytest
import rungs

from gpukit import emulator, sources
from gpukit.devices.emulated import EmulatedDevice
from gpukit.devices.models import MODELS
from gpukit.emulator.errors import MissingProxyFenceError, RemoteAccessError
from gpukit.errors import LaunchError
from gpukit.ops import matmul_sm100

SOURCE = "matmul/sm100/k8_clc.cu"
SCHEDULES = [("random", 0), ("early", 0), ("late", 0), ("starved", 0)]
FENCE_OF_ANSWER = "tma::fence_shared();  // read, before it is written again"
LAST_WAITS = """for (int i = 0; i < STAGES; i++, ring.next())
                mbarrier::wait(&ring.empty[ring.stage], ring.round ^ 1);"""
FENCE_OF_SUMS = "tcgen05::fence_before();\n            __syncwarp();"
check = partial(rungs.check, matmul_sm100.launch, 8)


def run(monkeypatch: pytest.MonkeyPatch, left_out: str, cluster: int,
        schedule: tuple[str, int]) -> None:
    """Rung 8 without a piece of its text: five rows of tiles, so that clusters are taken over."""
    policy, seed = schedule
    whole = sources.code(SOURCE)
    assert whole.count(left_out) == 1
    text = whole.replace(left_out, "")
    monkeypatch.setattr(sources, "code", lambda name: text)
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy, seed=seed))
    check(EmulatedDevice("b200", MODELS["b200"]), 1280, 128, 136, bn=64, cluster=cluster, stages=3)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("left_out", "cluster", "error"), [
    (FENCE_OF_ANSWER, 2, MissingProxyFenceError),
    (LAST_WAITS, 4, RemoteAccessError)], ids=["fence of the answer", "last waits"])
def test_reported(left_out: str, cluster: int, error: type[Exception], schedule: tuple[str, int],
                  monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LaunchError) as caught:
        run(monkeypatch, left_out, cluster, schedule)
    assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("left_out", "cluster"), [
    (FENCE_OF_SUMS, 2),  # of completed loads no fence is asked
    (LAST_WAITS, 2)],  # one pair: who has seen its last commit has seen those before
    ids=["fence of the sums", "last waits of one pair"])
def test_could_be_left_out(left_out: str, cluster: int, schedule: tuple[str, int],
                           monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, left_out, cluster, schedule)
