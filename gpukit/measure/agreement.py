"""How far the timing methods agree on a device: kernels of known length, timed by each.

The kernels only count clock cycles: no memory traffic, no launch-size effect, nothing that an L2
state could change. What differs between the columns is therefore the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.errors import MissingDependencyError
from gpukit.measure.timing import time_works
from gpukit.measure.works import TimingOptions, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpukit.measure.works import Method, Timing

    Timer = Callable[[Sequence[Work], TimingOptions], list[Timing]]

# Nominal microseconds to SM clock cycles at the 1980 MHz of an H200, start and end of the kernel
# included in the former. A device with other clocks takes other times, by every method alike.
CYCLES = {2.0: 3_500, 20.0: 38_000, 2000.0: 3_900_000}
THREADS = 128  # one CTA of them on each SM

SOURCE = r"""
extern "C" __global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
}
"""


def compare_methods() -> list[dict[str, float | None]]:
    """Time spin kernels of about 2, 20 and 2000 us by every method on the current CuPy device.

    One row per kernel: ``target_us`` (nominal), ``events_us``, ``graph_us`` and ``cupti_us``
    (medians in microseconds; the last is None without cupti-python). Takes a few seconds.
    Raises what `time_works` raises.
    """
    return compare(_spins(), time_works)


def compare(spins: dict[float, Work], timer: Timer) -> list[dict[str, float | None]]:
    """`compare_methods` for given works by nominal microseconds, with a given `time_works`."""
    works = list(spins.values())
    columns: dict[str, Sequence[float | None]] = {
        "target_us": list(spins),
        "events_us": _medians(works, "events", timer),
        "graph_us": _medians(works, "graph", timer),
        # Last: a tracer that was once attached may slow what is launched after it.
        "cupti_us": _cupti_medians(works, timer),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _medians(works: Sequence[Work], method: Method, timer: Timer) -> list[float]:
    # Hot is the one state that every method has.
    return [one.median_us for one in timer(works, TimingOptions(method=method, l2="hot"))]


def _cupti_medians(works: Sequence[Work], timer: Timer) -> Sequence[float | None]:
    try:
        return _medians(works, "cupti", timer)
    except MissingDependencyError:
        return [None] * len(works)


def _spins() -> dict[float, Work]:
    from gpukit.measure.cuda import current_backend

    current_backend()  # an absent device or CuPy is told of here
    import cupy
    import numpy as np

    kernel = cupy.RawModule(code=SOURCE).get_function("spin")
    ctas = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def spin(us: float, cycles: int) -> Work:
        return Work(f"spin {us:g} us", lambda _: kernel((ctas,), (THREADS,), (np.int64(cycles),)))

    return {us: spin(us, cycles) for us, cycles in CYCLES.items()}
