"""Calls of gpukit.matmul: operands of any type and layout, and what they must give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import gpukit
from gpukit import dtypes
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

POISON = {1: 0x7F, 2: 0x7FDB, 4: 0x7FDBDEAD}  # NaNs that no arithmetic makes
GUARD = 64  # elements before and after C that must keep the poison


@dataclass(frozen=True)
class Product:
    """C = activation(alpha scale_a scale_b A B + bias) + residual.

    Attributes:
        layout: how A and B are stored: n as is, t transposed.
        out: type of C; the default one where None.
        batch, batch_b: leading dimensions of A (and C), and of B.
        offsets: elements that A, B and C start past a 256-byte boundary.
        pads: elements between stored rows of A, B and C.
        dtype_b: type of B; that of A where None.
        scales: for A and B: None, "number", "one" (an array), "each" row or column, "block".
    """

    m: int
    n: int
    k: int
    layout: str = "nt"
    dtype: str = "bf16"
    out: str | None = None
    batch: tuple[int, ...] = ()
    batch_b: tuple[int, ...] = ()
    offsets: tuple[int, int, int] = (0, 0, 0)
    pads: tuple[int, int, int] = (0, 0, 0)
    bias: bool = False
    residual: bool = False
    activation: str | None = None
    alpha: float = 1.0
    scales: tuple[str | None, str | None] = (None, None)
    tf32: bool = False
    fast_accum: bool = False
    dtype_b: str | None = None

    @property
    def dtypes(self) -> tuple[str, str]:
        """Of A and B."""
        return self.dtype, self.dtype_b or self.dtype

    @property
    def out_type(self) -> dtypes.DType:
        """Of C, bias and residual."""
        fp8 = dtypes.parse(self.dtype).itemsize == 1
        return dtypes.parse(self.out or ("bf16" if fp8 else self.dtype))

    @property
    def multiply(self) -> str:
        """What `gpukit.reference.matmul.bound` calls it."""
        if dtypes.parse(self.dtype).itemsize == 1:
            return "fp8_fast" if self.fast_accum else "fp8"
        return "tf32" if self.tf32 else "exact"

    def _random(self, what: int, shape: tuple[int, ...]) -> np.ndarray:
        seed = [self.m, self.n, self.k, len(self.batch), what]
        return np.random.default_rng(seed).standard_normal(shape)

    @cached_property
    def a(self) -> np.ndarray:
        """[..., M, K], a view of a buffer that is NaN elsewhere."""
        return self._operand(0, (*self.batch, self.m, self.k))

    @cached_property
    def b(self) -> np.ndarray:
        """[..., K, N]."""
        return self._operand(1, (*self.batch_b, self.k, self.n))

    def _operand(self, side: int, shape: tuple[int, ...]) -> np.ndarray:
        stored = (*shape[:-2], *shape[:-3:-1]) if self.layout[side] == "t" else shape
        dtype = dtypes.parse(self.dtypes[side]).value_dtype
        matrix = strided(stored, dtype, self.offsets[side], self.pads[side])
        matrix[...] = self._random(side, stored).astype(matrix.dtype)
        return matrix.swapaxes(-1, -2) if self.layout[side] == "t" else matrix

    @cached_property
    def terms(self) -> dict[str, Any]:
        """bias, residual and scales."""
        lead = self.batch or self.batch_b
        dtype, found = self.out_type.numpy, {}
        if self.bias:
            found["bias"] = self._random(2, (self.n,)).astype(dtype)
        if self.residual:
            wide = self._random(3, (*lead, self.m, self.n + 3)).astype(dtype)
            found["residual"] = wide[..., :self.n]
        blocks = ((self.m, -(-self.k // 128)), (-(-self.k // 128), -(-self.n // 128)))
        each = (self.a.shape[:-1], (*self.batch_b, self.n))
        for side, name in enumerate(("scale_a", "scale_b")):
            if self.scales[side] is not None:
                found[name] = self._scale(side, each[side], blocks[side])
        return found

    def _scale(self, side: int, each: tuple[int, ...], block: tuple[int, ...]) -> Any:
        shape = {"number": (), "one": (1,), "each": each, "block": block}[str(self.scales[side])]
        values = np.exp2(self._random(4 + side, shape)).astype(np.float32)
        return float(values) if shape == () else values

    @property
    def words(self) -> dict[str, Any]:
        """The other arguments that differ from the defaults."""
        given = {"activation": self.activation, "alpha": self.alpha, "tf32": self.tf32,
                 "fast_accum": self.fast_accum, "out_dtype": self.out}
        default = {"activation": None, "alpha": 1.0, "tf32": False, "fast_accum": False,
                   "out_dtype": None}
        return {name: value for name, value in given.items() if value != default[name]}

    def want(self) -> tuple[Any, Any]:
        """The exact result and how far off it may be."""
        a, b, terms = self.a.astype("f8"), self.b.astype("f8"), dict(self.terms)
        if self.scales == ("block", "block"):
            a = a * np.repeat(terms.pop("scale_a"), 128, 1)[:, :self.k]
            blocks = np.repeat(np.repeat(terms.pop("scale_b"), 128, 0), 128, 1)
            b = b * blocks[:self.k, :self.n]
        if np.ndim(terms.get("scale_a", 0)) and np.size(terms["scale_a"]) > 1:
            terms["scale_a"] = terms["scale_a"][..., None]
        if np.ndim(terms.get("scale_b", 0)) > 1:
            terms["scale_b"] = terms["scale_b"][..., None, :]
        epilogue = ref.Epilogue(alpha=float(np.float32(self.alpha)), activation=self.activation,
                                **terms)
        return (ref.oracle(a, b, epilogue),
                ref.bound(a, b, self.out_type, epilogue=epilogue, multiply=self.multiply))

    def check(self, got: np.ndarray) -> None:
        """Within the bound, of the right type."""
        assert got.dtype == self.out_type.numpy
        want, bound = self.want()
        assert scaled_error(got.astype(np.float64), want, bound) <= 1

    def run(self, **options: Any) -> np.ndarray:
        """Emulated, into poison: all of C is right, and nothing around it was written."""
        out = self._output()
        before = np.array(words_of(root(out)))
        got = gpukit.matmul(self.a, self.b, out=out, **self.terms, **self.words, **options)
        assert got is out
        self.check(got)
        outside(out, before, words_of(root(out)))
        return got

    def run_gpu(self, xp: Any, **options: Any) -> Any:
        """`run` on a GPU; the result on it."""
        host = self._output()
        before = words_of(root(host))
        buffer = xp.asarray(before)
        out = placed(xp, buffer.view(host.dtype), host)
        terms = {name: value if isinstance(value, float) else moved(xp, value)
                 for name, value in self.terms.items()}
        a, b = moved(xp, self.a), moved(xp, self.b)
        held = dict(zip(("dtype_a", "dtype_b"), self.dtypes, strict=True))
        words = {**self.words, **(held if a.dtype == np.uint8 else {})}
        assert gpukit.matmul(a, b, out=out, **terms, **words, **options) is out
        self.check(xp.asnumpy(out))
        outside(host, before, xp.asnumpy(buffer))
        return out

    def _output(self) -> np.ndarray:
        lead = self.batch or self.batch_b
        return strided((*lead, self.m, self.n), self.out_type.numpy, self.offsets[2],
                       self.pads[2])


def strided(shape: tuple[int, ...], dtype: Any, offset: int = 0, pad: int = 0) -> np.ndarray:
    """An array of poison in a larger one: `offset` elements in, `pad` between rows."""
    dtype = np.dtype(dtype)
    pitch = shape[-1] + pad
    size = int(np.prod(shape[:-1])) * pitch
    guard = -(-GUARD * dtype.itemsize // 256) * 256 // dtype.itemsize
    raw = np.full(guard + offset + size + guard, POISON[dtype.itemsize],
                  f"u{dtype.itemsize}").view(dtype)
    whole = raw[guard + offset:guard + offset + size].reshape(*shape[:-1], pitch)
    return whole[..., :shape[-1]]


def root(array: Any) -> Any:
    """The buffer that an array is a view of."""
    while array.base is not None and getattr(array.base, "ndim", 0):
        array = array.base
    return array


def words_of(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers."""
    return array.view(f"u{array.dtype.itemsize}")


def outside(out: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
    """Of the buffer that `out` is a view of, only `out` has changed, and all of it."""
    inside = np.zeros(before.shape, bool)
    placed(np, inside, out)[...] = True
    assert (after[~inside] == before[~inside]).all()
    assert not (after[inside] == POISON[out.itemsize]).any()


def placed(xp: Any, buffer: Any, like: np.ndarray) -> Any:
    """What `like` is in its own buffer, in another buffer of as many elements."""
    size = like.dtype.itemsize
    start = like.__array_interface__["data"][0] - root(like).__array_interface__["data"][0]
    steps = [stride // size * buffer.dtype.itemsize for stride in like.strides]
    return xp.lib.stride_tricks.as_strided(buffer[start // size:], like.shape, steps)


def moved(xp: Any, array: np.ndarray) -> Any:
    """The same view of a copy of its buffer on a GPU; 8-bit floats as bytes."""
    kind = np.uint8 if array.dtype.itemsize == 1 else array.dtype
    return placed(xp, xp.asarray(root(array).view(kind)), array)
