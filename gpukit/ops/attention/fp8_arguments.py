"""What calls with 8-bit operands say more than others, checked."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from gpukit import devices, dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops import arrays
from gpukit.ops.attention import arguments
from gpukit.ops.attention.forward_warm import Given
from gpukit.ops.attention.problem import Scales

E4M3 = "e4m3"
_OWN = "float8_e4m3fn"
_OUT = ("float16", "bfloat16")


class Words(NamedTuple):
    """As the caller passed them."""

    dtype: Any = None
    out_dtype: Any = None
    q_scale: Any = None
    k_scale: Any = None
    v_scale: Any = None

    @property
    def given(self) -> bool:
        """Whether the caller said anything."""
        return any(value is not None for value in self)


def warm(given: Given, words: Words) -> Given:
    """The call as its short way knows it: with scales where others have what is added to scores."""
    others = (given.slopes, given.bias, given.relative)
    if not words.given or any(x is not None for x in others):
        return given
    scales = words[2:]
    held = [x if isinstance(getattr(x, "shape", None), tuple) and not isinstance(x, np.generic)
               else None for x in scales]
    numbers = [None if array is not None else x for x, array in zip(scales, held, strict=True)]
    return given._replace(slopes=held[0], bias=held[1], relative=held[2], words=(
        *given.words[:-1], *words[:2], *numbers, given.words[-1]))


def unpack(function: str, q: Any, k: Any, v: Any, words: Words) -> tuple[Any, Any, Any, bool]:
    """q, k, v and whether they hold e4m3; if so, as bytes.

    Raises:
        ArgumentError: bytes without a word on what they hold, only some that hold e4m3, or words
            for other operands.
    """
    held = [_holds(function, name, array, words.dtype)
            for name, array in zip("qkv", (q, k, v), strict=True)]
    if not any(held):
        _refuse_words(function, words)
        return q, k, v, False
    for name, array, own in zip("qkv", (q, k, v), held, strict=True):
        if not own:
            raise ArgumentError(f"{function}: {name} has dtype {dtype_of(array)}; accepted: e4m3, "
                                "as the others")
    return as_bytes(q), as_bytes(k), as_bytes(v), True


def _holds(function: str, name: str, array: Any, dtype: Any) -> bool:
    own = dtype_of(array)
    if own not in ("uint8", _OWN):
        return False
    if dtype != E4M3 and not (dtype is None and own == _OWN):
        raise ArgumentError(f"{function}: {name} has dtype {own} and dtype is {dtype!r:.40}; "
                            "accepted: 'e4m3', what the bytes hold")
    return True


def dtype_of(array: Any) -> str:
    """The name of its dtype, which NumPy and torch agree on."""
    return str(getattr(array, "dtype", type(array).__name__)).removeprefix("torch.")


def as_bytes(array: Any) -> Any:
    """An array of e4m3, whoever made it, as the bytes it holds."""
    if str(array.dtype).startswith("torch."):
        return array.view(sys.modules["torch"].uint8)
    return array.view(np.uint8)


def _refuse_words(function: str, words: Words) -> None:
    for name, value in words._asdict().items():
        if value is not None:
            raise ArgumentError(f"{function}: {name} is for operands of 8 bits, float8_e4m3fn or "
                                "uint8 with dtype='e4m3'")


def refuse_terms(function: str, **given: Any) -> None:
    """8-bit kernels add nothing to scores.

    Raises:
        ArgumentError: names what was asked for.
    """
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"{function}: {name} is for float16 and bfloat16; q holds e4m3")


class _Like(NamedTuple):
    dtype: Any


def out(function: str, given: Any, shape: tuple[int, ...], out_dtype: Any, device: Device,
        inputs: dict[str, Any]) -> Any:
    """The output array, float16 or bfloat16."""
    if out_dtype is not None and _out_type(out_dtype) is None:
        raise ArgumentError(f"{function}: out_dtype={out_dtype!r:.40} is not accepted; "
                            f"{', '.join(_OUT)}, or None")
    chosen = None if out_dtype is None else _out_type(out_dtype)
    if given is None:
        return device.empty(shape, (chosen or dtypes.parse("bf16")).numpy)
    _, given = arguments.tensor(function, "out", given, len(shape), device)
    if chosen is not None and given.dtype != chosen.numpy:
        raise ArgumentError(f"{function}: out has dtype {given.dtype}, out_dtype is {chosen.name}")
    return arguments.out(function, given, shape, _Like(given.dtype), device, inputs)


def _out_type(value: Any) -> dtypes.DType | None:
    found = dtypes.ALL.get(value) if isinstance(value, str) else None
    try:
        found = found or dtypes.of(np.dtype(value))
    except TypeError:
        found = dtypes.parse(value) if value in _OUT else None
    return found if found is not None and found.name in ("f16", "bf16") else None


def scales(function: str, words: Words, batch: int, heads: int, kv_heads: int,
           device: Device) -> Scales:
    """What operands are multiplied with.

    Raises:
        ArgumentError: a scale of another type, shape or device, or a number that is not positive.
    """
    q, of_q = _scale(function, "q_scale", words.q_scale, batch, (heads, kv_heads), device)
    k, of_k = _scale(function, "k_scale", words.k_scale, batch, (kv_heads,), device)
    v, of_v = _scale(function, "v_scale", words.v_scale, batch, (kv_heads,), device)
    return Scales(of_q * of_k, of_v, q, k, v)


def _scale(function: str, name: str, value: Any, batch: int, heads: tuple[int, ...],
           device: Device) -> tuple[Any, float]:
    """A device array [sequences or 1, heads or 1] or None, and a number."""
    if value is None:
        return None, 1.0
    if isinstance(value, np.generic) or not hasattr(value, "shape"):
        number = arrays.check_scalar(function, name, value)
        if not (number > 0 and math.isfinite(number)):
            raise ArgumentError(f"{function}: {name}={number} is not accepted; a positive finite "
                                "number, or float32 factors on the device")
        return None, number
    where, value = devices.adopt(name, value, function)
    arrays.check_device(function, name, where, device)
    if value.dtype != np.float32:
        raise ArgumentError(f"{function}: {name} has dtype {value.dtype}; accepted: float32")
    arrays.check_elements(function, name, value, device)
    if value.size == 1 and value.ndim <= 2:
        return value.reshape(1, 1), 1.0
    shaped = value[None] if value.ndim == 1 else value
    if shaped.shape not in [(n, h) for n in (1, batch) for h in heads]:
        wanted = ", ".join(f"({h},), ({batch}, {h})" for h in dict.fromkeys(heads))
        raise ArgumentError(f"{function}: {name} has shape {value.shape}; accepted: one element, "
                            f"{wanted}")
    return shaped, 1.0
