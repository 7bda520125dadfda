"""What launching a rung takes on Hopper and on Blackwell alike: checks, tunables, tensor maps."""

from __future__ import annotations

from typing import Any

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import KernelSpec, Value

_ALIGN = 16  # bytes: what TMA asks of a tensor's base and of its rows
_MAX_SIZE = 2**31 - 1024  # coordinates are 32-bit, also those of a tile that starts past the edge
_MAX_GRID_Y = 65535
_HINTS = {"b": ": w.T of a row-major [N, K] w"}


def tunables(spec: KernelSpec, device: Device, a: Any, out: Any,
             given: dict[str, Value]) -> dict[str, Value]:
    """All tunables: types from the arrays, as many stages as fit unless given."""
    types = {"dtype": type_of(spec, "a", a), "out": type_of(spec, "out", out)}
    full = spec.resolve({**given, **types})
    if "stages" in full and "stages" not in given:
        choices = next(t.choices for t in spec.tunables if t.name == "stages")
        full["stages"] = max(count for count in choices if spec.shared_bytes(
            {**full, "stages": count}) <= device.properties.shared_per_cta)
    return full


def type_of(spec: KernelSpec, name: str, array: Any) -> str:
    """gpukit's name of an array's type, if the kernel takes it there.

    Raises:
        ArgumentError: it does not; names the accepted ones.
    """
    found = dtypes.of(array.dtype)
    tunable = next(t for t in spec.tunables if t.name == ("out" if name == "out" else "dtype"))
    if found is None or found.name not in tunable.choices:
        accepted = ", ".join(dtypes.ALL[str(c)].storage for c in tunable.choices)
        raise ArgumentError(f"{spec.name}: {name} has dtype {array.dtype}; accepted: {accepted}")
    return found.name


def check_sizes(spec: KernelSpec, a: Any, b: Any, bn: int) -> None:
    """Refuse what coordinates, or a grid of tiles of `bn` columns along y, cannot count.

    Raises:
        ArgumentError: names the operand.
    """
    for name, array in (("a", a), ("b", b)):
        if max(array.shape) > _MAX_SIZE:
            raise ArgumentError(f"{spec.name}: {name} has shape {array.shape}; accepted: at most "
                                f"{_MAX_SIZE} in each dimension")
    if b.shape[1] > _MAX_GRID_Y * bn:
        raise ArgumentError(f"{spec.name}: b has {b.shape[1]} columns; accepted: at most "
                            f"{_MAX_GRID_Y * bn} with bn={bn}")


def matrix_map(spec: KernelSpec, device: Device, name: str, array: Any, matrix: Any,
               box: tuple[int, int], swizzle: int) -> Any:
    """The tensor map of an argument as a matrix of contiguous rows.

    Args:
        name: "a", "b" or "out".
        matrix: the array, or its transpose, with the rows that TMA sees.
        box: what one copy moves: columns, rows.
        swizzle: bytes, 0 for none.

    Raises:
        ArgumentError: TMA cannot address these rows.
    """
    pitch = _pitch(spec, device, name, array, matrix)
    return device.tensor_map(array, TensorMap(
        type_of(spec, name, array), matrix.shape[::-1], (pitch,), box, swizzle))


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
