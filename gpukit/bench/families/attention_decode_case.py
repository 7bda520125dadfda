"""One decode case: normal q and caches, the launch, and a check of some heads in float64."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

import gpukit
from gpukit import dtypes
from gpukit.bench.families import attention_decode_data as data
from gpukit.bench.families import buffers
from gpukit.bench.families.attention_decode_data import Caches
from gpukit.bench.families.attention_decode_peers import PEERS, Problem
from gpukit.bench.families.buffers import Launch
from gpukit.bench.model import Case, CheckResult
from gpukit.dtypes import DType
from gpukit.errors import UnsupportedError
from gpukit.kernels.attention_decode import DIMS
from gpukit.measure import Work
from gpukit.ops.attention import plan as plans
from gpukit.ops.attention.decode import DecodePlan
from gpukit.reference import attention as reference
from gpukit.reference.attention import Rules
from gpukit.reference.attention_layouts import gather
from gpukit.reference.tolerance import Array, Bound

_CUTS = ("parts", "cluster", "stages")


class PreparedDecode:
    """See `gpukit.bench.model.Prepared`. Every buffer set has caches and an output of its own; q
    and the page table, which are small, are shared."""

    def __init__(self, case: Case, device: Any, peers: tuple[str, ...]) -> None:
        self.case, self.device, self.dtype = case, device, dtypes.parse(case.dtype)
        b, s, t, h, kv, d = (case.shape[x] for x in ("b", "s", "t", "h", "kv", "d"))
        if h % kv:
            raise UnsupportedError(f"{h} heads of q are no multiple of {kv}")
        self.page = case.shape["page"]
        self.cache = dtypes.parse(self._word("cache") or self.dtype.name)
        mixed = self._word("lengths")
        self.host_lengths = data.lengths(mixed or "equal", b, s)
        own, keys = 2 * b * t * h * d * self.dtype.itemsize, int(self.host_lengths.sum())
        self.bytes_moved = own + 2 * keys * kv * d * self.cache.itemsize
        shared = self._word("table") == "shared"
        self.footprint = own + 2 * (1 if shared else b) * s * kv * d * self.cache.itemsize
        self.flops = 4 * t * h * keys * d
        slots = buffers.slots_for(case.l2, min(self.bytes_moved, self.footprint), device,
                                  4 * b * s * kv * d)
        self.q = data.normal(device, self.dtype.numpy, (b, t, h, d), slots)
        self.table = data.table(device, b, s, self.page, shared)
        given = self.page or mixed
        self.lengths = device.xp.asarray(self.host_lengths) if given else None
        shape = self._shape()
        self.caches = [self._caches(shape, slot) for slot in range(slots)]
        self.out = [device.empty(self.q.shape, self.dtype.numpy) for _ in range(slots)]
        self._places = list({(0, 0): 0, (b // 2, kv // 2): 0, (b - 1, kv - 1): 0})
        self._want = {slot: [self._expected(slot, *place) for place in self._places]
                      for slot in {0, slots - 1}}
        self.plan = DecodePlan.of(self.q, *self.caches[0], lengths=self.lengths,
                                  page_table=self.table, config=self._config())
        self.launch = {**asdict(self.plan.config), **self._predicted()}
        self.work = Work(case.kernel, self._run, slots)
        problem = Problem(self.q, [tuple(pair) for pair in self.caches], self.table,
                          self.host_lengths, self.lengths, self.plan.config.cut)
        makers = {name: partial(self._peer, name, problem) for name in peers}
        self.peers, self.notes = buffers.peer_works(makers, slots, device)

    def _word(self, name: str) -> str | None:
        """A parameter of the case, if it has that."""
        value = self.case.params.get(name)
        return None if value is None else str(value)

    def _run(self, slot: int) -> None:
        gpukit.attention_decode(self.q, *self.caches[slot], lengths=self.lengths,
                                page_table=self.table, out=self.out[slot], plan=self.plan)

    def _config(self) -> plans.Config:
        """What gpukit chooses, but for what the case says."""
        shape, properties = self.case.shape, self.device.properties
        keys = shape["s"] if not self.page else self.table.shape[1] * self.page
        problem = plans.Problem(
            self.dtype.name, shape["b"], shape["t"], shape["h"], shape["kv"], shape["d"], keys,
            self.page, properties.sm_count, properties.capability[0] == 9,
            queries=self.dtype.name if self.cache is not self.dtype else "",
            uneven=self.lengths is not None or bool(self.page))
        kind = self.case.kernel.removeprefix("attention.decode.")
        if problem.dim not in DIMS:
            raise UnsupportedError(f"heads of {problem.dim} columns; accepted: "
                                   f"{', '.join(map(str, DIMS))}")
        if kind != "auto" and problem.queries:
            raise UnsupportedError(f"{kind} takes no cache of e4m3")
        chosen = plans.choose(problem, None if kind == "auto" else kind, self._word("cut"))
        cut: dict[str, Any] = {name: self.case.params[name] for name in _CUTS
                               if name in self.case.params}
        return replace(chosen, **cut)

    def _predicted(self) -> dict[str, float]:
        """What counting multiplications says that keys on wgmma's M gain on queries there: 8 or 4
        times fewer, at a lower rate of the smaller MMA."""
        group = self.case.shape["h"] // self.case.shape["kv"]
        if not self.plan.config.form.startswith("warpgroup") or group > 16:
            return {}
        return {"predicted": 1.9 if group <= 8 else 1.7}

    def _shape(self) -> tuple[int, ...]:
        b, s, kv, d = (self.case.shape[x] for x in ("b", "s", "kv", "d"))
        if self.page:
            return int(self.table.max()) + 1, self.page, kv, d
        return (b, kv, s, d) if self.case.params["layout"] == "bhsd" else (b, s, kv, d)

    def _caches(self, shape: tuple[int, ...], slot: int) -> Caches:
        k, v = (data.normal(self.device, self.cache.numpy, shape, 2 * slot + i) for i in (0, 1))
        turned = self.case.params.get("layout") == "bhsd"
        return Caches(*(x.swapaxes(1, 2) if turned else x for x in (k, v)))

    def _expected(self, slot: int, batch: int, head: int) -> tuple[Array, Bound]:
        """What the query heads of a KV head must become, from inputs no launch has touched."""
        group = self.case.shape["h"] // self.case.shape["kv"]
        heads = slice(head * group, (head + 1) * group)
        q = self._host(self.q[batch:batch + 1, :, heads], self.dtype)
        k, v = (self._rows(x, batch, head)[:, :self.host_lengths[batch]]
                for x in self.caches[slot])
        rules = Rules(mask="causal")
        want = reference.oracle(q, k, v, rules)
        return want.out, reference.bounds(q, k, v, self.dtype, rules).out

    def _rows(self, cache: Any, batch: int, head: int) -> Any:
        """[1, keys, 1, dim] of a KV head of a sequence, on the host."""
        if not self.page:
            return self._host(cache[batch:batch + 1, :, head:head + 1], self.cache)
        table = self.device.to_host(self.table)[batch].astype(np.int64)
        pages = self._host(cache[:, :, head:head + 1][self.device.xp.asarray(table)], self.cache)
        return gather(pages, np.arange(len(table)), self.case.shape["s"])[None]

    def _host(self, view: Any, dtype: DType) -> Any:
        words = self.device.xp.ascontiguousarray(buffers.words(view))
        return self.device.to_host(words).view(dtype.value_dtype)

    def _peer(self, name: str, problem: Problem) -> Launch:
        """The peer's launch, once its result has been found right."""
        launch, result = PEERS[name](problem)
        launch(0)
        error = self._error(result(), 0)
        if not error <= 1:
            raise UnsupportedError(f"its result is wrong: {error:.3g} x the tolerance")
        return launch

    def _error(self, out: Any, slot: int) -> float:
        group = self.case.shape["h"] // self.case.shape["kv"]
        errors = []
        for (batch, head), want in zip(self._places, self._want[slot], strict=True):
            got = self._host(out[batch:batch + 1, :, head * group:(head + 1) * group], self.dtype)
            errors.append(buffers.judge(got.astype(np.float64), *want, complete=True).error)
        return max(errors)

    def poison(self) -> None:
        """Outputs of every buffer set hold a NaN no instruction makes."""
        for out in self.out:
            buffers.poison(out)

    def check(self, slot: int = 0) -> CheckResult:
        """Heads at both ends and between against float64, and no poison left anywhere."""
        if buffers.poisoned(self.out[slot]):
            return CheckResult(float("inf"), "every row written", False)
        error = self._error(self.out[slot], slot)
        return CheckResult(error, "per element, what roundings may add up to", error <= 1)

    def close(self) -> None:
        """Let the buffers go."""
        self.caches, self.out, self.peers = [], [], ()
        del self.work, self.plan
        self.device.release_memory()
