"""Cases of memory alone: shared memory, the L2, DRAM, and the time of one access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukit import kernels
from gpukit.bench.families import buffers
from gpukit.bench.families import ceilings_common as common
from gpukit.bench.model import Case, CheckResult
from gpukit.errors import UnsupportedError
from gpukit.kernels.ceilings import PLACES, ROW, SHIFTS, shared_size
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.measure import Work

CHUNK, THREADS = 16, 512  # of stream: bytes of an access, threads of a CTA
_IN_FLIGHT = 8
_L2_PASSES = 200
ODD = np.uint32(2654435761)  # makes neighbours unlike


class PreparedShared(common.Prepared):
    """Loads from shared memory; see `gpukit.bench.model.Prepared`."""

    _BLOCK = 1024

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, common.ctas(device))
        self.width, self.ways = case.shape["width"], case.shape["ways"]
        self.turns = 8 if device.emulated else 1024 // self.ways // (self.width // 4) * 8
        self.facts = {"ctas": self.grid, "turns": self.turns}
        self.bytes_moved = self.grid * self._BLOCK * self.turns * PLACES * self.width
        values = np.arange(shared_size(self.width, self.ways) // 4, dtype=np.uint32) * ODD
        self._want = self._sums(values)
        self.values = device.xp.asarray(values)
        self.out = device.empty((self.grid, self._BLOCK), np.uint32)
        [(spec, tunables)] = variants(case)
        call = device.compile(spec, tunables).bind((self.grid,), (self._BLOCK,))
        source, laps, out = map(device.pointer, (self.values, self.laps, self.out))
        self.work = Work(case.kernel, lambda slot: call(source, self.turns, laps, out))

    def _sums(self, values: Any) -> Any:
        """Per lane, modulo 2**32."""
        turn, place, lane = np.ogrid[:SHIFTS, :PLACES, :32]
        distance = self.width * self.ways
        at = turn * ROW + place * 32 * distance + lane * distance
        of_one = sum(values[at // 4 + i].astype(np.uint64) for i in range(self.width // 4))
        return (np.sum(of_one, axis=(0, 1)) * (self.turns // SHIFTS)).astype(np.uint32)

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Bytes per clock of one SM; 128 at best."""
        rate = self.bytes_moved / self.grid / clocks
        return {"B/clk": round(rate, 2), "%clk": round(100 * rate / 128, 1)}

    def poison(self) -> None:
        """No sum is right."""
        buffers.poison(self.out)

    def check(self, slot: int = 0) -> CheckResult:
        """Every thread's sum, exactly."""
        got = self.device.to_host(self.out).reshape(-1, 32)
        return common.verdict(bool((got == self._want).all()))


class PreparedStream(common.Prepared):
    """All SMs over a stretch of memory; see `gpukit.bench.model.Prepared`."""

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, common.ctas(device, 2))
        self.op, size = str(case.params["op"]), case.shape["bytes"]
        threads, chunks = self.grid * THREADS, size // CHUNK
        if not threads <= chunks < 1 << 31:
            raise UnsupportedError(f"set={size}: from {threads * CHUNK} bytes to 32 GiB here")
        passes = _L2_PASSES if case.kernel == "ceilings.l2" and not device.emulated else 1
        steps = -(-passes * chunks // threads // _IN_FLIGHT) * _IN_FLIGHT
        self.accesses = steps * threads
        self.facts = {"ctas": self.grid, "steps": steps}
        self.bytes_moved = self.accesses * CHUNK * (2 if self.op == "copy" else 1)
        self.footprint = size * (2 if self.op == "copy" else 1)
        buffers.slots_for(case.l2, 2 * self.footprint, device)
        self._allocate(size, threads)
        [(spec, tunables)] = variants(case)
        call = device.compile(spec, tunables).bind((self.grid,), (THREADS,))
        source, to, laps, out = map(device.pointer, (self.source, self.to, self.laps, self.out))
        self.work = Work(case.kernel, lambda slot: call(source, to, chunks, steps, laps, out))

    def _allocate(self, size: int, threads: int) -> None:
        xp, words = self.device.xp, size // 4
        some = (self.op != "write") * words or 4
        self.source = xp.arange(some, dtype=xp.uint32)
        self.source *= ODD
        self.to = xp.zeros((self.op != "read") * words or 4, xp.uint32)
        self.out = xp.zeros((threads, 4), xp.uint32)

    def measured(self, clocks: float) -> Mapping[str, Any]:
        """Bytes per clock of one SM, by the median CTA of the two it holds."""
        return {"B/clk": round(2 * self.bytes_moved / self.grid / clocks, 2)}

    def poison(self) -> None:
        """Neither sums nor what is written are right."""
        buffers.poison(self.out)
        buffers.poison(self.to)

    def check(self, slot: int = 0) -> CheckResult:
        """The sum of all that was read; what was written, at many places."""
        return common.verdict(self._summed() if self.op == "read" else self._written())

    def _summed(self) -> bool:
        """Whole turns through memory and the part of one, modulo 2**32."""
        whole, rest = divmod(self.accesses * 4, self.source.size)
        want = whole * self._sum(self.source) + self._sum(self.source[:rest])
        return bool(self._sum(self.out) == want % 2**32)

    def _sum(self, array: Any) -> int:
        return int(array.sum(dtype=np.uint64)) % 2**32

    def _written(self) -> bool:
        at = buffers.sample_indices(self.to.size)
        got = self.device.to_host(self.to[self.device.xp.asarray(at)])
        at = at.astype(np.uint32)
        want = at * ODD if self.op == "copy" else at // 4 + at % 4
        return bool((got == want).all())


class PreparedChase(common.Prepared):
    """One thread that follows pointers; see `gpukit.bench.model.Prepared`.

    What the kernel counts is taken once, after what the chain left in the L2 was swept out.
    """

    _LINE, _BLOCK = 32, 1024  # words of a line; threads
    _HOPS, _SINGLE = 1 << 14, 4096  # hops timed together and singly, at least and at most

    def __init__(self, case: Case, device: Any) -> None:
        super().__init__(device, 1)
        size = case.shape["bytes"]
        least = 64 if device.emulated else self._HOPS
        chain = min(least, size // 4 // self._LINE)
        self.hops = -(-least // chain) * chain
        self.warm = 0 if case.params["level"] == "dram" else size // 4
        self._chain(size // 4, chain)
        self.times = device.xp.zeros(self._SINGLE, np.uint32)
        self.last = device.xp.zeros(1, np.uint32)
        all_hops, each_hop = (self._call(*variant) for variant in variants(case))
        self.work = Work(case.kernel, lambda slot: all_hops(self.hops))
        self.facts = {"hops": self.hops}
        if not device.emulated:
            self.facts |= self._sums(all_hops) | self._single_hops(each_hop)

    def _chain(self, words: int, chain: int) -> None:
        """Every hop leads to a line not seen before, the last one back to the first."""
        lines = words // self._LINE
        order = np.random.default_rng(0).permutation(lines - 1)[: chain - 1] + 1
        places = np.concatenate([[0], order]) * self._LINE
        self.next = self.device.empty((words,), np.uint32)
        following = np.roll(places, -1).astype(np.uint32)
        self.next[self.device.xp.asarray(places)] = self.device.xp.asarray(following)

    def _call(self, spec: KernelSpec, tunables: Mapping[str, Value]) -> Any:
        call = self.device.compile(spec, tunables).bind((1,), (self._BLOCK,))
        source, times, last = map(self.device.pointer, (self.next, self.times, self.last))
        return lambda hops: call(source, self.warm, hops, times, last)

    def _sums(self, all_hops: Any) -> dict[str, Any]:
        """Clocks and nanoseconds of a hop."""
        clocks, nanoseconds = (int(x) for x in self._swept(all_hops, self.hops)[:2])
        return {"clk": round(clocks / self.hops, 1), "ns": round(nanoseconds / self.hops, 1)}

    def _single_hops(self, each_hop: Any) -> dict[str, Any]:
        """How the clocks of hops differ: near and far halves of the L2, pages known and not."""
        hops = min(self.hops, self._SINGLE)
        near, middle, far = (int(x) for x in np.percentile(self._swept(each_hop, hops)[:hops],
                                                           (5, 50, 95)))
        return {"p5": near, "p50": middle, "p95": far}

    def _swept(self, chase: Any, hops: int) -> Any:
        """The times of a chase that begins with nothing of the chain in the L2."""
        lines = self.device.xp.zeros(4 * self.device.properties.l2_bytes, np.uint8)
        lines += 1
        chase(hops)
        return self.device.to_host(self.times)

    @property
    def launch(self) -> Mapping[str, Any]:
        """Known since preparation."""
        return self.facts

    def poison(self) -> None:
        """The chase ended nowhere."""
        buffers.poison(self.last)

    def check(self, slot: int = 0) -> CheckResult:
        """The chase came back to its beginning, having seen every place."""
        return common.verdict(int(self.device.to_host(self.last)[0]) == 0)


def variants(case: Case) -> list[tuple[KernelSpec, dict[str, Value]]]:
    """The kernels that a case runs."""
    if case.kernel == "ceilings.shared":
        return [(kernels.get(case.kernel), {name: case.shape[name] for name in ("width", "ways")})]
    if case.kernel != "ceilings.latency":
        return [(kernels.get("ceilings.stream"), {"op": str(case.params["op"])})]
    level = "l1" if case.params["level"] == "l1" else "l2"
    return [(kernels.get("ceilings.chase"), {"level": level, "each": each})
            for each in ("false", "true")]
