"""A product as kernels see it: sizes, and how each matrix lies in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.kernels.matmul_library import FOUR_BIT, ITEMSIZE
from gpukit.ops.matmul import scaling
from gpukit.ops.matmul.arguments import Call

ALIGN = 16  # bytes: what TMA asks of a tensor's base and of its rows
_MAX_PITCH = 1 << 40


class Operand(NamedTuple):
    """A stack of matrices [rows, K] in memory; b is seen as [N, K].

    Attributes:
        major: contiguous dimension, "k" or "mn"; "" if there is none.
        pitch: bytes from line to line of the contiguous dimension.
        batch: bytes from matrix to matrix.
        tma: whether TMA can address it for the tensor cores as it is.
    """

    major: str
    pitch: int
    batch: int
    tma: bool


@dataclass(frozen=True)
class Problem:
    """What the choice of a kernel depends on.

    Attributes:
        dtype: what is multiplied: "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", or two
            of these if a and b differ: "e4m3_e5m2"; or "e2m1", of which K counts pairs.
        out: type of C.
        a, b: contiguous dimension of either, "k" or "mn"; "" if it has none.
        tma_a, tma_b, tma_c, tma_scale: whether TMA can address the matrices and the factors of A's
            blocks. Where it cannot, A, B and factors are packed.
        extras: whether the epilogue reads memory.
        scales: whether there are factors of rows or columns.
        terms: what `extras` are: "uniform", factors of whole matrices, "scales", also of rows and
            columns, or "all".
        sums: "plain"; for 8-bit operands also "promoted" and "blocks", see `cuda_src`; "blocks32"
            and "blocks16" with factors of blocks of so many elements of K.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "bf16"
    out: str = "bf16"
    a: str = "k"
    b: str = "k"
    tma_a: bool = True
    tma_b: bool = True
    tma_c: bool = True
    tma_scale: bool = True
    act: str = "none"
    extras: bool = False
    scales: bool = False
    sums: str = "plain"
    terms: str = "all"

    @property
    def itemsize(self) -> int:
        """Bytes of an element of A and B."""
        return ITEMSIZE[self.dtype]

    @property
    def flops(self) -> int:
        """Multiplications and additions of a matrix."""
        return 2 * self.m * self.n * self.k * (2 if self.dtype == FOUR_BIT else 1)

    @property
    def out_size(self) -> int:
        """Bytes of an element of C."""
        return dtypes.ALL[self.out].itemsize

    @property
    def majors(self) -> tuple[str, str]:
        """The contiguous dimensions of A and B once what TMA cannot address is packed."""
        return self.a if self.tma_a else "k", self.b if self.tma_b else "k"


class Layout(NamedTuple):
    """A problem's matrices in memory; strides of C and residual in elements. scale_pitch: bytes
    from K block to K block of factors of A's blocks, 0 without them."""

    a: Operand
    b: Operand
    c_row: int
    c_batch: int
    residual_row: int
    residual_batch: int
    scale_pitch: int


def describe(call: Call) -> tuple[Problem, Layout]:
    """The problem of a flat call (a [batch, M, K], b [batch, K, N]), not empty."""
    a, b, out, device = call.a, call.b, call.out, call.device
    batch, m, n = out.shape
    k = a.shape[2]
    layout = Layout(operand(a, device), operand(b.swapaxes(1, 2), device),
                    *steps(out), *steps(call.residual),
                    scaling.pitch(call.scale_a) if call.sums == "blocks" else 0)
    out_type = dtypes.of(out.dtype)
    assert out_type is not None  # checked with the other arguments
    problem = Problem(
        m, n, k, batch, call.dtype, out_type.name, layout.a.major, layout.b.major, layout.a.tma,
        layout.b.tma, _storable(out, device),
        call.sums != "blocks" or scaling.addressable(call.scale_a, device), call.act, call.extras,
        call.scaled, call.sums, call.terms)
    return problem, layout


def operand(matrices: Any, device: Device) -> Operand:
    """How [batch, rows, K] lies in memory, at best so that TMA can address it."""
    ways = [_way(matrices, inner, device) for inner in (2, 1)]
    found = [way for way in ways if way is not None]
    return next((way for way in found if way.tma),
                found[0] if found else Operand("", 0, 0, False))


def _way(matrices: Any, inner: int, device: Device) -> Operand | None:
    """The operand with dimension `inner` as the contiguous one, if it is."""
    size = matrices.dtype.itemsize
    length, lines = matrices.shape[inner], matrices.shape[3 - inner]
    if length > 1 and matrices.strides[inner] != size:
        return None
    row = length * size
    pitch = matrices.strides[3 - inner] if lines > 1 else -(-row // ALIGN) * ALIGN
    batch = matrices.strides[0] if matrices.shape[0] > 1 else pitch * lines
    tma = (row <= pitch < _MAX_PITCH and 0 < batch < _MAX_PITCH
           and not (pitch | batch | device.phase(matrices)) % ALIGN and (inner == 2 or size == 2))
    return Operand("k" if inner == 2 else "mn", pitch, batch, tma)


def steps(matrices: Any) -> tuple[int, int]:
    """Elements from row to row and from matrix to matrix of [batch, M, N]; 0 if there is none."""
    if matrices is None:
        return 0, 0
    size = matrices.dtype.itemsize
    row = matrices.strides[1] if matrices.shape[1] > 1 else -(-matrices.shape[2] * size // 16) * 16
    batch = matrices.strides[0] if matrices.shape[0] > 1 else row * matrices.shape[1]
    return row // size, batch // size


def _storable(out: Any, device: Device) -> bool:
    """Whether TMA can write C, and nothing else: an H200 was seen to write beside rows of two
    bytes, so rows that end within 16 bytes leave by plain stores."""
    size = out.dtype.itemsize
    row, batch = (step * size for step in steps(out))
    width = out.shape[2] * size
    return not (row | batch | width | device.phase(out)) % ALIGN and max(row, batch) < _MAX_PITCH
