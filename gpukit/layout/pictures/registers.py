"""Pictures of matrices in registers: which thread holds an element in which register."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukit.layout import fragments
from gpukit.layout.picture import Cell, Picture, filled, names, whole

#: Bits of an element of each type that tensor cores take or give.
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f32": 32,
        "s32": 32}
_COLOURS = "lane of the warp"


def k_of(dtype: str, bytes_of_k: int = 32) -> int:
    """Columns of K of one instruction."""
    return bytes_of_k * 8 // BITS[dtype]


def check_columns(n: int, dtype: str) -> None:
    """Raise ValueError for an N that wgmma has not: integers know no odd multiple of 8 above 24."""
    if dtype in ("s8", "u8", "s32") and n > 24 and n % 16:
        raise ValueError(f"n={n}: wgmma of integers has 8, 16, 24 and multiples of 16")


def wgmma_d(n: int = 8, dtype: str = "f32") -> Picture:
    """D of wgmma, 64 x N, of a warpgroup."""
    check_columns(n, dtype)
    row, column = fragments.accumulator(64, n)
    return fragment(f"D of wgmma m64n{n}, {dtype}", row, column, ("m", "n"), 32 // BITS[dtype])


def wgmma_a(dtype: str = "bf16") -> Picture:
    """A of wgmma in registers, 64 x 32 bytes of K, of a warpgroup."""
    per = 32 // BITS[dtype]
    row, k = fragments.operand_a(64, k_of(dtype), per)
    return fragment(f"A of wgmma m64k{k_of(dtype)} in registers, {dtype}", row, k, ("m", "k"),
                     per)


def mma_a(dtype: str = "bf16", k: int = 0) -> Picture:
    """A of mma.sync m16n8kK; K is 32 bytes unless given."""
    per, k = 32 // BITS[dtype], k or k_of(dtype)
    row, column = fragments.operand_a(16, k, per)
    return fragment(f"A of mma.sync m16n8k{k}, {dtype}", row, column, ("m", "k"), per)


def mma_b(dtype: str = "bf16", k: int = 0) -> Picture:
    """B of mma.sync m16n8kK, K down."""
    per, k = 32 // BITS[dtype], k or k_of(dtype)
    column, row = fragments.operand_b(k, per)
    return fragment(f"B of mma.sync m16n8k{k}, {dtype}", row, column, ("k", "n"), per)


def mma_c(dtype: str = "f32") -> Picture:
    """C and D of mma.sync m16n8."""
    row, column = fragments.accumulator(16, 8)
    return fragment(f"C and D of mma.sync m16n8, {dtype}", row, column, ("m", "n"),
                     32 // BITS[dtype])


def ldmatrix(count: int = 4, transposed: bool = False) -> Picture:
    """What ldmatrix gives: matrices below each other."""
    matrix, row, column = fragments.ldmatrix(count, transposed)
    name = f"ldmatrix.x{count}{'.trans' if transposed else ''}: matrices of 8 x 8, 16-bit elements"
    return fragment(name, matrix * 8 + row, column, ("8 matrix + row", "column"), 2)


def fragment(title: str, row: Any, column: Any, axes: tuple[str, str], per: int) -> Picture:
    """Rows and columns [thread, value] of elements, ``per`` to a register."""
    thread, value = np.indices(row.shape)
    placed = {(i, j): _held(t, v, per, {axes[0]: i, axes[1]: j})
              for i, j, t, v in whole(row, column, thread, value)}
    shape = int(row.max()) + 1, int(column.max()) + 1
    what = "thread and register" + (", element of the register" if per > 1 else "")
    return Picture(title, axes[0], axes[1], names(shape[0]), names(shape[1]),
                   filled(shape, placed), _COLOURS, (f"cells: {what}",))


def _held(thread: int, value: int, per: int, place: dict[str, int]) -> Cell:
    register, element = divmod(value, per)
    text = f"T{thread} r{register}" + (f".{element}" if per > 1 else "")
    facts = {**place, "thread": thread, "warp": thread // 32, "lane": thread % 32,
             "register": register, "element": element}
    return Cell(text, thread % 32, facts)
