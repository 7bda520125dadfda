"""One kernel launch: fills parameters and runs the grid wave by wave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit.emulator.arguments import pack_arguments
from gpukit.emulator.check.checker import Checker
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.check.rules import Rules
from gpukit.emulator.configuration import check_configuration, three
from gpukit.emulator.counters import Counters, collect
from gpukit.emulator.cta import Cta
from gpukit.emulator.errors import KernelFault
from gpukit.emulator.inputs import Dim3
from gpukit.emulator.mem.allocations import Allocation, GlobalMemory
from gpukit.emulator.module_data import variables_of
from gpukit.emulator.policies import policy
from gpukit.emulator.program import SHARED_START, Program
from gpukit.emulator.ptx.ir import Var
from gpukit.emulator.tally import Tally
from gpukit.emulator.wave import Wave

WAVE_LANES = 2048  # CTAs of a wave: as many as fill this many lanes
WAVE_SHARED = 32 << 20
WAITING_SHARE = 4  # where clusters can be cancelled all but one in so many wait, to be cancelled


@dataclass(frozen=True, slots=True)
class Options:
    """How to run; see ``gpukit.emulator.run``."""

    cluster: Dim3 | None = None
    dynamic_shared: int = 0
    seed: int = 0
    policy: str = "random"
    checks: bool = True
    ignore: Sequence[str] = ()
    budget: int = 1 << 62
    cooperative: bool = False
    nonportable_cluster: bool = False
    stack_bytes: int = 4096
    listeners: Sequence[Listener] = ()


class Launch:
    """State of one launch, shared by its waves."""

    def __init__(
        self,
        program: Program,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Any],
        memory: GlobalMemory,
        options: Options,
        types: Sequence[str] = (),
    ) -> None:
        self.program: Program = program
        self.memory: GlobalMemory = memory
        self.grid: Dim3 = grid
        self.block: Dim3 = block
        self.threads: int = block[0] * block[1] * block[2]
        required = three(program.kernel.directives.get("reqnctapercluster"))
        self.cluster: Dim3 = options.cluster or required or (1, 1, 1)
        self.explicit_cluster: bool = options.cluster is not None or required is not None
        self.cluster_size: int = self.cluster[0] * self.cluster[1] * self.cluster[2]
        self._clusters: int = grid[0] * grid[1] * grid[2] // self.cluster_size
        self._started = 0  # clusters that have begun or been cancelled
        self.dynamic_shared: int = options.dynamic_shared
        self.shared_end: int = max(program.static_shared, SHARED_START) + options.dynamic_shared
        recursive = any(code.recursive for code in program.codes)
        self.local_bytes = program.local_bytes + (options.stack_bytes if recursive else 0)
        self.rules = Rules(options.ignore)
        self.marks_writes = options.checks and self.rules.holds("uninitialized")
        self.budget = options.budget
        self.listeners = [*options.listeners, *([Checker()] if options.checks else [])]
        self.cooperative = options.cooperative
        self.grid_workspace: int = memory.grid_workspace() if options.cooperative else 0
        self.policy = policy(options.policy, options.seed)
        self.tally = Tally(len(program.ops))
        self.issued = 0
        self.polls = 0  # rounds of spin loops, in no other counter
        self.extra: dict[str, int] = {}
        self.output: list[str] = []
        check_configuration(self, options.nonportable_cluster)
        self._variables: dict[Var, Allocation] = variables_of(program.module, memory)
        self._params = np.frombuffer(
            bytearray(pack_arguments(program.kernel, args, memory, types)), np.uint8
        )
        memory.put_parameters(self._params)

    # What waves ask for

    def param(self, offset: int, dtype: Any, pack: int) -> Any:
        """A parameter's value."""
        raw = self._params[offset : offset + dtype.itemsize * pack]
        return np.frombuffer(raw.tobytes(), dtype) if pack > 1 else raw.view(dtype)[0]

    def symbol_address(self, var: Var) -> int:
        """The address of a module variable."""
        return self._variables[var].base

    def cta_position(self, first_cluster: int, cta: Cta) -> Dim3:
        """Grid position of the CTA that takes this slot."""
        return self._position(first_cluster + cta.slot // self.cluster_size, cta.rank)

    def cancel_cluster(self) -> Dim3 | None:
        """Take the next cluster off the grid; the position of its first CTA, None if all run."""
        number, self._started = self._started, min(self._started + 1, self._clusters)
        return None if number == self._clusters else self._position(number, 0)

    def _position(self, cluster: int, rank: int) -> Dim3:
        shape = tuple(g // c for g, c in zip(self.grid, self.cluster, strict=True))
        outer = np.unravel_index(cluster, shape[::-1])[::-1]
        inner = np.unravel_index(rank, self.cluster[::-1])[::-1]
        x, y, z = (int(o) * c + int(i) for o, c, i in zip(outer, self.cluster, inner, strict=True))
        return x, y, z

    def printed(self, text: str) -> None:
        """Text of a device printf."""
        self.output.append(text)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of an instruction family (``Counters.extra``)."""
        self.extra[name] = self.extra.get(name, 0) + amount

    # Running

    def run(self) -> Counters:
        """Run all clusters of the grid."""
        total = self._clusters
        per_wave = total if self.cooperative else min(total, self._clusters_per_wave())
        with np.errstate(all="ignore"):
            wave = Wave(self, per_wave)
            try:
                while (first := self._started) < total:
                    self._started = min(first + per_wave, total)
                    wave.run(first, self._started - first)
            except KernelFault as fault:
                fault.locate(self.program.kernel.name)
                raise
        return collect(self, wave)

    def _clusters_per_wave(self) -> int:
        lanes = -(-self.threads // 32) * 32 * self.cluster_size
        shared = self.shared_end * self.cluster_size
        most = min(WAVE_LANES // lanes, WAVE_SHARED // shared)
        if self.program.cancels_launches:
            most = min(most, self._clusters // WAITING_SHARE)
        return max(1, most)
