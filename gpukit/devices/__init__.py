"""Arrays choose the device: CuPy (or any CUDA tensor) runs on the GPU, NumPy is emulated."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, cast

import numpy as np

from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, MissingDependencyError

_DLPACK_CUDA = 2


def get(name: str = "auto") -> Device:
    """A device by name: "cuda:0", "emu:h100", or "auto" (the first GPU, else the emulator).

    Raises:
        ArgumentError: the name has another form.
        NoDeviceError: no such GPU here.
    """
    kind, _, index = name.partition(":")
    if name == "auto":
        return cast(Device, _cuda().get(0) if _has_gpu() else _emulated().current())
    if kind == "cuda":
        if index and not (index.isascii() and index.isdecimal()):
            raise ArgumentError(f"device {name!r} is not of the form cuda:0")
        return cast(Device, _cuda().get(int(index or 0)))
    if kind == "emu":
        return cast(Device, _emulated().get(*([index] if index else [])))
    raise ArgumentError(f"device {name!r} is unknown; accepted: auto, cuda:N, emu:h100, emu:b200")


def _has_gpu() -> bool:
    """Whether CuPy is here and sees a GPU. A broken CuPy is an error, not a missing GPU."""
    try:
        return bool(_cuda().device_count())
    except MissingDependencyError:
        return False


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
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray | np.matrix):
        return cast(Device, _emulated().current()), array
    if not (_is_cuda_dlpack(array) or hasattr(array, "__cuda_array_interface__")):
        raise ArgumentError(f"{function}: {name} must be a CuPy array, a CUDA tensor that speaks "
                            f"DLPack or a NumPy array, got {type(array).__name__}")
    wrapped = _wrap(array)
    return _cuda().get(wrapped.device.id), wrapped


def _cuda() -> ModuleType:
    """gpukit.devices.cuda, imported when the first CUDA array arrives."""
    from gpukit.devices import cuda

    return cuda


def _emulated() -> ModuleType:
    """gpukit.devices.emulated, imported when the first NumPy array arrives."""
    from gpukit.devices import emulated

    return emulated


def _is_cuda_dlpack(array: Any) -> bool:
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == _DLPACK_CUDA


def _wrap(array: Any) -> Any:
    cupy = _cuda().load_cupy()
    if _is_cuda_dlpack(array):  # first choice: __cuda_array_interface__ has no bf16
        return cupy.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    return cupy.asarray(array)
