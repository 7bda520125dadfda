"""Faults planted in the Blackwell attention kernel, and what finds each; what it need not have."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from attention_sm100 import SMALL, check, problem

from gpukit import emulator, sources
from gpukit.devices.emulated import EmulatedDevice
from gpukit.devices.models import MODELS
from gpukit.emulator.policies import POLICIES
from gpukit.errors import LaunchError
from gpukit.reference.attention import Rules

FOLDER = "attention/sm100"
FENCE, FENCE_BEFORE = "        tcgen05::fence_after();\n", "        tcgen05::fence_before();\n"
ARRIVALS = "{1, 1, 1, 4, 8, 4, 4, 1}"  # q_full, q_empty, scored, risen, ready, summed, heard, done


class Fault(NamedTuple):
    """A piece of text, what stands in its place, and the errors that find it; none: wrong values.

    Which of several errors comes first depends on the schedule.
    """

    file: str
    text: str
    instead: str = ""
    errors: tuple[str, ...] = ()


HAZARD, FENCES = ("AsyncHazardError",), ("MissingTensorFenceError",)
FAULTS = {
    # fences
    "multiplier: no fence behind a wait": Fault("multiply.cuh", FENCE, errors=FENCES),
    "softmax: no fence behind a wait": Fault("weigh.cuh", FENCE, errors=FENCES),
    "rescaling: no fence": Fault(
        "correct.cuh", "return;\n" + FENCE, "return;\n", errors=FENCES),
    "output: no fence": Fault(
        "correct.cuh", FENCE + "        finish<true>", "        finish<true>", errors=FENCES),
    "output: no proxy fence in front of the store": Fault(
        "correct.cuh", "        tma::fence_shared();\n", errors=("MissingProxyFenceError",)),
    "answer of cluster launch control: no proxy fence": Fault(
        "load.cuh", "        tma::fence_shared();  // read, before it is written again\n",
        errors=("MissingProxyFenceError",)),
    # waits
    "softmax: loads of S not awaited": Fault(
        "weigh.cuh", "        tcgen05::wait_load();\n", errors=HAZARD),
    "softmax: stores of P not awaited": Fault(
        "weigh.cuh", "        tcgen05::wait_store();\n", errors=HAZARD),
    "rescaling: stores of O not awaited": Fault(
        "correct.cuh", "        tcgen05::wait_store();\n", errors=HAZARD),
    "output: loads of O not awaited": Fault(
        "correct.cuh", "load_row(o, sums + i);\n                tcgen05::wait_load();\n",
        "load_row(o, sums + i);\n", errors=HAZARD),
    "output: before O is complete": Fault(
        "correct.cuh", "        mbarrier::wait(shared.done(tile), done_parity);\n",
        errors=(*HAZARD, "BarrierError", "DataRaceError")),
    "output: buffer that is still read": Fault(
        "correct.cuh", "        if (leader) tma::wait_read<1>();"
        "  // the store before the last has read this buffer\n", errors=HAZARD),
    "output: stores not awaited at the end": Fault(
        "k4_roles.cu", "        if (warp::lane() == 0) tma::wait_all();\n",
        errors=("PendingAsyncError",)),
    "correction: factor not awaited": Fault(
        "correct.cuh", "        mbarrier::wait(shared.risen(tile), risen_parity[tile]);\n",
        errors=("UninitializedReadError", "DataRaceError")),
    "softmax: statistics that nobody has read": Fault(
        "weigh.cuh", "        mbarrier::wait(shared.heard(tile), heard_parity);\n",
        errors=("BarrierError", "DataRaceError")),
    "loader: leaves before the last word that a stage is free": Fault(
        "k4_roles.cu", "            loader.await_all();\n", errors=("PendingAsyncError",)),
    "Tensor Memory freed early": Fault(
        "k4_roles.cu", "    __syncthreads();  // all have read their sums\n",
        errors=("TensorMemoryError", "AsyncHazardError", "OutOfBoundsError", "DataRaceError")),
    # barriers
    "ready: correction does not count": Fault(
        "shared.cuh", ARRIVALS, "{1, 1, 1, 4, 4, 4, 4, 1}", errors=(*HAZARD, "BarrierError")),
    "heard: one warp is enough": Fault(
        "shared.cuh", ARRIVALS, "{1, 1, 1, 4, 8, 4, 1, 1}",
        errors=("BarrierError", "DataRaceError")),
    "softmax: wrong phase": Fault(
        "weigh.cuh", "scored_parity = 0", "scored_parity = 1",
        errors=(*HAZARD, "UninitializedReadError", "MissingTensorFenceError")),
    "loader: wrong phase": Fault(
        "load.cuh", "at.parity ^ 1);\n        from", "at.parity);\n        from",
        errors=("DeadlockError",)),
    "loader: wrong number of bytes": Fault(
        "load.cuh", "full, S::Q_BYTES", "full, S::Q_BYTES + 16", errors=("DeadlockError",)),
    "multiplier: no word that O is complete": Fault(
        "multiply.cuh", "        if (j == blocks[tile].first) commit(shared.done(tile));\n",
        errors=("DeadlockError",)),
    "correction: no word that O is free": Fault(
        "correct.cuh", "            arrive_warp(shared.ready(tile));"
        "  // the sums of the job before have been read\n", errors=("DeadlockError",)),
    "softmax: ready before P is written": Fault(
        "weigh.cuh", "read(s, job, j);\n        const", "read(s, job, j);\n"
        "        arrive_warp(shared.ready(tile));\n        const",
        errors=("BarrierError", *HAZARD)),
    # buffers
    "multiplier: keys given back unused": Fault(
        "multiply.cuh", "at.parity);\n#pragma",
        "at.parity);\n        commit(shared.empty(at.stage));\n#pragma",
        errors=(*HAZARD, "BarrierError")),
    "multiplier: values given back after one tile": Fault(
        "multiply.cuh", "if (tile == S::TILES - 1) commit", "if (tile == 0) commit",
        errors=HAZARD),
    "multiplier: queries given back early": Fault(
        "multiply.cuh", "if (j == blocks[tile].first) commit(shared.q_empty",
        "if (j == blocks[tile].end - 1) commit(shared.q_empty", errors=(*HAZARD, "BarrierError")),
    "weights over the other tile's scores": Fault(
        "shape.cuh", "{ return scores(tile); }", "{ return scores(1 - tile); }",
        errors=(*HAZARD, "DataRaceError")),
    # values
    "sums of a new job added to the old ones": Fault(
        "multiply.cuh", "j != blocks[tile].end - 1);", "true);",
        errors=("UninitializedReadError",)),
    "no rescaling": Fault(
        "correct.cuh", "        rescale(tile, shared.statistics().factor[tile][row()]);\n"),
    "sum of weights not rescaled": Fault(
        "row_softmax.cuh", "max = top, sum *= factor;", "max = top;"),
    "maximum follows, sums do not": Fault(
        "row_softmax.cuh", "> f32(SLACK))) return 1.0f;",
        "> f32(SLACK))) { max = fmaxf(max, top); return 1.0f; }"),
    "mask off by one": Fault("row_softmax.cuh", "bool in = i < end;", "bool in = i <= end;"),
    "first product of each block overwrites": Fault("shape.cuh", "add || kk != 0", "kk != 0"),
}
# A completed load or store needs no fence in front of a barrier: so the checks, and CUTLASS.
SPARE = {
    "softmax: fence behind the stores of P": Fault("weigh.cuh", FENCE_BEFORE),
    "rescaling: fence behind the stores of O": Fault(
        "correct.cuh", "wait_store();\n" + FENCE_BEFORE, "wait_store();\n"),
    "output: fence behind the loads of O": Fault(
        "correct.cuh", "last.factor);\n" + FENCE_BEFORE, "last.factor);\n"),
}
QUICK = ("rescaling: no fence", "softmax: stores of P not awaited", "no rescaling")


def run(fault: Fault, policy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of several blocks in one CTA, with maxima that grow."""
    root = folder / "cuda_src"
    shutil.copytree(sources.root(), root)
    file = root / FOLDER / fault.file
    whole = file.read_text()
    assert whole.count(fault.text) == 1
    file.write_text(whole.replace(fault.text, fault.instead))
    monkeypatch.setattr(sources, "root", lambda: root)
    monkeypatch.setattr(emulator, "run", partial(emulator.run, policy=policy, seed=0))
    device = EmulatedDevice("b200", MODELS["b200"])
    p = problem(256, 300, heads=2, mask="causal", gain=8, device=device)
    check(p, SMALL, Rules("causal"))


def find(fault: Fault, policy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fault.errors:
        with pytest.raises(AssertionError):
            run(fault, policy, folder, monkeypatch)
        return
    with pytest.raises(LaunchError) as caught:
        run(fault, policy, folder, monkeypatch)
    assert type(caught.value.__cause__).__name__ in fault.errors


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found(name: str, policy: str, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    find(FAULTS[name], policy, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", QUICK)
def test_some_faults_are_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(FAULTS[name], "random", tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SPARE)
def test_could_be_left_out(name: str, policy: str, tmp_path: Path,
                           monkeypatch: pytest.MonkeyPatch) -> None:
    run(SPARE[name], policy, tmp_path, monkeypatch)
