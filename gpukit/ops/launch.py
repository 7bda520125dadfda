"""How an elementwise call becomes a launch: access width, grid rule, index type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpukit import kernels
from gpukit.devices.protocol import Device, Kernel
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.elementwise import ITEMSIZE

BLOCKS = (32, 64, 128, 256, 512, 1024)
_MAX_GRID = 2**31 - 1
_MIB = 1 << 20


@dataclass(frozen=True)
class Launch:
    """Overrides for one elementwise call; None lets gpukit choose.

    Attributes:
        vec: elements per memory access (1, 2, 4, 8, 16, 32; at most 16 bytes, 32 from sm_100 on).
        unroll: vectors in flight per thread and turn (1, 2, 4, 8).
        block: threads per CTA (32 to 1024).
        grid: "gs1" (enough CTAs for one pass), "gs2" (capped at `waves` full waves), or a number
            of CTAs.
        waves: the cap of gs2, in waves of full occupancy.
        index: "u32" or "u64" loop counter.
        cache: "normal" or "stream" (evict first; accesses of up to 16 bytes).
    """

    vec: int | None = None
    unroll: int | None = None
    block: int | None = None
    grid: str | int = "gs1"
    waves: int = 32
    index: str | None = None
    cache: str | None = None

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            _check_choice(name, getattr(self, name), accepted)
        if isinstance(self.grid, str) and self.grid not in ("gs1", "gs2"):
            raise ArgumentError(f"grid={self.grid!r} is not accepted; use gs1, gs2 or a number "
                                "of CTAs")
        if not isinstance(self.grid, str):
            _check_integer("grid", self.grid, _MAX_GRID)
        _check_integer("waves", self.waves, _MAX_GRID)


_CHOICES: dict[str, tuple[int | str, ...]] = {
    "vec": (1, 2, 4, 8, 16, 32), "unroll": (1, 2, 4, 8), "block": BLOCKS,
    "index": ("u32", "u64"), "cache": ("normal", "stream")}


def _check_choice(name: str, value: object, accepted: tuple[int | str, ...]) -> None:
    """None, or one of the accepted values and of their very type: True is not 1 here."""
    if value is not None and not any(
            type(value) is type(choice) and value == choice for choice in accepted):
        raise ArgumentError(f"{name}={value!r} is not accepted; choose one of "
                            f"{', '.join(map(str, accepted))}")


def _check_integer(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ArgumentError(f"{name}={value!r} is not accepted; an integer from 1 to {most}")


@dataclass(frozen=True)
class Plan:
    """A decided launch."""

    kernel: Kernel
    grid: tuple[int]
    block: tuple[int]
    vec: int
    unroll: int
    index: str
    cache: str


def plan(op: str, element: str, n: int, alignment: int, launch: Launch, device: Device) -> Plan:
    """Decide and compile.

    Args:
        alignment: the largest power of two up to 32 that divides every pointer.

    Raises:
        ArgumentError: an override that this call cannot honour.
        UnsupportedError: wider accesses than the GPU has.
    """
    vec = _vec(op, element, alignment, launch, device)
    tuned = _tuned(n * ITEMSIZE[element])
    block, unroll = launch.block or tuned.block, launch.unroll or tuned.unroll
    grid = _grid(n, vec * unroll * block, block, launch, device)
    index = _index(n, vec, grid * block * unroll, launch)
    cache = launch.cache or "normal"
    # One pass needs no loop, and less code to fetch: that shows in kernels of a few microseconds.
    loop = "false" if grid * vec * unroll * block >= n - n % vec else "true"
    kernel = device.compile(kernels.get(f"elementwise.{op}"),
                            {"dtype": element, "vec": vec, "unroll": unroll, "index": index,
                             "cache": cache, "loop": loop})
    return Plan(kernel, (grid,), (block,), vec, unroll, index, cache)


def _vec(op: str, element: str, alignment: int, launch: Launch, device: Device) -> int:
    size = ITEMSIZE[element]
    if launch.vec is None:  # the widest access that every pointer is aligned for
        return max(1, min(alignment, 16) // size)
    width = launch.vec * size
    limit = 32 if device.properties.capability >= (10, 0) else 16
    if width > limit:
        raise UnsupportedError(f"{op}: vec={launch.vec} of {element} is {width} bytes per access; "
                               f"{device.properties.arch} moves at most {limit}")
    if width == 32 and launch.cache == "stream":
        raise ArgumentError(f"{op}: cache='stream' is for accesses of up to 16 bytes; vec="
                            f"{launch.vec} of {element} makes 32")
    if width > alignment:
        raise ArgumentError(f"{op}: vec={launch.vec} of {element} needs {width}-byte alignment; "
                            f"the arrays are aligned to {alignment} (leave vec out for a "
                            "narrower path)")
    return launch.vec


class _Tuned(NamedTuple):
    block: int
    unroll: int


def _tuned(nbytes: int) -> _Tuned:
    """Block and unroll by array size, as measured on an H200 with a flushed L2.

    Arrays of a few MiB are done in one or two waves of CTAs: fewer CTAs with more loads in flight
    each win 5 % at 4 and 16 MiB. Below that there are not even enough vectors for one wave, above
    it plain one-vector threads win, in small CTAs that retire and start more evenly.
    Evict-first accesses cost 2 to 4 % once L2 starts clean.
    """
    if 2 * _MIB < nbytes <= 32 * _MIB:
        return _Tuned(256, 4)
    return _Tuned(256, 1) if nbytes <= 2 * _MIB else _Tuned(128, 1)


def _grid(n: int, per_cta: int, block: int, launch: Launch, device: Device) -> int:
    full = min(_MAX_GRID, -(-n // per_cta))
    if launch.grid == "gs1":
        return full
    if launch.grid == "gs2":
        properties = device.properties
        wave = properties.sm_count * max(1, properties.threads_per_sm // block)
        return min(full, wave * launch.waves)
    return int(launch.grid)


def _index(n: int, vec: int, step: int, launch: Launch) -> str:
    """u32 where the counter cannot wrap: it passes the end by at most one step."""
    fits = n // vec + step < 2**32
    if launch.index == "u32" and not fits:
        raise ArgumentError(f"index='u32' cannot count {n} elements with vec={vec}; use u64")
    return launch.index or ("u32" if fits else "u64")
