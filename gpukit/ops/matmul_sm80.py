"""Launching the Ampere matmul ladder: the layout of the operands, a tile, a grid.

Operands are what `gpukit.matmul` has checked: a [M, K] and b [K, N] of one 16-bit type on `device`,
out [M, N] row-major, not empty. K may be 0. Either operand may be a transposed or sliced view with
a unit stride along one dimension, at any address; narrower copies then take the place of 16-byte
ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels import matmul_sm80 as specs
from gpukit.kernels.spec import KernelSpec, Value

_MAX_GRID = 2**31 - 1
_MAX_K = 2**31 - 65  # the kernels count k in 32 bits, up to one step past the end
_MAX_SLICES = 65535
_REDUCE_BLOCK = 256


@dataclass(frozen=True)
class Tile:
    """bm x bn of C per CTA, in steps of bk along k; wm x wn of it per warp."""

    bm: int
    bn: int
    bk: int = 32
    wm: int = 64
    wn: int = 64

    def count(self, m: int, n: int) -> int:
        """Tiles in an m x n result."""
        return -(-m // self.bm) * -(-n // self.bn)


class Config(NamedTuple):
    """A tile and how many of its operands' tiles the ring holds."""

    tile: Tile
    stages: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of the ring."""
        return specs.A2.shared_bytes({"stages": self.stages, **asdict(self.tile)})


#: Configurations of rung 2 with their speed relative to the first, where all SMs are busy. One that
#: needs more shared memory than the GPU has is passed over.
CONFIGS: tuple[tuple[Config, float], ...] = (
    (Config(Tile(128, 256, 64), 3), 1.0),
    (Config(Tile(128, 256), 4), 0.97),
    (Config(Tile(128, 128), 4), 0.85),
    (Config(Tile(64, 64, 64, 32, 32), 3), 0.6),
)
_SPLIT_LOW = Config(Tile(64, 128, 64, 32, 64), 4)
_SPLIT_HIGH = Config(Tile(128, 128), 4)

# Split-K pays where tiles fill less than this share of the SMs, if a slice has this many steps.
_FULL = 0.8
_MIN_STEPS = 4


def a1(device: Device, a: Any, b: Any, out: Any, *, tile: Tile | None = None) -> None:
    """Shared-memory tiles, two barriers per step.

    Args:
        tile: 128 x 128 x 32 by default.

    Raises:
        ArgumentError: see `a2`.
    """
    tile = tile or Tile(128, 128)
    _launch(specs.A1, device, a, b, out, asdict(tile), tile)


def a2(device: Device, a: Any, b: Any, out: Any, *, config: Config | None = None,
       group: int = 8) -> None:
    """cp.async ring, register pipeline, swizzled shared memory.

    Args:
        config: chosen by the size of the result if not given.
        group: tile rows that are walked together, for L2.

    Raises:
        ArgumentError: a type or layout that the ladder has no kernel for, a tile that does not
            exist, too many tiles.
    """
    m, n = out.shape
    tile, stages = config or choose(m, n, device)
    _launch(specs.A2, device, a, b, out, {**asdict(tile), "stages": stages, "group": group}, tile)


def a3(device: Device, a: Any, b: Any, out: Any, *, config: Config | None = None,
       slices: int | None = None, workspace: Any = None) -> None:
    """Split-K: partial sums, then their sum. Where one slice is enough, rung 2.

    Args:
        config: 64 x 128 x 64 up to 64 rows, else 128 x 128 x 32.
        slices: at most this many parts of K, 1 to 65535; enough to fill the GPU by default.
        workspace: float32 array of at least slices M N elements; allocated if not given.

    Raises:
        ArgumentError: see `a2`; slices or workspace out of range.
    """
    (m, n), k = out.shape, a.shape[1]
    tile, stages = config or (_SPLIT_LOW if m <= 64 else _SPLIT_HIGH)
    length, slices = _slices(tile, m, n, k, slices, device)
    if slices == 1:
        return a2(device, a, b, out, config=config)
    partial = _workspace(device, workspace, slices, m, n)
    chosen = {**asdict(tile), "stages": stages, "align_w": math.gcd(16, 4 * n)}
    _launch(specs.A3, device, a, b, partial, chosen, tile, (slices,), (length,))
    return _reduce(device, partial, out, slices)


#: The rungs by the name that `gpukit.matmul(kernel=...)` takes.
RUNGS: dict[str, Callable[..., None]] = {"sm80.a1": a1, "sm80.a2": a2, "sm80.a3": a3}


def choose(m: int, n: int, device: Device) -> Config:
    """The configuration whose busiest SM is done first."""
    properties = device.properties

    def time(candidate: tuple[Config, float]) -> float:
        (tile, _), speed = candidate
        return -(-tile.count(m, n) // properties.sm_count) * tile.bm * tile.bn / speed

    fitting = (c for c in CONFIGS if c[0].shared_bytes <= properties.shared_per_cta)
    return min(fitting, key=time)[0]


class _Operand(NamedTuple):
    """How a matrix lies in memory: contiguous dimension, row stride (elements), alignment."""

    major: str
    stride: int
    align: int


def _operand(name: str, array: Any, k_axis: int, device: Device) -> _Operand:
    size = array.dtype.itemsize
    for major, inner in (("k", k_axis), ("mn", 1 - k_axis)):
        if array.shape[inner] <= 1 or array.strides[inner] == size:
            pitch = array.strides[1 - inner] if array.shape[1 - inner] > 1 else 0
            align = math.gcd(16, device.phase(array), pitch, array.shape[inner] * size)
            return _Operand(major, pitch // size, align)
    raise ArgumentError(f"matmul: {name} has strides {array.strides} bytes; the sm80 kernels need "
                        f"one dimension of stride {size}; pass a dense copy or use kernel=1")


def _launch(spec: KernelSpec, device: Device, a: Any, b: Any, target: Any,
            chosen: dict[str, Value], tile: Tile, slices: tuple[int, ...] = (),
            last: tuple[int, ...] = ()) -> None:
    """One CTA per tile (and slice). `target` is C, or the workspace of split-K."""
    (m, k), n = a.shape, b.shape[1]
    left, right = _operand("a", a, 1, device), _operand("b", b, 0, device)
    tunables = {**chosen, "dtype": _element(a), "a": left.major, "b": right.major,
                "align_a": left.align, "align_b": right.align}
    if spec is not specs.A3:
        tunables["out"] = _name(target)
        tunables["align_c"] = math.gcd(16, device.phase(target), n * target.dtype.itemsize)
    ctas = _grid(tile, m, n, k)
    kernel = device.compile(spec, tunables)
    kernel.launch((ctas, *slices), (specs.threads(tunables),),
                  (a, b, target, m, n, k, left.stride, right.stride, *last))


def _grid(tile: Tile, m: int, n: int, k: int) -> int:
    ctas = tile.count(m, n)
    if ctas > _MAX_GRID:
        raise ArgumentError(f"matmul: a {m} x {n} result needs {ctas} CTAs; "
                            f"the grid holds {_MAX_GRID}")
    if k > _MAX_K:
        raise ArgumentError(f"matmul: K is {k}; the sm80 kernels take at most {_MAX_K}")
    return ctas


def _element(a: Any) -> str:
    name = _name(a)
    if name not in ("f16", "bf16"):
        raise ArgumentError(f"matmul: a has dtype {a.dtype}; the sm80 kernels take float16 and "
                            "bfloat16")
    return name


def _name(array: Any) -> str:
    dtype = dtypes.of(array.dtype)
    assert dtype is not None  # checked by the caller
    return dtype.name


def _slices(tile: Tile, m: int, n: int, k: int, asked: int | None,
            device: Device) -> tuple[int, int]:
    """k per slice, a multiple of bk, and how many slices that makes."""
    steps = max(1, -(-k // tile.bk))
    if asked is None:
        sms, tiles = device.properties.sm_count, tile.count(m, n)
        wanted = 1 if tiles >= _FULL * sms else max(2, sms // tiles)
        asked = max(1, min(wanted, steps // _MIN_STEPS))
    elif not 1 <= asked <= _MAX_SLICES:
        raise ArgumentError(f"matmul: slices={asked!r} is not accepted; 1 to {_MAX_SLICES}")
    per_slice = -(-steps // asked)
    return per_slice * tile.bk, -(-steps // per_slice)


def _workspace(device: Device, given: Any, slices: int, m: int, n: int) -> Any:
    """[slices, M, N] float32, 16-byte aligned."""
    if given is None:
        return device.empty((slices, m, n), "float32")
    needed = slices * m * n
    if _name(given) != "f32" or given.size < needed or not given.flags.c_contiguous \
            or device.phase(given) % 16:
        raise ArgumentError(f"matmul: workspace is {given.dtype} {given.shape}; accepted: float32, "
                            f"dense, 16-byte aligned, at least {needed} elements")
    return given.ravel()[:needed].reshape(slices, m, n)


def _reduce(device: Device, partial: Any, out: Any, slices: int) -> None:
    """Add the slices up, in 16-byte loads where size and address allow."""
    vec = math.gcd(4, out.size, device.phase(out) // out.dtype.itemsize)
    kernel = device.compile(specs.A3_REDUCE, {"out": _name(out), "vec": vec})
    ctas = -(-out.size // (vec * _REDUCE_BLOCK))
    kernel.launch((ctas,), (_REDUCE_BLOCK,), (partial, out, out.size, slices))
