"""The kinds of ``tcgen05.mma``: types, shapes and what else each of them takes.

Shapes are those of table 39 of the PTX ISA. (CUTLASS once kept to multiples of 16 for N with
M = 128; the ISA allows those of 8.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpukit.emulator.tcgen05.elements import PACKED_E2M1, PADDED, PLAIN, Element

CTA_M = {1: (64, 128), 2: (128, 256)}
WS_M, WS_N = (32, 64, 128), (64, 128, 256)


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    """``.kind::name``: ``k`` elements of K per instruction.

    ``codes`` maps the codes of an instruction descriptor to the elements of A and B, ``results``
    its code of D (None: D is f32 and has no field). ``vectors`` are the accepted scale vector sizes
    (scales per row and instruction) of block-scaled kinds. ``family`` names the FLOP counter.
    """

    name: str
    k: int
    family: str
    codes: Mapping[int, Element]
    results: Mapping[int, str] | None
    negates: bool = True
    transposes: bool = True
    vectors: tuple[int, ...] = ()

    @property
    def scaled(self) -> bool:
        """Whether A and B come with scale factors."""
        return bool(self.vectors)

    def rows(self, cta_group: int, ws: bool) -> tuple[int, ...]:
        """The accepted M."""
        if ws:
            return WS_M
        return tuple(m for m in CTA_M[cta_group] if not self.scaled or m >= 128)

    def columns(self, cta_group: int, ws: bool, transposed_b: bool) -> tuple[int, ...]:
        """The accepted N."""
        if ws:
            return WS_N
        if self.name == "i8":
            step = 16 * cta_group
            small = (8, 16, 24) if cta_group == 1 else ()
            found = (*small, *range(32, 257, step))
        else:
            step = 8 * cta_group
            found = tuple(range(step, 257, step))
        bytewise = next(iter(self.codes.values())).per_chunk == 16
        if transposed_b and bytewise:  # table 52
            found = tuple(n for n in found if n % (16 * cta_group) == 0)
        return found


_EIGHT_BITS = {0: PLAIN["e4m3"], 1: PLAIN["e5m2"], 3: PADDED["e2m3"], 4: PADDED["e3m2"],
               5: PADDED["e2m1"]}  # fmt: skip
_FLOATS = {0: "f16", 1: "f32"}
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("f16", 16, "f16", {0: PLAIN["f16"], 1: PLAIN["bf16"]}, _FLOATS),
        Kind("tf32", 8, "tf32", {2: PLAIN["tf32"]}, {1: "f32"}),
        Kind("f8f6f4", 32, "f8f6f4", _EIGHT_BITS, _FLOATS),
        Kind("i8", 32, "i8", {0: PLAIN["u8"], 1: PLAIN["s8"]}, {2: "s32"}, negates=False),
        Kind("mxf8f6f4", 32, "mxf8f6f4", _EIGHT_BITS, None, vectors=(1,)),
        Kind("mxf4", 64, "mxf4", {1: PACKED_E2M1}, None, transposes=False, vectors=(2,)),
        Kind("mxf4nvf4", 64, "mxf4nvf4", {1: PACKED_E2M1}, None, transposes=False,
             vectors=(2, 4)),
    )
}  # fmt: skip
