"""Compiling the variants of a study first, in processes side by side, into CuPy's disk cache.

Each takes NVRTC a tenth of a second or more; one after the other, between measurements, they would
cost more than the measurements.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING

from gpukit import dtypes, kernels
from gpukit.bench import interrupts
from gpukit.bench.families.elementwise_case import element
from gpukit.bench.model import Case
from gpukit.devices.protocol import Properties
from gpukit.errors import GpukitError
from gpukit.kernels.spec import Value
from gpukit.ops.launch import Launch, decide

if TYPE_CHECKING:
    from gpukit.devices.cuda import CudaDevice

Variant = tuple[str, tuple[tuple[str, Value], ...]]

_MOST_PROCESSES = 12
_FEWEST = 8  # variants for which processes are worth their start


def variants(cases: Iterable[Case], properties: Properties) -> list[Variant]:
    """The kernels that cases need: names and sorted tunables, each once."""
    found: dict[Variant, None] = {}
    for case in cases:
        op = case.kernel.partition(".")[2]
        with suppress(GpukitError):  # the case itself will say so
            chosen = decide(op, element(op, dtypes.parse(case.dtype)), case.shape["n"], 32,
                            Launch(**case.params), properties)  # type: ignore[arg-type]
            found[case.kernel, tuple(sorted(chosen.tunables.items()))] = None
    return list(found)


def prebuild(wanted: Sequence[Variant], device: CudaDevice) -> None:
    """Compile for a GPU. What fails is left to whoever needs it, and to tell."""
    workers = min(_MOST_PROCESSES, os.cpu_count() or 1, len(wanted) // 2)
    if len(wanted) < _FEWEST or workers < 2 or os.environ.get("CUPY_CACHE_IN_MEMORY"):
        return
    shares = [wanted[start::workers] for start in range(workers)]
    with ProcessPoolExecutor(workers, get_context("spawn"), interrupts.ignore) as pool:
        with interrupts.blocked():  # while processes start
            done = [pool.submit(_build, device.index, share) for share in shares]
        wait(done)


def _build(device_index: int, share: Sequence[Variant]) -> None:
    from gpukit.devices import cuda

    with suppress(GpukitError):
        device = cuda.get(device_index)
        for name, tunables in share:
            device.compile(kernels.get(name), dict(tunables))
