"""Launching the Hopper matmul ladder: tensor maps, stages and grid of rungs 2 to 8."""

from __future__ import annotations

from typing import Any

from gpukit import dtypes, kernels
from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import ArgumentError
from gpukit.kernels.matmul_sm90 import BK, ROW, rows, threads
from gpukit.kernels.spec import KernelSpec, Value

_ALIGN = 16  # bytes: what TMA asks of a tensor's base and of its rows
_CORE = 8  # columns of K in a box of rung 2
_MAX_SIZE = 2**31 - 1024  # coordinates are 32-bit, also those of a tile that starts past the edge
_MAX_GRID_Y = 65535


def launch(rung: int, device: Device, a: Any, b: Any, out: Any, *, group: int = 8,
           ctas: int | None = None, **tunables: Value) -> None:
    """C = A B by one rung of the ladder.

    Args:
        rung: 2 to 8.
        a: [M, K], float16 or bfloat16; elements next to each other along K.
        b: [K, N], the same dtype; also next to each other along K: w.T of a row-major [N, K] w.
        out: [M, N], C-contiguous; float16, bfloat16 or float32.
        group: rung 8 walks this many rows of cluster tiles together.
        ctas: CTAs of rung 8, a multiple of its cluster; one per SM by default.
        tunables: other than the spec's defaults (bn, stages, cluster). Without `stages`, as many
            as fit.

    Rows of a and w, and from rung 4 on of out, must start at multiples of 16 bytes.

    Raises:
        ArgumentError: an argument of another type, layout or alignment.
        UnsupportedError: not a Hopper GPU, or more stages than fit.
    """
    spec = kernels.get(f"matmul.sm90.k{rung}")
    chosen = _tunables(spec, device, a, out, tunables)
    bn, cluster = int(chosen["bn"]), int(chosen.get("cluster", 1))
    _check_sizes(spec, a, b, bn)
    (m, k), n = a.shape, b.shape[1]
    if not k:  # no tensor map has an empty dimension
        out.fill(0)
        return
    matrices = (_operand(spec, device, "a", a, a, rung, rows(rung)),
                _operand(spec, device, "b", b, b.T, rung, bn // cluster),
                out if rung < 4 else _result(spec, device, out))
    grid = -(-m // (rows(rung) * cluster)) * cluster, -(-n // bn)
    compiled = device.compile(spec, chosen)
    if rung < 8:
        sizes = (m, n, k) if rung < 4 else (k,)
        compiled.launch(grid, (threads(rung),), (*matrices, *sizes))
    else:
        most = _most_ctas(spec, device, cluster, ctas)
        compiled.launch((min(most, grid[0] * grid[1]),), (threads(rung),),
                        (*matrices, m, n, k, group))


def _tunables(spec: KernelSpec, device: Device, a: Any, out: Any,
              given: dict[str, Value]) -> dict[str, Value]:
    """All tunables: types from the arrays, as many stages as fit unless given."""
    types = {"dtype": _type(spec, "a", a), "out": _type(spec, "out", out)}
    full = spec.resolve({**given, **types})
    if "stages" in full and "stages" not in given:
        choices = next(t.choices for t in spec.tunables if t.name == "stages")
        full["stages"] = max(count for count in choices if spec.shared_bytes(
            {**full, "stages": count}) <= device.properties.shared_per_cta)
    return full


def _type(spec: KernelSpec, name: str, array: Any) -> str:
    """gpukit's name of an array's type, if the kernel takes it there."""
    found = dtypes.of(array.dtype)
    tunable = next(t for t in spec.tunables if t.name == ("out" if name == "out" else "dtype"))
    if found is None or found.name not in tunable.choices:
        accepted = ", ".join(dtypes.ALL[str(c)].storage for c in tunable.choices)
        raise ArgumentError(f"{spec.name}: {name} has dtype {array.dtype}; accepted: {accepted}")
    return found.name


def _check_sizes(spec: KernelSpec, a: Any, b: Any, bn: int) -> None:
    for name, array in (("a", a), ("b", b)):
        if max(array.shape) > _MAX_SIZE:
            raise ArgumentError(f"{spec.name}: {name} has shape {array.shape}; accepted: at most "
                                f"{_MAX_SIZE} in each dimension")
    if b.shape[1] > _MAX_GRID_Y * bn:
        raise ArgumentError(f"{spec.name}: b has {b.shape[1]} columns; accepted: at most "
                            f"{_MAX_GRID_Y * bn} with bn={bn}")


def _operand(spec: KernelSpec, device: Device, name: str, array: Any, matrix: Any, rung: int,
             box_rows: int) -> Any:
    """The tensor map of an operand as a matrix [rows, K]; a box is what one TMA load moves."""
    pitch = _pitch(spec, device, name, array, matrix)
    columns, swizzle = (_CORE, 0) if rung == 2 else (BK, ROW)
    element = _type(spec, name, array)
    return device.tensor_map(array, TensorMap(
        element, matrix.shape[::-1], (pitch,), (columns, box_rows), swizzle))


def _result(spec: KernelSpec, device: Device, out: Any) -> Any:
    """The tensor map of C; a box is a piece of 64 rows x 128 bytes."""
    size = out.dtype.itemsize
    pitch = _pitch(spec, device, "out", out, out)
    return device.tensor_map(out, TensorMap(
        _type(spec, "out", out), out.shape[::-1], (pitch,), (ROW // size, 64), ROW))


def _pitch(spec: KernelSpec, device: Device, name: str, array: Any, matrix: Any) -> int:
    """Bytes from row to row, if TMA can address the rows."""
    size, (count, columns) = array.dtype.itemsize, matrix.shape
    if columns > 1 and matrix.strides[1] != size:
        raise ArgumentError(f"{spec.name}: {name} has strides {array.strides} bytes; accepted: "
                            f"elements next to each other along K{_HINTS.get(name, '')}")
    pitch = matrix.strides[0] if count > 1 else -(-columns * size // _ALIGN) * _ALIGN
    if pitch <= 0 or pitch % _ALIGN:
        raise ArgumentError(f"{spec.name}: {name} has strides {array.strides} bytes; accepted: "
                            f"{'columns' if name == 'b' else 'rows'} a positive multiple of "
                            f"{_ALIGN} apart, as TMA asks")
    if device.phase(array) % _ALIGN:
        raise ArgumentError(f"{spec.name}: {name} starts {device.phase(array) % _ALIGN} bytes past "
                            f"a multiple of {_ALIGN}; accepted: multiples of {_ALIGN}, as TMA asks")
    return int(pitch)


_HINTS = {"b": ": w.T of a row-major [N, K] w"}


def _most_ctas(spec: KernelSpec, device: Device, cluster: int, ctas: int | None) -> int:
    """CTAs of a persistent kernel if there are enough tiles: as asked, or as the SMs hold."""
    if ctas is None:
        return device.properties.sm_count // cluster * cluster
    if ctas < 1 or ctas % cluster:
        raise ArgumentError(f"{spec.name}: ctas is {ctas}; accepted: positive multiples of "
                            f"cluster={cluster}")
    return ctas
