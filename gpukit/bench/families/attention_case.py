"""One attention case: normal q, k and v, the launch, and a check of some rows in float64."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

import gpukit
from gpukit.bench.families import (
    attention_peers,
    attention_peers8,
    attention_window,
    buffers,
    matmul_types,
)
from gpukit.bench.families.attention_peers import Problem
from gpukit.bench.families.buffers import Launch
from gpukit.bench.families.matmul_types import KINDS
from gpukit.bench.model import Case, CheckResult
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.measure import Work
from gpukit.reference import attention as reference
from gpukit.reference.attention import Rules
from gpukit.reference.tolerance import Array, Bound

E4M3_BITS = 4  # significand bits, the hidden one included
_ROWS = 24  # queries of a head that are compared, in a row


class PreparedAttention:
    """See `gpukit.bench.model.Prepared`. Every buffer set has its own q, k, v and out."""

    def __init__(self, case: Case, device: Any, peers: tuple[str, ...]) -> None:
        self.case, self.device = case, device
        self.kind = KINDS[case.dtype]
        self.dtype = KINDS[self.kind.out].stored if self.kind.eight_bit else self.kind.stored
        b, s, h, kv, d, dv = (case.shape[x] for x in ("b", "s", "h", "kv", "d", "dv"))
        self.rules = Rules(str(case.params["mask"]), window=int(case.params.get("window", 0)))
        self.footprint = b * s * ((h * d + kv * (d + dv)) * self.kind.stored.itemsize
                                  + h * dv * self.dtype.itemsize)
        self.bytes_moved, self.flops = self.footprint, 2 * b * h * (d + dv) * _pairs(s, self.rules)
        slots = buffers.slots_for(case.l2, self.footprint, device, 8 * b * s * h * d)
        shapes = ((b, s, h, d), (b, s, kv, d), (b, s, kv, dv))
        self.inputs = [self._normal(shapes, slot) for slot in range(slots)]
        self.out = [device.empty((b, s, h, dv), self.dtype.numpy) for _ in range(slots)]
        self._places = _places(b, s, h)
        self._want = {slot: self._expected(slot) for slot in {0, slots - 1}}
        self.launch = {"kernel": case.kernel}
        self.work = Work(case.kernel, self._ours(), slots)
        if peers:
            self.work.launch(0)  # what ours refuses needs no peers
        probes = self._probes() if peers else []
        makers = {name: partial(self._peer, name, probes) for name in peers}
        self.peers, self.notes = buffers.peer_works(makers, slots, device)

    def _ours(self) -> Launch:
        kernel = self.case.kernel.removeprefix("attention.")
        words: dict[str, Any] = {"mask": self.rules.mask}
        if self.rules.window:
            words["window"] = self.rules.window
        if kernel != "auto":
            words["kernel"] = kernel
        if self.kind.eight_bit:
            words["dtype"] = self.kind.name

        def launch(slot: int) -> None:
            try:
                gpukit.attention(*self.inputs[slot], out=self.out[slot], **words)
            except ArgumentError as refusal:  # a rung that does not take such a problem
                raise UnsupportedError(str(refusal)) from refusal

        return launch

    def _probes(self) -> list[tuple[Any, ...]]:
        """Further inputs of peers, which show how wide their sliding window is."""
        if not self.rules.window:
            return []
        return [attention_window.probe(self.inputs[0], self.kind.stored, self.rules.window,
                                       self.device)]

    def _peer(self, name: str, probes: list[tuple[Any, ...]]) -> Launch:
        """The peer's launch, once its result has been found right."""
        peers = attention_peers8.PEERS if self.kind.eight_bit else attention_peers.PEERS
        if name not in peers:
            raise UnsupportedError(f"it does not take {self.kind.name}")
        launch, result = peers[name](Problem(self.rules, [*self.inputs, *probes]))
        if probes:
            launch(len(self.inputs))
            out = self._host(result()[:, :, 0, 0], self.dtype)
            attention_window.require_width(np.asarray(out, np.float64), self.rules.window)
        launch(0)
        got = [self._picked(result(), place) for place in self._places]
        coarse = attention_peers8.COARSE.get(name, 0) if self.kind.eight_bit else 0
        error = max(_error(x, want, _coarser(bound, coarse))
                    for x, (want, bound) in zip(got, self._want[0], strict=True))
        if not error <= 1:
            raise UnsupportedError(f"its result is wrong: {error:.3g} x the tolerance")
        return launch

    def poison(self) -> None:
        """Outputs of every buffer set hold a NaN no instruction makes."""
        for out in self.out:
            buffers.poison(out)

    def _expected(self, slot: int) -> list[tuple[Array, Bound]]:
        """What the chosen rows must become, from inputs that no launch has touched yet."""
        return [self._rows_of(slot, *place) for place in self._places]

    def _rows_of(self, slot: int, batch: int, head: int, first: int) -> tuple[Array, Bound]:
        """Some rows of one head: with a causal mask, keys end where they do."""
        shape, last = self.case.shape, first + min(_ROWS, self.case.shape["s"])
        end = shape["s"] if self.rules.mask == "null" else last
        kv = head // (shape["h"] // shape["kv"])
        ranges = ((head, slice(first, last)), (kv, slice(0, end)), (kv, slice(0, end)))
        q, k, v = (self._host(x[batch:batch + 1, rows, h:h + 1], self.kind.stored)
                   for x, (h, rows) in zip(self.inputs[slot], ranges, strict=True))
        want = reference.oracle(q, k, v, self.rules)
        weights = E4M3_BITS if self.kind.eight_bit else None
        return want.out, reference.bounds(q, k, v, self.dtype, self.rules,
                                          weights_bits=weights).out

    def _normal(self, shapes: tuple[tuple[int, ...], ...], seed: int) -> tuple[Any, ...]:
        """The same numbers for every type, rounded."""
        xp, emulated = self.device.xp, self.device.emulated
        rng = xp.random.default_rng(seed)
        return tuple(matmul_types.normal(xp, rng, (math.prod(shape[:3]), shape[3]), 1.0, self.kind,
                                         emulated).reshape(shape) for shape in shapes)

    def _host(self, view: Any, dtype: DType) -> Any:
        words = self.device.xp.ascontiguousarray(buffers.words(view))
        return self.device.to_host(words).view(dtype.value_dtype)

    def _picked(self, out: Any, place: tuple[int, int, int]) -> Array:
        batch, head, first = place
        rows = slice(first, first + min(_ROWS, self.case.shape["s"]))
        return np.asarray(self._host(out[batch:batch + 1, rows, head:head + 1], self.dtype),
                          np.float64)

    def check(self, slot: int = 0) -> CheckResult:
        """Rows at both ends and between against float64, and no poison left anywhere."""
        out = self.out[slot]
        if buffers.poisoned(out):
            return CheckResult(float("inf"), "every row written", False)
        error = max(_error(self._picked(out, place), *want)
                    for place, want in zip(self._places, self._want[slot], strict=True))
        return CheckResult(error, "per row, twice what roundings may add up to", error <= 1)

    def close(self) -> None:
        """Let the buffers go."""
        self.inputs, self.out, self.peers = [], [], ()
        del self.work
        self.device.release_memory()


def _error(got: Array, want: Array, bound: Bound) -> float:
    return buffers.judge(got, want, bound, complete=True).error


def _pairs(s: int, rules: Rules) -> int:
    """Scores of a head that are not hidden; a causal square counts as half of it, as is usual."""
    if rules.mask == "null":
        return s * s
    if rules.mask == "causal":
        return s * s // 2
    width = min(rules.window, s)
    return s * width - width * (width - 1) // 2


def _places(b: int, s: int, h: int) -> list[tuple[int, int, int]]:
    """Sequence, head and first row of what is checked: both ends, and some at random."""
    most = max(0, s - _ROWS)
    rng = np.random.default_rng(s)
    middle = [(int(rng.integers(b)), int(rng.integers(h)), int(rng.integers(most + 1)))
              for _ in range(4)]
    return list(dict.fromkeys([(0, 0, 0), (b - 1, h - 1, most), *middle]))


def _coarser(bound: Bound, factor: float) -> Bound:
    """What an output may be off that is multiplied with `factor` and rounded to e4m3; 0: it is not.
    Steps of its smallest numbers are 2^-9."""
    if not factor:
        return bound
    return Bound(bound.atol + 2.0**-10 / factor, bound.rtol + 2.0**-E4M3_BITS)
