"""How an elementwise call becomes a launch: access width, grid rule, index type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpukit import kernels
from gpukit.devices.protocol import Device, Kernel, Properties
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.elementwise import ITEMSIZE
from gpukit.kernels.spec import Value

BLOCKS = (32, 64, 128, 256, 512, 1024)
_MAX_GRID = 2**31 - 1


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


@dataclass(frozen=True)
class Decision:
    """A launch as decided, before anything is compiled: CTAs, threads, and the variant."""

    grid: int
    block: int
    tunables: dict[str, Value]


def plan(op: str, element: str, n: int, alignment: int, launch: Launch, device: Device) -> Plan:
    """Decide and compile.

    Args:
        alignment: the largest power of two up to 32 that divides every pointer.

    Raises:
        ArgumentError: an override that this call cannot honour.
        UnsupportedError: wider accesses than the GPU has.
    """
    decided = decide(op, element, n, alignment, launch, device.properties)
    kernel = device.compile(kernels.get(f"elementwise.{op}"), decided.tunables)
    vec, unroll = int(decided.tunables["vec"]), int(decided.tunables["unroll"])
    index, cache = str(decided.tunables["index"]), str(decided.tunables["cache"])
    return Plan(kernel, (decided.grid,), (decided.block,), vec, unroll, index, cache)


def decide(op: str, element: str, n: int, alignment: int, launch: Launch,
           properties: Properties) -> Decision:
    """`plan` without a device: raises the same errors."""
    vec = _vec(op, element, alignment, launch, properties)
    usual = rule(n * ITEMSIZE[element], properties)
    block, unroll = launch.block or usual.block, launch.unroll or usual.unroll
    grid = _grid(n, vec * unroll * block, block, launch, properties)
    index = _index(n, vec, grid * block * unroll, launch)
    # One pass needs no loop, and less code to fetch: that shows in kernels of a few microseconds.
    loop = "false" if grid * vec * unroll * block >= n - n % vec else "true"
    return Decision(grid, block, {"dtype": element, "vec": vec, "unroll": unroll, "index": index,
                                  "cache": launch.cache or "normal", "loop": loop})


def _vec(op: str, element: str, alignment: int, launch: Launch, properties: Properties) -> int:
    size = ITEMSIZE[element]
    if launch.vec is None:  # the widest access that every pointer is aligned for
        return max(1, min(alignment, 16) // size)
    width = launch.vec * size
    limit = 32 if properties.capability >= (10, 0) else 16
    if width > limit:
        raise UnsupportedError(f"{op}: vec={launch.vec} of {element} is {width} bytes per access; "
                               f"{properties.arch} moves at most {limit}")
    if width == 32 and launch.cache == "stream":
        raise ArgumentError(f"{op}: cache='stream' is for accesses of up to 16 bytes; vec="
                            f"{launch.vec} of {element} makes 32")
    if width > alignment:
        raise ArgumentError(f"{op}: vec={launch.vec} of {element} needs {width}-byte alignment; "
                            f"the arrays are aligned to {alignment} (leave vec out for a "
                            "narrower path)")
    return launch.vec


class Rule(NamedTuple):
    """Threads per CTA, and vectors in flight per thread."""

    block: int
    unroll: int


def wave_bytes(properties: Properties) -> int:
    """Bytes of an array that one wave moves: every thread the GPU can hold, 16 bytes each."""
    return properties.sm_count * properties.threads_per_sm * 16


def rule(nbytes: int, properties: Properties) -> Rule:
    """Block and unroll for an array of so many bytes, by how many waves it takes.

    Small CTAs of one-vector threads retire and start most evenly. The exception is an array of
    nearly two waves, whose second wave would wait for the slowest of the first: two vectors per
    thread make it one wave. `gpukit study elementwise` measures how far this is from the best.
    """
    waves = nbytes / wave_bytes(properties)
    return Rule(128, 2 if 1.5 < waves <= 2 else 1)


def _grid(n: int, per_cta: int, block: int, launch: Launch, properties: Properties) -> int:
    full = min(_MAX_GRID, -(-n // per_cta))
    if launch.grid == "gs1":
        return full
    if launch.grid == "gs2":
        wave = properties.sm_count * max(1, properties.threads_per_sm // block)
        return min(full, wave * launch.waves)
    return int(launch.grid)


def _index(n: int, vec: int, step: int, launch: Launch) -> str:
    """u32 where the counter cannot wrap: it passes the end by at most one step."""
    fits = n // vec + step < 2**32
    if launch.index == "u32" and not fits:
        raise ArgumentError(f"index='u32' cannot count {n} elements with vec={vec}; use u64")
    return launch.index or ("u32" if fits else "u64")
