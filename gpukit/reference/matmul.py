"""float64 oracle of matrix multiplication with its epilogue, and the error kernels may make."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpukit.dtypes import DType
from gpukit.reference.tolerance import Array, Bound

_UNIT = 2.0**-24  # half an ulp of f32
_TF32_CUT = 2.0**-10  # what ignoring 13 bits of f32 loses, at most
_FP8_CUT = 2.0**-13  # of the largest term, that Hopper's tensor cores lose of each 8-bit product
_PROMOTED = 128  # products added up in the tensor cores before their sum goes to f32

_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: dict[str | None, Callable[[Array], Array]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))) if x.size else x,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@dataclass(frozen=True)
class Epilogue:
    """activation(alpha scale_a scale_b sums + bias) + residual.

    Attributes:
        scale_a, scale_b: numbers or arrays that broadcast to rows [..., M, 1] and columns [1, N].
        bias, residual: arrays or 0.
    """

    alpha: float = 1.0
    scale_a: Any = 1.0
    scale_b: Any = 1.0
    bias: Any = 0.0
    residual: Any = 0.0
    activation: str | None = None

    def before(self, sums: Array) -> Array:
        """What the activation is applied to."""
        scaled: Array = self.factor * sums + _wide(self.bias)
        return scaled

    def after(self, sums: Array) -> Array:
        """The result, without rounding."""
        added: Array = ACTIVATIONS[self.activation](self.before(sums)) + _wide(self.residual)
        return added

    @property
    def factor(self) -> Any:
        """Of the sums."""
        return self.alpha * _wide(self.scale_a) * _wide(self.scale_b)


def _wide(values: Any) -> Any:
    return np.asarray(values).astype(np.float64)


def oracle(a: NDArray[np.generic], b: NDArray[np.generic],
           epilogue: Epilogue | None = None) -> Array:
    """A B, and its epilogue, in float64 from the same rounded inputs; zeros where K = 0."""
    sums: Array = a.astype(np.float64) @ b.astype(np.float64)
    return sums if epilogue is None else epilogue.after(sums)


def bound(a: NDArray[np.generic], b: NDArray[np.generic], out: DType, *,
          epilogue: Epilogue | None = None, multiply: str = "exact") -> Bound:
    """Allowed error, element by element.

    Accumulating K products in f32 in any order errs by at most K u sum |a||b| (u = 2^-24), and by
    about sqrt(K) u sum |a||b| when rounding errors are independent; 4 sqrt(K) + 4 of those units is
    four standard deviations and still far below one missing product at realistic K. The output
    adds half an ulp of its own type (and one unit of f32 rounding before it).

    The epilogue rounds to f32 a few times, its activations have slopes up to 1.13 and errors of
    their own up to 1e-5 relative (`cuda_src/matmul/epilogue.cuh`).

    Args:
        multiply: "exact"; "tf32", which ignores 13 bits of each factor; "fp8" and "fp8_fast",
            whose units of error are 2^-13 of what has been added up in the tensor cores: 128
            products, in blocks that may be twice the average, or all of them.
    """
    k = a.shape[-1]
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    units = 4 * np.sqrt(k) + 4
    error = units * _UNIT * magnitude
    if multiply == "tf32":
        error = error + 2 * _TF32_CUT * magnitude
    elif multiply.startswith("fp8"):
        share = min(1.0, 2 * _PROMOTED / max(k, 1)) if multiply == "fp8" else 1.0
        error = error + units * _FP8_CUT * share * magnitude
    if epilogue is not None:
        error = _after_epilogue(a, b, error, epilogue)
    smallest = 2.0**-25 if out.name == "f16" else 2.0**-126
    return Bound(error + smallest, 2.0**-out.exact_bits + _UNIT)


def _after_epilogue(a: NDArray[np.generic], b: NDArray[np.generic], error: Array,
                    epilogue: Epilogue) -> Array:
    sums = oracle(a, b)
    before, after = epilogue.before(sums), epilogue.after(sums)
    scaled: Array = np.abs(epilogue.factor) * (error + 4 * _UNIT * np.abs(sums))
    inside = scaled + 2 * _UNIT * np.abs(before)
    result: Array = inside
    if epilogue.activation not in (None, "relu"):
        activated = np.abs(after - _wide(epilogue.residual))
        result = 1.13 * inside + 1e-5 * activated + 2 * _UNIT * np.abs(before)
    return result + _UNIT * np.abs(after)
