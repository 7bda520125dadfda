"""Softmax over rows, with a temperature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpukit import kernels
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.sampling import CLUSTERS
from gpukit.kernels.spec import Value
from gpukit.ops import arrays
from gpukit.ops.sampling import choose, rows, warm
from gpukit.ops.sampling.choose import REACHED
from gpukit.ops.sampling.rows import Rows

MOST_IN_REGISTERS = 8 * 32 * 1024  # tokens: a cluster of 8 has 256 warps, a block of 1024 each


def softmax(logits: Any, temperature: Any = 1.0, *, out: Any = None,
            tunables: Mapping[str, Value] | None = None) -> Any:
    """exp((x - max) / temperature) of each row, divided by its sum.

    A temperature of 1e-5 or less (0 included) puts all probability on the first maximum, as does
    +infinity among the logits. A NaN counts as -infinity; a row of nothing else gives zeros. Runs
    on the current stream, never synchronises.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride.
        temperature: a number, or float32 [B].
        out: [B, V], float32, float16 or bfloat16, any row stride.
        tunables: overrides of `gpukit.kernels.sampling.SOFTMAX`'s.

    Returns:
        [B, V], float32 unless `out` says otherwise.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: rows above 262144 tokens with an `out` other than float32.
    """
    (pointer,), words = warm.apart((temperature,))
    quick = (logits, pointer, out)
    done = None if tunables else warm.call("softmax", quick, 2, tuple(words))
    if done is not None:
        return done
    given = rows.adopt("softmax", "logits", logits)
    shape = (given.count, given.width)
    out = given.device.empty(shape, "float32") if out is None else out
    into = rows.adopt("softmax", "out", out, given.device)
    if (into.count, into.width) != shape:
        raise ArgumentError(f"softmax: out has shape {into.array.shape}; accepted: {shape}")
    arrays.check_writable("softmax", "out", into.array)
    arrays.check_distinct("softmax", "out", into.array)
    arrays.check_no_overlap("softmax", "logits", into.array, given.array, given.device,
                            same_ok=True)
    pointer, number = rows.per_row("softmax", "temperature", temperature, "float32", given)
    if given.count and given.width <= MOST_IN_REGISTERS:
        launch, constants = _in_registers(given, into, pointer, number, dict(tunables or {}))
        if not tunables and not given.device.emulated:
            warm.keep("softmax", quick, tuple(words), into.array, launch, constants)
    elif given.count:
        _streamed(given, into, pointer, number, dict(tunables or {}))
    return into.array


def _in_registers(given: Rows, into: Rows, pointer: Any, number: Any,
                  tunables: dict[str, Value]) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """Launches; the bound launch, and what it takes after the addresses."""
    chosen = {**warps(given), "out": into.dtype.name, "out_vec": into.vec, **tunables}
    turns, cluster = int(chosen.pop("turns")), int(chosen["cluster"])
    kernel = given.device.compile(kernels.get("sampling.softmax"), chosen)
    where = (-(-given.count // turns) * cluster,), (int(chosen["threads"]),)
    constants = (given.pitch, into.pitch, given.width, number, given.count)
    kernel.launch(*where, (given.array, pointer, into.array, *constants))
    return kernel.bind(*where), constants


def _streamed(given: Rows, into: Rows, pointer: Any, number: Any,
              tunables: dict[str, Value]) -> None:
    """By the sampler, which can write the distribution it draws from: two readings, any V."""
    if into.dtype.name != "f32":
        raise UnsupportedError(f"softmax: out is {into.dtype.name} with rows of {given.width} "
                               f"tokens; above {MOST_IN_REGISTERS} accepted: float32")
    chosen = {**choose.streamed(given), **tunables}
    kernel = given.device.compile(kernels.get("sampling.stream"), chosen)
    kernel.launch((given.count * int(chosen["cluster"]),), (int(chosen["threads"]),), (
        given.array, pointer, None, None, None, None, None, None, None, None, into.array,
        given.pitch, 0, into.pitch, given.width, 0, number, 0, 1.0, 0.0, 0, 0))


def warps(given: Rows) -> dict[str, Value]:
    """Tunables of the kernel that keeps a row in registers, and `turns`, the rows of a cluster.

    Few rows: as many SMs a row as a cluster has. Many: the fewest CTAs of up to 512 threads, or one
    of 1024, that hold a row, as many clusters as the GPU holds at once, and each takes one row
    after the other, the next one's logits on their way where copies can be. Clusters of 7, of which
    a GPU holds more, where that saves one of few turns: 64 rows are two turns of 32.
    """
    sms, blocks, count = given.device.properties.sm_count, -(-given.width // 1024), given.count
    many = 8 * count > 2 * sms
    large = count > sms and 16 < blocks <= 32
    fitting = [c for c in CLUSTERS if blocks <= 16 * c] if many else []
    cluster = 1 if large else fitting[0] if fitting else CLUSTERS[-1]
    per = 2 if many and 16 * cluster < blocks <= 20 * cluster and not large else 1
    threads = -(-blocks // (4 * cluster)) * 128 if per == 1 else 320
    resident = 4 if threads <= 256 else 2 if threads <= 512 else 1
    waves = _waves(count, cluster, resident * sms)
    fewer = _waves(count, 7, 2 * sms)
    if threads == 512 and cluster == 8 and blocks <= 7 * 18 and 1 < fewer < waves <= 5:
        cluster, threads, waves = 7, 576, fewer
    turns = 1 if waves <= 3 and resident > 1 and per == 1 and cluster != 7 else waves
    copies = given.vec * given.dtype.itemsize == 16
    return {"dtype": given.dtype.name, "vec": given.vec, "cluster": cluster, "threads": threads,
            "per": per, "blocks": resident, "stages": int(copies and turns > 1), "turns": turns}


def _waves(count: int, cluster: int, ctas: int) -> int:
    """Turns that this many rows take, a cluster each, where all SMs have room for `ctas`."""
    return -(-count // max(1, int(ctas * REACHED[cluster]) // cluster))
