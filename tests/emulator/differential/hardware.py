"""Runs cases on a GPU through the driver API alone: PTX text in, outputs back."""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from .model import ApiCase, Array, Buffer, Case, Scalar, TensorMap

LIBRARY = "libcuda.so.1"
# In the order of the driver's enumerations.
DATA_TYPES = ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32",
              "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz")  # fmt: skip
SWIZZLES = ("none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_32B_flip_8B",
            "128B_atom_64B")  # fmt: skip
OOB_FILLS = ("zero", "nan")
_JIT_ERROR_BUFFER, _JIT_ERROR_BYTES = 5, 6
_LOG_BYTES = 4096


class DriverError(RuntimeError):
    """The driver refused a call; ``lost`` if the context cannot be used any more."""

    def __init__(self, message: str, lost: bool = False) -> None:
        super().__init__(message)
        self.lost = lost


class Hardware:
    """The first GPU."""

    def __init__(self) -> None:
        os.environ.setdefault("CUDA_CACHE_DISABLE", "1")
        self._cuda = ctypes.CDLL(LIBRARY)
        self._call("cuInit", c_uint(0))
        device, context = c_int(), c_void_p()
        self._call("cuDeviceGet", byref(device), c_int(0))
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.info = self._describe(device)

    def _describe(self, device: c_int) -> dict[str, str]:
        name, driver = ctypes.create_string_buffer(128), c_int()
        self._call("cuDeviceGetName", name, c_int(128), device)
        self._call("cuDriverGetVersion", byref(driver))
        major, minor = driver.value // 1000, driver.value % 1000 // 10
        return {"device": name.value.decode(), "driver": f"CUDA {major}.{minor}, {_version()}"}

    def _call(self, function: str, *args: Any) -> None:
        status = getattr(self._cuda, function)(*args)
        if status:
            text = c_char_p()
            self._cuda.cuGetErrorName(c_int(status), byref(text))
            word = (text.value or b"?").decode()
            raise DriverError(f"{function}: {word} ({status})", lost=status >= 700)

    def run(self, case: Case | ApiCase) -> list[Array]:
        """The outputs after one launch. Raises ``DriverError``."""
        if isinstance(case, ApiCase):
            return _call_api(case)
        module = self._load(case.ptx)
        pointers: list[c_uint64 | None] = []
        try:
            pointers = [self._upload(a) if isinstance(a, Buffer) else None for a in case.args]
            self._launch(module, case, pointers)
            return [
                self._download(p, a.values)
                for a, p in zip(case.args, pointers, strict=True)
                if isinstance(a, Buffer) and a.output and p is not None
            ]
        finally:
            for pointer in pointers:
                if pointer is not None:
                    self._cuda.cuMemFree_v2(pointer)
            self._cuda.cuModuleUnload(module)

    def _load(self, ptx: str) -> c_void_p:
        module, log = c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_JIT_ERROR_BUFFER, _JIT_ERROR_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        try:
            self._call("cuModuleLoadDataEx", byref(module), c_char_p(ptx.encode()), c_uint(2),
                       options, values)  # fmt: skip
        except DriverError as error:
            raise DriverError(
                f"{error}: {log.value.decode(errors='replace')}", error.lost
            ) from None
        return module

    def _upload(self, buffer: Buffer) -> c_uint64:
        pointer = c_uint64()
        values = np.ascontiguousarray(buffer.values)
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(max(values.nbytes, 16)))
        self._call("cuMemcpyHtoD_v2", pointer, c_void_p(values.ctypes.data),
                   c_size_t(values.nbytes))  # fmt: skip
        return pointer

    def _download(self, pointer: c_uint64, like: Array) -> Array:
        result = np.empty(like.shape, like.dtype)
        self._call("cuMemcpyDtoH_v2", c_void_p(result.ctypes.data), pointer,
                   c_size_t(result.nbytes))  # fmt: skip
        return result

    def _launch(self, module: c_void_p, case: Case, pointers: list[c_uint64 | None]) -> None:
        function = c_void_p()
        self._call("cuModuleGetFunction", byref(function), module, c_char_p(b"k"))
        holders = [self._parameter(a, pointers, i) for i, a in enumerate(case.args)]
        array = (c_void_p * len(holders))(*(address for address, _ in holders))
        one = c_uint(1)
        self._call("cuLaunchKernel", function, c_uint(case.grid), one, one, c_uint(case.block), one,
                   one, c_uint(case.shared), c_void_p(None), array, c_void_p(None))  # fmt: skip
        self._call("cuCtxSynchronize")

    def _parameter(self, arg: Any, pointers: list[c_uint64 | None], i: int) -> tuple[int, Any]:
        """The address of a parameter's value, and what keeps it alive."""
        if isinstance(arg, Scalar):
            scalar = np.array([arg.value])
            return scalar.ctypes.data, scalar
        if isinstance(arg, TensorMap):
            encoded = self._encode(arg, pointers[arg.buffer])
            return encoded.ctypes.data, encoded
        return ctypes.addressof(pointers[i]), pointers[i]  # type: ignore[arg-type]

    def _encode(self, wanted: TensorMap, pointer: c_uint64 | None) -> Array:
        """cuTensorMapEncodeTiled into 128 bytes at a multiple of 64."""
        raw = np.zeros(128 + 128, np.uint8)
        start = -raw.ctypes.data % 128
        encoded = raw[start : start + 128]
        rank = len(wanted.dims)
        assert pointer is not None
        self._call(
            "cuTensorMapEncodeTiled", c_void_p(encoded.ctypes.data),
            c_int(DATA_TYPES.index(wanted.data_type)), c_uint32(rank), c_void_p(pointer.value),
            (c_uint64 * rank)(*wanted.dims), (c_uint64 * max(rank - 1, 1))(*wanted.strides),
            (c_uint32 * rank)(*wanted.box), (c_uint32 * rank)(*wanted.steps), c_int(0),
            c_int(SWIZZLES.index(wanted.swizzle)), c_int(0),
            c_int(OOB_FILLS.index(wanted.oob_fill)),
        )  # fmt: skip
        return encoded


def _version() -> str:
    """The driver's own version, such as "580.95.05"."""
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+(\.\d+)?", path.read_text() if path.exists() else "")
    return f"driver {found[0]}" if found else "driver unknown"


def _call_api(case: ApiCase) -> list[Array]:
    import cupy

    return [cupy.asnumpy(a) for a in case.call(*map(cupy.asarray, case.inputs))]
