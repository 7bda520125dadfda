"""Specs of the sampling family: from logits to tokens."""

from __future__ import annotations

from gpukit.kernels import sampling_draw, sampling_edit
from gpukit.kernels.spec import KernelSpec, Param, Tunable, Tunables

_ARCHS = ("sm_90", "sm_100")
_FLOATS = ("f32", "f16", "bf16")
# KiB of a row that one CTA keeps; the sizes let 8, 4, 3, 2 and 1 CTAs share an SM.
STAGES = (1, 16, 40, 64, 100, 192)
CLUSTERS = (1, 2, 4, 8)
THREADS = (128, 256, 512, 1024)
CANDIDATES = (512, 2048)
LIST = 2048  # tokens that the list of a streamed row holds, as in `stream_shared.cuh`

_DTYPE = Tunable("dtype", _FLOATS, "f32", "type of the logits")
_VEC = Tunable("vec", (1, 2, 4, 8), 4, "logits per memory access, 16 bytes at most")
_THREADS = Tunable("threads", THREADS, 256, "threads per CTA")
_CLUSTER = Tunable("cluster", CLUSTERS, 8, "CTAs that share a row")
_STAGE = Tunable("stage", STAGES, 64, "KiB of a row that a CTA keeps in shared memory")
_BLOCKS = Tunable("blocks", (1, 2, 3, 4), 1, "CTAs an SM should hold at least")


def _row_bytes(t: Tunables) -> int:
    """`SharedRow` of `cuda_src/sampling/shared_row.cuh`, rounded up, and the row."""
    cluster, threads, candidates = int(t["cluster"]), int(t["threads"]), int(t["candidates"])
    groups = min(threads, candidates // cluster)
    lists = 4 * cluster * groups + 12 * candidates
    sums = 8 * 6 * (threads // 32) + 8 * 6 * cluster + 4 * cluster + 16
    return 1024 * int(t["stage"]) + -(-(lists + sums) // 16) * 16


def _stream_bytes(t: Tunables) -> int:
    """`StreamShared` of `cuda_src/sampling/stream_row.cuh`, or a little more."""
    blocks, warps = int(t["most"]), int(t["threads"]) // 32
    stages = warps * 1024 * (4 if t["dtype"] == "f32" else 2)
    late = 8 * LIST + max(8 * LIST, 2 * LIST + 8 * blocks + 16 * warps + 10 * 1024 + 96)
    sketch = 4 * 1024
    board = held_bytes(t) if t.get("held") else 0
    return 4 * 32 * blocks + 8 * blocks + sketch + max(stages, late) + 40 * warps + 480 + board


def held_bytes(t: Tunables) -> int:
    """`HeldBoard` of `cuda_src/sampling/stream_held.cuh`, rounded up."""
    return 51 * 1024 + 16 * int(t["most"]) + 12 * int(t["threads"])


ARGMAX = KernelSpec(
    name="sampling.argmax",
    source="sampling/argmax.cu",
    entry="argmax<{dtype}, {vec}, {unroll}, {threads}, {cluster}>",
    summary="the index of each row's maximum, the lowest of equals",
    archs=_ARCHS,
    tunables=(_DTYPE, _VEC, _THREADS, _CLUSTER,
              Tunable("unroll", (1, 2, 4, 8), 4, "loads in flight per thread")),
    params=(Param("logits", "pointer", "[B, V]"), Param("ids", "pointer", "[B] i64"),
            Param("pitch", "i64", "elements from row to row"), Param("V", "i32", "tokens")),
    variants=({}, {"dtype": "bf16", "vec": 8}, {"dtype": "f16", "vec": 1, "cluster": 1},
              {"threads": 512, "unroll": 8, "cluster": 4}, {"cluster": 2, "threads": 512}),
    requires=("unit stride along V", "vec divides the row pitch; rows are aligned to vec elements"),
)

def _warps_bytes(t: Tunables) -> int:
    size = 4 if t["dtype"] == "f32" else 2
    return 32 * size * int(t["threads"]) * int(t["stages"]) * int(t["per"])


SOFTMAX = KernelSpec(
    name="sampling.softmax",
    source="sampling/softmax.cu",
    entry="softmax<{dtype}, {out}, {vec}, {out_vec}, {threads}, {cluster}, {stages}, {blocks}, "
          "{per}, {keep}>",
    summary="softmax of each row at its temperature, one read and one write",
    archs=_ARCHS,
    tunables=(_DTYPE, Tunable("out", _FLOATS, "f32", "type of the probabilities"), _VEC,
              Tunable("out_vec", (1, 2, 4, 8), 4, "probabilities per memory access"),
              Tunable("threads", tuple(range(64, 1025, 64)), 512,
                      "threads per CTA: a warp per block of 1024 of its part of the row, or two"),
              Tunable("cluster", tuple(range(1, 9)), 8, "CTAs that share a row"),
              Tunable("stages", (0, 1, 2), 0, "rows to come, by bulk copies"), _BLOCKS,
              Tunable("per", (1, 2), 1, "blocks of 1024 per warp"),
              Tunable("keep", (0, 1), 1, "1: L2 keeps what is read longer than what is written")),
    params=(Param("logits", "pointer", "[B, V]"),
            Param("temperature", "pointer", "[B] f32, or null: temperature0"),
            Param("out", "pointer", "[B, V]"), Param("pitch", "i64", "elements from row to row"),
            Param("out_pitch", "i64", "elements from row to row of out"),
            Param("V", "i32", "tokens"), Param("temperature0", "f32", "for all rows"),
            Param("rows", "i64", "B, of which a cluster takes every n-th")),
    shared_bytes=_warps_bytes,
    variants=({}, {"blocks": 2}, {"blocks": 2, "stages": 1}, {"threads": 1024, "stages": 1},
              {"threads": 576, "cluster": 7, "blocks": 2, "stages": 1},
              {"dtype": "bf16", "vec": 8, "out": "bf16", "out_vec": 8, "stages": 1},
              {"dtype": "f16", "vec": 1, "out_vec": 1, "cluster": 1, "threads": 128},
              {"threads": 320, "per": 2, "blocks": 2, "stages": 1}),
    requires=("unit stride along V", "V is at most 32 threads cluster per",
              "vec and out_vec divide the row pitches; rows are aligned to them",
              "vec is 16 bytes unless stages is 0"),
)

_PER_ROW = (
    Param("temperature", "pointer", "[B] f32"), Param("top_k", "pointer", "[B] i32"),
    Param("top_p", "pointer", "[B] f32"), Param("min_p", "pointer", "[B] f32"),
    Param("seed", "pointer", "[B] u64"), Param("position", "pointer", "[B] i64"),
)
_PENALTIES = (
    Param("offsets", "pointer", "[B + 1] i32: each row's entries of the CSR list, or null"),
    Param("tokens", "pointer", "i32 tokens of the list, -1 is skipped"),
    Param("counts", "pointer", "i32 occurrences in the output, 0: in the prompt only"),
    Param("frequency", "pointer", "[B] f32"), Param("presence", "pointer", "[B] f32"),
    Param("repetition", "pointer", "[B] f32"),
)
_FOR_ALL = (
    Param("temperature0", "f32", "for all rows where the array is null, as all that follow"),
    Param("top_k0", "i32", "0 or less: off"), Param("top_p0", "f32", "1: off"),
    Param("min_p0", "f32", "0: off"), Param("seed0", "u64", ""), Param("position0", "i64", ""),
    Param("frequency0", "f32", ""), Param("presence0", "f32", ""), Param("repetition0", "f32", ""),
)

_RESULTS = (
    Param("ids", "pointer", "[B] i64: the tokens; streaming, or null"),
    Param("status", "pointer", "[B] u8: bit 0 usable, bit 1 NaN seen; or null"),
    Param("distribution", "pointer", "[B, V] f32: what was drawn from; or null"),
    Param("pitch", "i64", "elements from row to row"),
    Param("mask_pitch", "i64", "words from row to row of the bitmask"),
    Param("out_pitch", "i64", "elements from row to row of the distribution"),
    Param("V", "i32", "tokens"),
    Param("joint", "i32", "1: top-p of the whole row's mass, 0: of what the others keep"),
)

SAMPLE = KernelSpec(
    name="sampling.sample",
    source="sampling/sample.cu",
    entry="sample<{dtype}, {vec}, {threads}, {cluster}, {candidates}, {stage}, {blocks}>",
    summary="bitmask, penalties, temperature, min-p, top-k, top-p and the draw in one launch",
    archs=_ARCHS,
    tunables=(_DTYPE, _VEC, _THREADS, _CLUSTER, _STAGE, _BLOCKS,
              Tunable("candidates", CANDIDATES, 512, "tokens that the list of a small k can hold")),
    params=(
        Param("logits", "pointer", "[B, V]"), *_PER_ROW,
        Param("bitmask", "pointer", "[B, >= V/32] u32, 1: allowed; or null"), *_PENALTIES,
        *_RESULTS, *_FOR_ALL),
    shared_bytes=_row_bytes,
    variants=({"blocks": 3}, {"dtype": "bf16", "vec": 8, "blocks": 3},
              {"blocks": 2, "candidates": 2048, "cluster": 4, "dtype": "bf16", "vec": 1},
              {"dtype": "f16", "vec": 1, "cluster": 1, "stage": 16, "candidates": 2048},
              {"blocks": 2, "stage": 100}, {"threads": 512, "stage": 192},
              {"threads": 128, "cluster": 2, "blocks": 3}),
    requires=("unit stride along V", "a CTA's part of a row fits stage",
              "vec divides the row pitch; rows are aligned to vec elements"),
)

STREAM = KernelSpec(
    name="sampling.stream",
    source="sampling/stream.cu",
    entry="stream<{dtype}, {vec}, {threads}, {cluster}, {most}, {blocks}, {held}>",
    summary="bitmask, temperature, min-p, top-k, top-p and the draw, each row streamed once",
    archs=_ARCHS,
    tunables=(_DTYPE, _VEC, Tunable("threads", THREADS[1:], 256, "threads per CTA"), _CLUSTER,
              Tunable("most", (128, 256), 128, "blocks of a row that CTA 0 has room for"),
              _BLOCKS, Tunable("held", (0, 1), 0, "1: shared memory holds rows for top-p alone")),
    params=(
        Param("logits", "pointer", "[B, V]"), *_PER_ROW,
        Param("bitmask", "pointer", "[B, >= V/32] u32, 1: allowed; or null"), *_RESULTS,
        *_FOR_ALL[:6]),
    shared_bytes=_stream_bytes,
    variants=({"threads": 512}, {"threads": 512, "held": 1}, {"blocks": 3, "cluster": 1},
              {"cluster": 2, "threads": 512, "held": 1, "dtype": "bf16", "vec": 1},
              {"cluster": 2, "threads": 512},
              {"dtype": "bf16", "vec": 8, "blocks": 3, "cluster": 1},
              {"dtype": "f16", "vec": 1, "cluster": 1, "threads": 512},
              {"most": 256, "blocks": 3, "cluster": 1}, {"vec": 1, "most": 256, "threads": 512}),
    requires=("unit stride along V", "V is at most 1024 most, or most is 256",
              "vec divides the row pitch; rows are aligned to vec elements"),
)

TOP_K = KernelSpec(
    name="sampling.top_k",
    source="sampling/top_k.cu",
    entry="top_k<{dtype}, {vec}, {threads}, {cluster}, {most}, {blocks}>",
    summary="the k largest logits of each row in order, their tokens, the log of the sum",
    archs=_ARCHS,
    tunables=STREAM.tunables[:-1],
    params=(Param("logits", "pointer", "[B, V]"), Param("values", "pointer", "[B, width] f32"),
            Param("tokens", "pointer", "[B, width] i32"),
            Param("log_sum", "pointer", "[B] f32: log of the sum of exponentials, or null"),
            Param("per_row", "pointer", "[B] i32: k of each row, at most width; or null"),
            Param("pitch", "i64", "elements from row to row"), Param("V", "i32", "tokens"),
            Param("width", "i32", "k, or its most")),
    shared_bytes=_stream_bytes,
    variants=tuple(v for v in STREAM.variants if "held" not in v),
    requires=(*STREAM.requires, "width is at most 1024"),
)

UNIFORM = KernelSpec(
    name="sampling.uniform",
    source="sampling/uniform.cu",
    entry="keyed_uniform",
    summary="one uniform f32 in [0, 1) per u64 seed: Philox4x32-10",
    archs=("sm_75", "sm_80", "sm_90", "sm_100"),
    tunables=(),
    params=(Param("seed", "pointer", "[n] u64"), Param("position", "pointer", "[n] i64 or null"),
            Param("out", "pointer", "[n] f32"), Param("n", "i64", "numbers"),
            Param("position0", "i64", "for all where position is null")),
)

SPECS = (UNIFORM, ARGMAX, SOFTMAX, SAMPLE, STREAM, TOP_K, *sampling_draw.DRAWS,
         *sampling_edit.EDITS)
