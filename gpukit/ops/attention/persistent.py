"""Launches of persistent forward kernels: from call to call they differ in little but memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpukit.devices.arguments import LATER
from gpukit.devices.protocol import Device, Dim3, Kernel
from gpukit.devices.tensor_map import TensorMap
from gpukit.ops.attention.counter import counter
from gpukit.ops.matmul.maps import bound


def bind(device: Device, kernel: Kernel, grid: Dim3, block: Dim3,
         maps: Iterable[tuple[TensorMap, int]], values: Sequence[Any], *,
         dynamic: bool) -> Callable[..., None]:
    """
    Args:
        maps: of q, k and v, which the kernel takes first.
        values: all it takes after them but the counter of tiles.
        dynamic: whether CTAs count tiles.

    Returns:
        The launch; takes pointers to q, k, v and the arrays among `values`.
    """
    map_q, map_k, map_v = (bound(device, *request) for request in maps)
    none = device.pointer(None)
    fixed = (x if isinstance(x, int | float) else none if x is None else LATER for x in values)
    enqueue = kernel.bind(grid, block, (*fixed, LATER if dynamic else none))

    def call(q: Any, k: Any, v: Any, *others: Any) -> None:
        enqueue(map_q(q), map_k(k), map_v(v), *others)

    def counting(q: Any, k: Any, v: Any, *others: Any) -> None:
        enqueue(map_q(q), map_k(k), map_v(v), *others, device.pointer(counter(device)))

    return counting if dynamic else call
