"""Encoding tensor maps with the driver, through ctypes.

Not through cuda-bindings: its CUtensorMap objects are not aligned as the driver asks, and it
converts every argument anew per call. Here only the address changes between calls.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from gpukit.devices import tensor_map
from gpukit.devices.tensor_map import ELEMENTS, L2_PROMOTIONS, SWIZZLES, TensorMap
from gpukit.errors import ArgumentError, UnsupportedError

_ALIGN = 128  # what cuda.h declares for CUtensorMap since CUDA 13 (64 before)
_NO_INTERLEAVE = _ZERO_FILL = 0
_POINTER, _ENUM = ctypes.c_void_p, ctypes.c_int
# cuTensorMapEncodeTiled(out, type, rank, address, dims, strides, box, element strides,
#                        interleave, swizzle, L2 promotion, out-of-bounds fill)
ARGUMENT_TYPES = (_POINTER, _ENUM, ctypes.c_uint32, _POINTER, _POINTER, _POINTER, _POINTER,
                  _POINTER, _ENUM, _ENUM, _ENUM, _ENUM)


@cache
def encode_tiled() -> Any:
    """The driver's cuTensorMapEncodeTiled.

    Raises:
        UnsupportedError: no driver, or one older than CUDA 12.
    """
    try:
        # PyDLL: the call is too short to be worth handing the GIL over.
        driver = ctypes.PyDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        function = driver.cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise UnsupportedError(f"tensor maps need an NVIDIA driver for CUDA 12 or later ({error})"
                               ) from error
    function.argtypes = ARGUMENT_TYPES
    return function


def encode(address: int, request: TensorMap, function: Any = None) -> bytes:
    """The 128 bytes of a tensor map whose element [0, ..., 0] is at a device address.

    Args:
        function: what encodes, the driver's `encode_tiled()` by default.

    Raises:
        ArgumentError: a rule is broken, or the driver refuses for a reason of its own.
    """
    fixed = _fixed(request)
    tensor_map.check_base(address)
    out = _local.address
    status = (function or encode_tiled())(
        out, fixed.element, fixed.rank, address, fixed.dims, fixed.strides, fixed.box, fixed.steps,
        _NO_INTERLEAVE, fixed.swizzle, fixed.l2_promotion, _ZERO_FILL)
    if status:
        raise ArgumentError(f"tensor_map: the driver refused {request} at 0x{address:x} "
                            f"with CUDA error {status}")
    return ctypes.string_at(out, tensor_map.BYTES)


@dataclass(frozen=True)
class _Fixed:
    """A request as the driver takes it: all but the address."""

    element: int
    rank: int
    dims: Any
    strides: Any
    box: Any
    steps: Any
    swizzle: int
    l2_promotion: int


@lru_cache(maxsize=1024)
def _fixed(request: TensorMap) -> _Fixed:
    tensor_map.check(request)
    u64, u32 = ctypes.c_uint64 * 5, ctypes.c_uint32 * 5
    return _Fixed(
        ELEMENTS[request.element].driver, len(request.dims), u64(*request.dims),
        u64(*request.strides), u32(*request.box), u32(1, 1, 1, 1, 1),
        SWIZZLES.index(request.swizzle), L2_PROMOTIONS.index(request.l2_promotion))


class _Output(threading.local):
    """An aligned buffer per thread for the driver to write."""

    def __init__(self) -> None:
        self.storage = ctypes.create_string_buffer(tensor_map.BYTES + _ALIGN)
        self.address = -(-ctypes.addressof(self.storage) // _ALIGN) * _ALIGN


_local = _Output()
