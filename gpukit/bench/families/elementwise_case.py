"""One elementwise case on a GPU: buffers, the bound launch, the check."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.bench.families import buffers
from gpukit.bench.families.elementwise_peers import PEERS
from gpukit.bench.model import Case, CheckResult
from gpukit.bench.peers import Absent
from gpukit.kernels.elementwise import BINARY
from gpukit.measure import Work
from gpukit.ops.launch import Launch, Plan, plan
from gpukit.reference import elementwise as reference
from gpukit.reference.tolerance import Bound

SCALAR = 1.5
_POSITIVE = ("sqrt", "rsqrt", "log")


class PreparedElementwise:
    """See `gpukit.bench.model.Prepared`. Every buffer set has its own memory and random values."""

    def __init__(self, op: str, case: Case, device: Any, peers: tuple[str, ...]) -> None:
        self.op, self.dtype, self.n = op, dtypes.parse(case.dtype), case.shape["n"]
        arrays = 3 if op in BINARY else 2
        self.footprint = arrays * self.n * self.dtype.itemsize
        self.bytes_moved, self.flops = self.footprint, 0
        slots = buffers.slots_for(case.l2, self.footprint, device, extra_bytes=8 * self.n)
        self.device = device
        self.inputs = _inputs(device.xp, op, self.dtype, self.n, slots, arrays - 1)
        self.outputs = [device.empty((self.n,), self.dtype.numpy) for _ in range(slots)]
        self._chosen = buffers.sample_indices(self.n)
        self._want = {slot: self._expected(slot) for slot in {0, slots - 1}}
        self.work, self.launch = self.variant(case.kernel, case.params)
        self.peers, self.notes = self._peers(peers, slots)

    def variant(self, name: str, params: Mapping[str, Any]) -> tuple[Work, Mapping[str, Any]]:
        """The op launched in another way on the same buffers: the work, and the facts of its
        launch."""
        chosen = plan(self.op, element(self.op, self.dtype), self.n, 32, Launch(**params),
                      self.device)
        return (Work(name, self._bound(chosen), len(self.outputs)),
                _launch_facts(chosen, self.device))

    def _bound(self, chosen: Plan) -> Any:
        call = chosen.kernel.bind(chosen.grid, chosen.block)
        pointers = [tuple(map(self.device.pointer, (*xs, out)))
                    for xs, out in zip(self.inputs, self.outputs, strict=True)]
        return lambda slot: call(*pointers[slot], self.n, SCALAR)

    def _peers(self, names: tuple[str, ...],
               slots: int) -> tuple[tuple[Work, ...], tuple[Absent, ...]]:
        makers = {name: partial(PEERS[name], self.op, self.inputs, self.outputs, SCALAR)
                  for name in names}
        return buffers.peer_works(makers, slots, self.device)

    def poison(self) -> None:
        """Outputs of every buffer set hold a NaN no instruction makes."""
        for out in self.outputs:
            buffers.poison(out)

    def _expected(self, slot: int) -> Any:
        """What the chosen elements must become, from inputs that no launch has touched yet."""
        inputs = [self._gather(x) for x in self.inputs[slot]]
        if self.op == "copy":
            return buffers.words(inputs[0])
        return reference.oracle(self.op, inputs, SCALAR, self.dtype)

    def check(self, slot: int = 0) -> CheckResult:
        """copy: every bit. Others: all or a large sample against float64, and no poison left."""
        out, want = self.outputs[slot], self._want[slot]
        got = self._gather(out)
        if self.op == "copy":
            same = bool((buffers.words(got) == want).all()) and self._copied(slot)
            return CheckResult(0.0 if same else float("inf"), str(Bound(0.0, 0.0)), same)
        return buffers.judge(got.astype(np.float64), want, reference.bound(self.op, self.dtype),
                             complete=not buffers.poisoned(out))

    def _copied(self, slot: int) -> bool:
        """Whether all of the output is the input as it is now; a sample tells if it changed."""
        x, out = self.inputs[slot][0], self.outputs[slot]
        return bool((buffers.words(x) == buffers.words(out)).all())

    def _gather(self, array: Any) -> Any:
        """Chosen elements on the host; gathered as words, which every dtype supports."""
        picked = buffers.words(array)[self.device.xp.asarray(self._chosen)]
        return self.device.to_host(picked).view(array.dtype)

    def close(self) -> None:
        """Let the buffers go."""
        self.inputs, self.outputs, self.peers = [], [], ()
        del self.work
        self.device.release_memory()


def element(op: str, dtype: dtypes.DType) -> str:
    """What the kernel calls the element type: copy's words go by size."""
    return f"u{8 * dtype.itemsize}" if op == "copy" else dtype.name


def _inputs(xp: Any, op: str, dtype: dtypes.DType, n: int, slots: int,
            count: int) -> list[tuple[Any, ...]]:
    """`count` random arrays per slot, no two alike: an answer kept from another slot is wrong."""
    rng = xp.random.default_rng(0)
    return [tuple(_random(xp, rng, op, dtype, n) for _ in range(count)) for _ in range(slots)]


def _random(xp: Any, rng: Any, op: str, dtype: dtypes.DType, n: int) -> Any:
    if dtype.storage == "uint8":
        return rng.integers(0, 256, n, dtype=xp.uint8)
    values = rng.standard_normal(n, dtype=xp.float32)
    if op in _POSITIVE:
        xp.abs(values, out=values)
    return values if dtype.name == "f32" else values.astype(dtype.numpy)


def _launch_facts(chosen: Plan, device: Any) -> Mapping[str, Any]:
    properties = device.properties
    wave = properties.sm_count * max(1, properties.threads_per_sm // chosen.block[0])
    return {"grid": chosen.grid[0], "block": chosen.block[0], "vec": chosen.vec,
            "unroll": chosen.unroll, "index": chosen.index, "cache": chosen.cache,
            "waves": round(chosen.grid[0] / wave, 2)}
