"""What `gpukit demo wgmma` shows: one instruction and how its operands lie."""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.errors import ArgumentError
from gpukit.kernels.ceilings import SUMS

_SWIZZLES = ("none", "32", "64", "128")
_MOST_STEPS = 8
_ITEMSIZE = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "s8": 1}


@dataclass(frozen=True)
class Case:
    """One wgmma.

    ``swizzle`` is "none", "32", "64" or "128" (bytes); a swizzled tile is as wide as its pattern
    and ``step`` says which 32 bytes of K of it are multiplied. ``a`` is "k", "mn" or "registers",
    ``b`` is "k" or "mn".
    """

    name: str
    dtype: str = "bf16"
    n: int = 8
    swizzle: str = "none"
    a: str = "k"
    b: str = "k"
    acc: str = "f32"
    step: int = 0

    def __post_init__(self) -> None:
        """Raise ArgumentError for what wgmma has not; N is the kernel's to check."""
        _one_of("dtype", self.dtype, tuple(_ITEMSIZE))
        _one_of("swizzle", self.swizzle, _SWIZZLES)
        _one_of("acc", self.acc, SUMS[self.dtype])
        if "mn" in (self.a, self.b) and self.itemsize != 2:
            raise ArgumentError(f"a, b: only 16-bit types may be 'mn', not {self.dtype}")
        if self.acc == "f16" and self.n % 16:
            raise ArgumentError(f"n={self.n}: with f16 sums, multiples of 16")
        bounded = self.swizzle != "none" and "k" in (self.a, self.b)  # by a row of the pattern
        most = int(self.swizzle) // 32 if bounded else _MOST_STEPS
        if self.step not in range(most):
            raise ArgumentError(f"step={self.step!r}: from 0 to {most - 1} with this swizzle")

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _ITEMSIZE[self.dtype]

    @property
    def k(self) -> int:
        """Columns of A that one instruction multiplies: 32 bytes."""
        return 32 // self.itemsize

    @property
    def first(self) -> int:
        """The column of the tile at which the instruction begins."""
        return self.step * self.k

    @property
    def shape(self) -> str:
        """As the instruction spells it."""
        return f"m64n{self.n}k{self.k}"

    def width(self, major: str) -> int:
        """Columns of K in a tile: of one instruction, or what a swizzled row holds."""
        if self.swizzle == "none" or major != "k":
            return self.k * (self.step + 1)
        return max(self.k, int(self.swizzle) // self.itemsize)


def _one_of(name: str, given: str, accepted: tuple[str, ...]) -> None:
    if given not in accepted:
        raise ArgumentError(f"{name}={given!r} is not one of {', '.join(accepted)}")


CASES = (
    Case("plain"),
    Case("plain-b-mn", b="mn"),
    Case("plain-a-mn", a="mn"),
    Case("registers", a="registers"),
    Case("registers-b-mn", a="registers", b="mn"),
    *(Case(f"n64-{s}", n=64, swizzle=s) for s in ("32", "64", "128")),
    *(Case(f"n64-{s}-mn", n=64, swizzle=s, a="mn", b="mn") for s in ("32", "64", "128")),
    *(Case(f"n256-{s}", n=256, swizzle=s) for s in ("32", "64", "128")),
    Case("n64-64-step", n=64, swizzle="64", step=1),
    Case("n64-128-step", n=64, swizzle="128", step=3),
    Case("n64-128-mn-step", n=64, swizzle="128", a="mn", b="mn", step=1),
    Case("tf32", dtype="tf32", n=64, swizzle="128"),
    Case("tf32-registers", dtype="tf32", n=64, swizzle="128", a="registers"),
    Case("fp8", dtype="e4m3", n=64, swizzle="128"),
    Case("fp8-registers", dtype="e4m3", n=64, swizzle="128", a="registers"),
    Case("int8", dtype="s8", n=64, swizzle="128", acc="i32"),
    Case("int8-registers", dtype="s8", n=64, swizzle="128", a="registers", acc="i32"),
    Case("f16-sums", dtype="f16", n=64, swizzle="128", acc="f16"),
)


def chosen(name: str) -> tuple[Case, ...]:
    """The case of this name, or all of them for "all"; an unknown one is an error with the list."""
    found = tuple(case for case in CASES if name in ("all", case.name))
    if not found:
        raise ArgumentError(f"case {name!r} is unknown; known: all, "
                            f"{', '.join(case.name for case in CASES)}")
    return found
