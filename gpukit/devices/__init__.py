"""Arrays choose the device: CuPy (or any CUDA tensor) runs on the GPU, NumPy is emulated."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

import numpy as np

from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, NoDeviceError, UnsupportedError

_DLPACK_CUDA = 2


def get(name: str = "auto") -> Device:
    """A device by name: "cuda:0" (or "cuda", "auto": the first GPU).

    Raises:
        ArgumentError: the name has another form.
        NoDeviceError: no such device here.
    """
    kind, _, index = name.partition(":")
    if name == "auto" or kind == "cuda":
        if index and not index.isdigit():
            raise ArgumentError(f"device {name!r} is not of the form cuda:0")
        return cast(Device, _cuda().get(int(index or 0)))
    if kind == "emu":
        raise NoDeviceError(f"device {name!r}: the emulated device is not part of this version")
    raise ArgumentError(f"device {name!r} is unknown; accepted: auto, cuda, cuda:N")


def adopt(name: str, array: Any, function: str = "gpukit") -> tuple[Device, Any]:
    """The device an argument lives on, and the argument as that device's own array type.

    CUDA tensors of other libraries (DLPack, __cuda_array_interface__) are wrapped, not copied.

    Args:
        name, function: the argument's name and the function's, for the error message.

    Raises:
        ArgumentError: not an array on a device gpukit runs on.
    """
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return _cuda().get(array.device.id), array
    if isinstance(array, np.ndarray | np.generic):
        raise UnsupportedError(f"{function}: {name} is a NumPy array; running it without a GPU "
                               "needs the emulated device, which is not part of this version: "
                               "pass a CuPy array")
    if not (_is_cuda_dlpack(array) or hasattr(array, "__cuda_array_interface__")):
        raise ArgumentError(f"{function}: {name} must be a CuPy array or a CUDA tensor that speaks "
                            f"DLPack, got {type(array).__name__}")
    wrapped = _wrap(array)
    return _cuda().get(wrapped.device.id), wrapped


def _cuda() -> ModuleType:
    """gpukit.devices.cuda, imported when the first CUDA array arrives."""
    from gpukit.devices import cuda

    return cuda


def _is_cuda_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == _DLPACK_CUDA


def _wrap(array: Any) -> Any:
    cupy = _cuda().load_cupy()
    if _is_cuda_dlpack(array):  # first choice: __cuda_array_interface__ has no bf16
        return cupy.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    return cupy.asarray(array)
