"""Tensor maps of operands, requested once per problem and encoded for each array."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from gpukit.devices.protocol import Device
from gpukit.devices.tensor_map import TensorMap
from gpukit.kernels import matmul_library as specs
from gpukit.ops.matmul.problem import Operand, Problem

# What tensor maps call them.
_ELEMENTS = {"tf32": "f32", **dict.fromkeys((*specs.EIGHT_BIT, specs.FOUR_BIT), "u8")}
_MAPS = 1 << 14  # remembered in all: a few MB, and every weight of a large model
_SLAB = 64  # of M or N, and of K, in a box of an operand that runs along M or N


def operand(problem: Problem, matrices: Operand, rows: int, box: int, device: Device) -> Any:
    """Of [batch, rows, K]; a box is 128 bytes of K by `box` rows, or a slab."""
    if matrices.major == "k":
        return along_k(problem, matrices, rows, box, device)
    return bound(device, TensorMap(
        _ELEMENTS.get(problem.dtype, problem.dtype), (rows, problem.k, problem.batch),
        (matrices.pitch, matrices.batch), (_SLAB, _SLAB, 1)))


def along_k(problem: Problem, matrices: Operand, rows: int, box: int, device: Device) -> Any:
    """Of [batch, rows, K] with contiguous rows; a box is 128 bytes of K by `box` rows."""
    return bound(device, TensorMap(
        _ELEMENTS.get(problem.dtype, problem.dtype), (problem.k, rows, problem.batch),
        (matrices.pitch, matrices.batch), (specs.ROW // problem.itemsize, box, 1)))


def bound(device: Device, request: TensorMap, offset: int = 0) -> Callable[[Any], Any]:
    """The tensor map of an array, `offset` bytes from its start, by what a launch takes for it.
    Encoding asks the driver, so a GPU's are remembered by address."""
    if device.emulated:
        return lambda array: device.tensor_map(array, request, offset)
    return partial(_encoded, _Request(request, offset))


class _Request:
    """A request that is looked up by identity: hashing its fields takes as long as encoding it."""

    def __init__(self, request: TensorMap, offset: int) -> None:
        self.request, self.offset = request, offset


@lru_cache(maxsize=_MAPS)
def _encoded(request: _Request, address: int) -> bytes:
    from gpukit.devices import cuda_tensor_map

    return cuda_tensor_map.encode(address + request.offset, request.request)
