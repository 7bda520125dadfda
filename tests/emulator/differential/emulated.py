"""Runs cases on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit import emulator

from .model import ApiCase, Array, Buffer, Case, Scalar, TensorMap


class Emulated:
    """The emulator as a device of this suite."""

    info = {"device": "gpukit.emulator", "driver": ""}  # noqa: RUF012

    def run(self, case: Case | ApiCase, ptx: str | None = None) -> list[Array]:
        """The outputs after one launch. Raises ``EmulatorError``."""
        if isinstance(case, ApiCase):
            return case.call(*(values.copy() for values in case.inputs))
        arrays = [a.values.copy() if isinstance(a, Buffer) else None for a in case.args]
        args = [_argument(a, arrays, i) for i, a in enumerate(case.args)]
        emulator.run(ptx or case.ptx, case.grid, case.block, args, shared_bytes=case.shared)
        return [
            array
            for a, array in zip(case.args, arrays, strict=True)
            if isinstance(a, Buffer) and a.output and array is not None
        ]


def _argument(arg: Any, arrays: list[Array | None], index: int) -> Any:
    if isinstance(arg, Scalar):
        return arg.value
    if isinstance(arg, TensorMap):
        return _tensor_map(arg, arrays[arg.buffer])
    return arrays[index]


def _tensor_map(wanted: TensorMap, array: Array | None) -> emulator.TensorMap:
    assert isinstance(array, np.ndarray)
    return emulator.TensorMap(
        array,
        wanted.box,
        data_type=wanted.data_type,
        dims=wanted.dims,
        strides=wanted.strides,
        element_strides=wanted.steps,
        swizzle=wanted.swizzle,
        oob_fill=wanted.oob_fill,
    )
