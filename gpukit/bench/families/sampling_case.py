"""One sampling case: random logits, the launch, and a check of some rows in float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from gpukit import dtypes, sampling
from gpukit.bench.families import buffers
from gpukit.bench.families.sampling_peers import PEERS, Problem
from gpukit.bench.model import Case, CheckResult
from gpukit.bench.peers import Absent
from gpukit.measure import Work
from gpukit.ops.sampling import explain, resident
from gpukit.ops.sampling.ladder import RUNGS, run_rung, workspace_words
from gpukit.reference import sampling as reference
from gpukit.reference.sampling import Settings
from gpukit.reference.tolerance import Bound

SEED = 7
_CHECKED = 4  # rows of a slot: the first and the last ones
_LAUNCH = ("cluster", "threads", "stage")
# A token's probability is a few roundings of f32 away from exact; so is the border of its interval.
_BOUND = Bound(1e-12, 1e-6)
_SLACK = 1e-5
_NOISE = 1e-4  # of Gumbel scores


class PreparedSampling:
    """See `gpukit.bench.model.Prepared`. Every buffer set has its own logits and outputs."""

    def __init__(self, case: Case, device: Any, peers: tuple[str, ...]) -> None:
        self.op, self.device = case.kernel.removeprefix("sampling."), device
        self.dtype = dtypes.parse(case.dtype)
        b, v = case.shape["b"], case.shape["v"]
        k = int(case.params.get("top_k", 0))
        written = {"softmax": 4 * v, "top_k": 8 * k}.get(self.op, 8) * b
        self.footprint = b * v * self.dtype.itemsize + written
        self.bytes_moved, self.flops = self.footprint, 0
        slots = buffers.slots_for(case.l2, self.footprint, device)
        self.settings: dict[str, Any] = {n: x for n, x in case.params.items() if n not in _LAUNCH}
        self.tunables = {n: x for n, x in case.params.items() if n in _LAUNCH}
        self.inputs = _logits(device.xp, self.dtype, b, v, slots)
        self.outputs = [self._output(b, v) for _ in range(slots)]
        self.values = (device.empty((b, self.settings["top_k"]), np.float32)
                       if self.op == "top_k" else None)
        self.joint = self.op == "s4"  # it has nothing else
        self.workspace = self._workspace(self.inputs[0]) if self.op in RUNGS else None
        self._rows = sorted({*range(min(b, _CHECKED // 2)), *range(max(0, b - _CHECKED // 2), b)})
        self._kept = {slot: device.to_host(self.inputs[slot][np.array(self._rows)].copy())
                      for slot in {0, slots - 1}}
        if self.op == "resident":
            self.tunables = {**resident(self.inputs[0], self.settings["top_k"]), **self.tunables}
        self.launch: Mapping[str, Any] = explain(self.op, self.inputs[0], self.settings,
                                                 self.tunables)
        self.work = Work(case.kernel, self._run, slots)
        problem = Problem(self.op, self.inputs, self.outputs, self.settings)
        self.peers, self.notes = self._peers(peers, problem, slots)

    def _output(self, b: int, v: int) -> Any:
        """What the op writes and the check reads; of top_k the tokens."""
        if self.op == "softmax":
            return self.device.empty((b, v), np.float32)
        if self.op == "top_k":
            return self.device.empty((b, self.settings["top_k"]), np.int32)
        return self.device.empty((b,), np.int64)

    def _workspace(self, logits: Any) -> Any:
        words = workspace_words(self.op, logits, top_k=self.settings["top_k"])
        return self.device.empty((words,), np.uint64) if words else None

    def _run(self, slot: int) -> None:
        x, out, tunables = self.inputs[slot], self.outputs[slot], self.tunables
        if self.op == "top_k":
            sampling.top_k(x, self.settings["top_k"], values=self.values, tokens=out,
                           tunables=tunables)
        elif self.op == "gumbel":
            sampling.gumbel_argmax(x, **self.settings, seed=SEED, out=out, tunables=tunables)
        elif self.op in RUNGS:
            run_rung(self.op, x, **self.settings, joint=self.joint, seed=SEED, out=out,
                     workspace=self.workspace, tunables=tunables)
        elif self.op in ("sample", "resident"):
            sampling.sample(x, **self.settings, seed=SEED, out=out, tunables=tunables)
        else:
            getattr(sampling, self.op)(x, **self.settings, out=out, tunables=tunables)

    def _peers(self, names: tuple[str, ...], problem: Problem,
               slots: int) -> tuple[tuple[Work, ...], tuple[Absent, ...]]:
        makers = {name: partial(PEERS[name], problem) for name in names}
        return buffers.peer_works(makers, slots, self.device)

    def poison(self) -> None:
        """Outputs of every buffer set hold what no right answer holds."""
        for out in self.outputs:
            buffers.poison(out)

    def check(self, slot: int = 0) -> CheckResult:
        """Some rows: the very token where rounding cannot move it, probabilities to 1e-6."""
        out = self.outputs[slot]
        if buffers.poisoned(out):
            return CheckResult(float("inf"), "every row written", False)
        got, logits = self.device.to_host(out)[self._rows], self._kept[slot]
        if self.op == "softmax":
            want = np.stack([reference.softmax(row, self.settings["temperature"])
                             for row in logits])
            return buffers.judge(got.astype(np.float64), want, _BOUND, complete=True)
        right = all(self._right(token, row) for token, row in zip(got, logits, strict=True))
        return CheckResult(0.0 if right else float("inf"), "exact token", right)

    def _right(self, got: Any, row: Any) -> bool:
        if self.op == "top_k":
            return bool((got == reference.top_k(row, self.settings["top_k"])[1]).all())
        if self.op == "gumbel":
            scores = reference.gumbel_scores(row, self.settings["temperature"], SEED)
            return bool(scores[int(got)] >= scores.max() - _NOISE)
        return int(got) in self._tokens(row)

    def _tokens(self, row: Any) -> set[int]:
        if self.op == "argmax":
            return {int(reference.argmax(row))}
        settings = Settings(**self.settings, joint=self.joint)
        tokens: set[int] = set()
        for slack in (-1e-6, 0.0, 1e-6):
            kept = reference.distribution(row, settings, slack)
            if self.op == "s4":  # rejected draws take further numbers: any kept token is right
                tokens |= set(np.flatnonzero(kept).tolist())
            else:
                tokens |= reference.draw(kept, SEED, 0, _SLACK)
        return tokens

    def close(self) -> None:
        """Let the buffers go."""
        self.inputs, self.outputs, self.workspace, self.peers = [], [], None, ()
        del self.work
        self.device.release_memory()


def _logits(xp: Any, dtype: dtypes.DType, b: int, v: int, slots: int) -> list[Any]:
    """Normal logits of standard deviation 2, no two slots alike."""
    rng = xp.random.default_rng(0)
    found = []
    for _ in range(slots):
        values = rng.standard_normal((b, v), dtype=xp.float32) * xp.float32(2)
        found.append(values if dtype.name == "f32" else values.astype(dtype.numpy))
    return found
