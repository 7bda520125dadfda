"""Specs of the wgmma demos: kernels that show where the elements of matrices lie."""

from __future__ import annotations

from gpukit.kernels.ceilings import COLUMNS, SUMS
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables, Value

MAJORS = ("k", "mn")
SPANS = (16, 32, 64, 128)  # bytes of a row of the swizzle's pattern; 16: none
#: Shared memory that images may take: the tiles of 64 and of 256 rows, 128 bytes each.
IMAGE_BYTES = (64 + 256) * 128

_DTYPE = Tunable("dtype", tuple(SUMS), "bf16", "element type of A and B")
_ACC = Tunable("acc", ("f32", "f16", "i32"), "f32", "type of the sums")
_N = Tunable("n", COLUMNS, 8, "columns of B and D")
_A = Tunable("a", MAJORS, "k", "which way A runs in memory")
_B = Tunable("b", MAJORS, "k", "which way B runs in memory")
_IMAGES = Param("images", "pointer", "shared memory, byte by byte, one image per CTA")
_BYTES = Param("bytes", "i32", "of an image, a multiple of 16")
_WORDS = Param("out", "pointer", "words of D [CTA][thread]")


def _every_type(**more: Value) -> tuple[dict[str, Value], ...]:
    return tuple({"dtype": dtype, "acc": acc, "n": 16, **more}
                 for dtype, sums in SUMS.items() for acc in sums)


def _image(tunables: Tunables) -> int:
    return IMAGE_BYTES


PROBE = KernelSpec(
    name="wgmma.probe", source="wgmma/probe.cu",
    entry="probe<{dtype}, {acc}, {n}, Major::{a}, Major::{b}>",
    summary="which element lies where: one wgmma on numbered bytes of shared memory",
    archs=("sm_90a",), tunables=(_DTYPE, _ACC, _N, _A, _B),
    params=(_IMAGES, _BYTES, Param("a", "u64", "descriptor, addresses from the image's start"),
            Param("b", "u64", "likewise"), _WORDS),
    shared_bytes=_image,
    variants=(*_every_type(), {}, {"b": "mn"}, {"a": "mn", "b": "mn"}, {"n": 256}),
)
PROBE_REGISTERS = KernelSpec(
    name="wgmma.probe_registers", source="wgmma/probe_registers.cu",
    entry="probe_registers<{dtype}, {acc}, {n}, Major::{b}>",
    summary="the same with A in registers",
    archs=("sm_90a",), tunables=(_DTYPE, _ACC, _N, _B),
    params=(Param("fragments", "pointer", "words of A [image][128][4]"), _IMAGES, _BYTES,
            Param("b", "u64", "descriptor, address from the image's start"), _WORDS),
    shared_bytes=_image,
    variants=(*_every_type(), {}, {"b": "mn"}),
)



def _multiply_shared(tunables: Tunables) -> int:
    """Both tiles, rows of MN-major ones as whole rows of the pattern, each from a new KiB on."""
    span, k = int(tunables["span"]), max(int(tunables["span"]), 32) // 2
    lines = [-(-2 * rows // span) * span for rows in (64, int(tunables["n"]))]
    return sum(-(-line * k // 1024) * 1024 for line in lines)


MULTIPLY = KernelSpec(
    name="wgmma.multiply", source="wgmma/multiply.cu",
    entry="multiply<{dtype}, {n}, {span}, Major::{a}, Major::{b}, {registers}>",
    summary="64 rows times N columns by one warpgroup, every element placed by hand",
    archs=("sm_90a",),
    tunables=(Tunable("dtype", ("bf16", "f16"), "bf16", "element type of A and B"), _N,
              Tunable("span", SPANS, 16, "bytes of a row of the swizzle's pattern, 16 for none"),
              _A, _B, Tunable("registers", ("false", "true"), "false", "A from registers")),
    params=(Param("A", "pointer", "[64, K]"), Param("B", "pointer", "[N, K]"),
            Param("D", "pointer", "f32 [64, N]")),
    shared_bytes=_multiply_shared,
    variants=({}, {"b": "mn"}, {"n": 64, "span": 128, "registers": "true"},
              {"n": 256, "span": 128, "dtype": "f16", "a": "mn", "b": "mn"}),
)

SPECS = (MULTIPLY, PROBE, PROBE_REGISTERS)
