"""Specs of the elementwise family: one kernel file per number of inputs, one spec per op."""

from __future__ import annotations

from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

ARCHS = ("sm_75", "sm_80", "sm_90", "sm_100")
UNARY = ("copy", "sqrt", "rsqrt", "log", "sin", "tanh", "exp", "erf", "add_const", "scale")
BINARY = ("add", "axpy")

_FLOATS = ("f32", "f16", "bf16")
# copy moves bits, so its element is named by size alone.
_WORDS = ("u8", "u16", "u32", "u64")
ITEMSIZE = {"f32": 4, "f16": 2, "bf16": 2, "u8": 1, "u16": 2, "u32": 4, "u64": 8}

_MEANING = {
    "copy": "y = x, bit for bit, any element type of 1 to 8 bytes",
    "sqrt": "y = sqrt(x)",
    "rsqrt": "y = 1 / sqrt(x)",
    "log": "y = ln(x)",
    "sin": "y = sin(x), x in radians",
    "tanh": "y = tanh(x)",
    "exp": "y = e^x",
    "erf": "y = erf(x), the Gauss error function",
    "add_const": "y = x + a",
    "scale": "y = a x",
    "add": "z = x + y",
    "axpy": "z = a x + y, fused",
}


def _tunables(op: str) -> tuple[Tunable, ...]:
    types = _WORDS if op == "copy" else _FLOATS
    return (
        Tunable("dtype", types, types[2] if op == "copy" else "f32", "element type"),
        Tunable("vec", (1, 2, 4, 8, 16, 32), 4, "elements per memory access; 16 bytes at most, "
                "32 from sm_100 on"),
        Tunable("unroll", (1, 2, 4, 8), 1, "independent vectors in flight per thread and turn"),
        Tunable("index", ("u32", "u64"), "u32", "type of the loop counter"),
        Tunable("cache", ("normal", "stream"), "normal",
                "cache policy: normal, or evict-first (accesses of up to 16 bytes)"),
        Tunable("loop", ("false", "true"), "true", "whether CTAs walk on after one pass"),
    )


def _params(op: str) -> tuple[Param, ...]:
    inputs: tuple[Param, ...] = (Param("x", "pointer", "input"),)
    if op in BINARY:
        inputs += (Param("y", "pointer", "second input"),)
    return (*inputs, Param("out", "pointer", "output; may be an input"),
            Param("n", "i64", "elements"), Param("a", "f32", "scalar operand, unused by most ops"))


def _variants(op: str) -> tuple[dict[str, int | str], ...]:
    """Per dtype: the widest access in one pass and with both counters, the narrowest, unrolled."""
    variants: list[dict[str, int | str]] = []
    for dtype in _WORDS if op == "copy" else _FLOATS:
        wide = 16 // ITEMSIZE[dtype]
        variants += [{"dtype": dtype, "vec": wide, "loop": "false"},
                     {"dtype": dtype, "vec": wide}, {"dtype": dtype, "vec": wide, "index": "u64"},
                     {"dtype": dtype, "vec": 1},
                     {"dtype": dtype, "vec": wide, "unroll": 4, "cache": "stream"}]
    return tuple(variants)


def _spec(op: str) -> KernelSpec:
    file = "binary" if op in BINARY else "unary"
    functor = "".join(part.capitalize() for part in op.split("_"))
    return KernelSpec(
        name=f"elementwise.{op}",
        source=f"elementwise/{file}.cu",
        entry=f"{file}<ops::{functor}, {{dtype}}, {{vec}}, {{unroll}}, {{index}}, "
              "Cache::{cache}, {loop}>",
        summary=_MEANING[op],
        archs=ARCHS,
        tunables=_tunables(op),
        params=_params(op),
        variants=_variants(op),
        requires=("dense arrays aligned to the access width",
                  "index=u32 counts up to 2^32 vectors, the last step included"),
    )


_STRIDE_COPY = KernelSpec(
    name="elementwise.stride_copy",
    source="elementwise/stride_copy.cu",
    entry="stride_copy<{dtype}, {vec}, {index}>",
    summary="y = x by the textbook's grid-stride loop, to count its instructions",
    archs=ARCHS,
    tunables=tuple(t for t in _tunables("copy") if t.name in ("dtype", "vec", "index")),
    params=(Param("x", "pointer", "input"), Param("out", "pointer", "output"),
            Param("n", "i64", "elements, a multiple of vec")),
    variants=({"vec": 1}, {"vec": 4}, {"vec": 1, "index": "u64"}, {"vec": 4, "index": "u64"}),
    requires=("dense arrays aligned to the access width",
              "index=u32 counts up to 2^32 vectors, the last step included"),
)

SPECS = (*(_spec(op) for op in (*UNARY, *BINARY)), _STRIDE_COPY)


def access_bytes(tunables: Tunables) -> int:
    """Bytes one memory access of a variant moves."""
    return int(tunables["vec"]) * ITEMSIZE[str(tunables["dtype"])]
