"""A case: one kernel launch and how its outputs are compared."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
FILL = 0xEE  # what outputs hold before the launch


@dataclass(frozen=True)
class Exact:
    """Every bit must agree."""


@dataclass(frozen=True)
class Ulps:
    """Numbers of ``dtype`` ("f4", "f8", "f2" or "bf16") that are close enough.

    Within ``ulps`` units in the last place or ``absolute``; NaN agrees with NaN.
    """

    dtype: str
    ulps: float
    absolute: float = 0.0


@dataclass(frozen=True)
class Within:
    """Numbers of ``dtype`` within ``absolute`` + ``relative`` times the larger magnitude."""

    dtype: str
    absolute: float
    relative: float = 0.0


Comparison: TypeAlias = "Exact | Ulps | Within"
EXACT = Exact()


@dataclass(frozen=True)
class Buffer:
    """A pointer argument. ``values`` is what it holds at first; outputs are read back."""

    values: Array
    output: bool = False


@dataclass(frozen=True)
class Scalar:
    """A by-value argument."""

    value: np.generic


@dataclass(frozen=True)
class TensorMap:
    """A by-value tensor map of the case's ``buffer``-th argument; innermost dimension first."""

    buffer: int
    data_type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: str = "none"
    oob_fill: str = "zero"

    @property
    def steps(self) -> tuple[int, ...]:
        return self.element_strides or (1,) * len(self.dims)


Argument: TypeAlias = "Buffer | Scalar | TensorMap"


@dataclass(frozen=True)
class Case:
    """One launch of the only kernel, ``k``, of a PTX module."""

    name: str
    ptx: str
    args: tuple[Argument, ...]
    grid: int = 1
    block: int = 128
    shared: int = 0
    comparison: Comparison = EXACT

    @property
    def outputs(self) -> list[Buffer]:
        return [a for a in self.args if isinstance(a, Buffer) and a.output]

    def digest(self) -> str:
        """A checksum of everything that a recorded output depends on."""
        sum_ = zlib.crc32(f"{self.ptx}{self.grid}{self.block}{self.shared}".encode())
        for arg in self.args:
            raw = repr(arg).encode()
            if isinstance(arg, Buffer):
                raw = np.ascontiguousarray(arg.values).tobytes()
            elif isinstance(arg, Scalar):
                raw = arg.value.tobytes()
            sum_ = zlib.crc32(raw, sum_)
        return f"{sum_:08x}"


@dataclass(frozen=True)
class ApiCase:
    """A call of the library: ``call`` gets the inputs as arrays of the device."""

    name: str
    call: Callable[..., list[Any]]
    inputs: tuple[Array, ...]
    comparison: Comparison = EXACT
    ptx: str = ""

    def digest(self) -> str:
        """A checksum of the inputs."""
        return f"{zlib.crc32(b''.join(v.tobytes() for v in self.inputs)):08x}"


def output(count: int, itemsize: int = 4) -> Buffer:
    """An output of ``count`` elements."""
    return Buffer(np.full(count * itemsize, FILL, np.uint8).view(f"u{itemsize}"), output=True)
