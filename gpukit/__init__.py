"""gpukit: readable CUDA kernels for CuPy, honest measurement, and a PTX emulator.

>>> import cupy, gpukit
>>> y = gpukit.exp(cupy.linspace(0, 1, 1 << 20, dtype="float32"))
>>> c = gpukit.matmul(a, b)

Importing this package loads neither CuPy nor CUDA; the first call that needs them does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that defines it; resolved on first use to keep the import light.
_LAZY = {
    **dict.fromkeys(
        ("add", "add_const", "axpy", "copy", "erf", "exp", "log", "rsqrt", "scale", "sin", "sqrt",
         "tanh"),
        "gpukit.ops.elementwise",
    ),
    "attention_decode": "gpukit.ops.attention.decode",
    **dict.fromkeys(("attention", "attention_ragged"), "gpukit.ops.attention.api"),
    "matmul": "gpukit.ops.matmul",
    "merge_states": "gpukit.ops.attention.merge",
}
_SUBMODULES = ("bench", "devices", "dtypes", "emulator", "errors", "kernels", "measure", "ops",
               "reference", "sampling", "sources")

__all__ = [
    "__version__", "add", "add_const", "attention", "attention_decode", "attention_ragged", "axpy",
    "copy", "erf", "exp", "log", "matmul", "merge_states", "rsqrt", "scale", "sin", "sqrt", "tanh",
]

if TYPE_CHECKING:
    from gpukit.ops.attention.api import attention, attention_ragged
    from gpukit.ops.attention.decode import attention_decode
    from gpukit.ops.attention.merge import merge_states
    from gpukit.ops.elementwise import (
        add,
        add_const,
        axpy,
        copy,
        erf,
        exp,
        log,
        rsqrt,
        scale,
        sin,
        sqrt,
        tanh,
    )
    from gpukit.ops.matmul import matmul


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return import_module(f"gpukit.{name}")
    raise AttributeError(f"module 'gpukit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_SUBMODULES})
