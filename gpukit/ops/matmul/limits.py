"""What a configuration can and cannot do: the rules of the kernels, checked on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpukit.devices.protocol import Properties
from gpukit.kernels import matmul_library as specs
from gpukit.kernels.matmul import SGEMM, SGEMM_BK
from gpukit.kernels.spec import Value
from gpukit.ops.matmul import sm100_limits
from gpukit.ops.matmul.configs import Config, Gemm, Ladder, Narrow, Sgemm, Tcgen05, Vector
from gpukit.ops.matmul.problem import Problem
from gpukit.ops.matmul.sm100_limits import known

TENSOR_TYPES = ("bf16", "f16", "tf32", *specs.EIGHT_BIT)
_EXACT = ("f32", "tf32", "f16", "bf16")  # what kernels without such tensor cores multiply exactly
_MAX_GRID_YZ = 65535
_MAX_TILES = 2**31 - 1
VECTOR_ROWS = 8
_VECTOR_K = 2**31 - 2**14  # counted in 32 bits, up to a batch past the end
_VECTOR_SHARED = 400_000  # bytes of A that eight CTAs share out among them, rounded up to half

# Accumulators per thread that leave registers for the rest, found by compiling.
_MAX_ACCUMULATORS = {"rows": 200, "columns": 200, "pingpong": 208}
_MAX_DIRECT = 192  # where C leaves by plain stores
_MAX_PROMOTED = 216  # with those of 128 bytes of K
_MAX_BLOCKWISE = 208  # and with the factors of rows
_MAX_WITH_EXTRAS = 128
_MAX_WITH_SCALES = 144
_MAX_BLOCKS_WITH_EXTRAS = {"rows": 104, "columns": 88, "pingpong": 104}  # two blocks of 64 rows

# Registers of `narrow` for each column of a tile, and for the rest, found in the same way.
_NARROW_REGISTERS = {"plain": (0.5, 34), "promoted": (1.0, 18), "blocks": (1.25, 18)}
_SM_REGISTERS = 1 << 16


def refusal(config: Config, problem: Problem, properties: Properties) -> str:
    """Why a problem cannot be solved with a configuration; "" if it can."""
    reasons = (_gemm(config, problem, properties) if isinstance(config, Gemm)
               else _narrow(config, problem, properties) if isinstance(config, Narrow)
               else sm100_limits.refusal(config, problem, properties)
               if isinstance(config, Tcgen05)
               else _vector(problem, properties) if isinstance(config, Vector)
               else _sgemm(config, problem, properties) if isinstance(config, Sgemm)
               else _ladder(config.rung, problem, properties))
    return next(reasons, "")


def settled(config: Config, problem: Problem, properties: Properties) -> Config:
    """The configuration with as many stages as fit, where it leaves them open."""
    if isinstance(config, Vector | Sgemm | Ladder) or config.stages:
        return config
    if isinstance(config, Tcgen05):
        return sm100_limits.settled(config, problem, properties)
    spec = specs.NARROW if isinstance(config, Narrow) else specs.GEMM
    counts = next(t.choices for t in spec.tunables if t.name == "stages")
    shared = (spec.shared_bytes({**tunables(config, problem), "stages": n}) for n in counts)
    fitting = [int(n) for n, needed in zip(counts, shared, strict=True)
               if needed <= properties.shared_per_cta]
    return replace(config, stages=max(fitting, default=int(counts[0])))


def store(config: Gemm, problem: Problem) -> str:
    """How C leaves: by TMA where it can address C."""
    if config.swap:
        return "columns"
    return "rows" if problem.tma_c else "direct"


def tunables(config: Gemm | Narrow, problem: Problem) -> dict[str, Value]:
    """The template arguments of a configuration's kernel."""
    swapped = isinstance(config, Narrow) or config.swap
    dtype = specs.turned(problem.dtype) if swapped else problem.dtype
    common: dict[str, Value] = {"dtype": dtype, "out": problem.out, "act": problem.act,
                                "sums": problem.sums}
    reads = terms(problem)
    if isinstance(config, Narrow):
        return {**common, "extras": str(reads != "none").lower(), "rows": config.rows,
                "bn": config.bn, "stages": config.stages,
                "split": config.split}
    a, b = majors(config, problem)
    return {**common, "terms": reads, "bm": config.bm, "bn": config.bn, "stages": config.stages,
            "cm": config.cm, "cn": config.cn, "split": config.split, "share": config.share,
            "a_major": a, "b_major": b, "store": store(config, problem)}


def terms(problem: Problem) -> str:
    """What the epilogue of a kernel is compiled to read: factors of whole matrices are in alpha."""
    return "none" if not problem.extras or problem.terms == "uniform" else problem.terms


def majors(config: Gemm, problem: Problem) -> tuple[str, str]:
    """Contiguous dimensions of the operands as the kernel gets them."""
    a, b = problem.majors
    return (b, a) if config.swap else (a, b)


def sizes(config: Gemm, problem: Problem) -> tuple[int, int]:
    """M and N as the kernel gets them."""
    return (problem.n, problem.m) if config.swap else (problem.m, problem.n)


def box_rows(rows: int, parts: int) -> int:
    """Rows of a K-major operand tile in one TMA box: equal parts of up to 256."""
    mine = rows // parts
    return mine // -(-mine // 256)


def cluster_tiles(config: Gemm, problem: Problem) -> tuple[int, int]:
    """Cluster tiles along M and N of the kernel."""
    m, n = sizes(config, problem)
    return -(-m // (config.bm * config.cm)), -(-n // (config.bn * config.cn))


def slice_of(config: Sgemm, problem: Problem) -> int:
    """Elements of K that a CTA sums up: equal slices of whole tiles, the last one shorter."""
    tiles = -(-problem.k // SGEMM_BK)
    return problem.k if config.split == 1 else -(-tiles // config.split) * SGEMM_BK


def sgemm_ctas(config: Sgemm, problem: Problem) -> int:
    """CTAs of a launch."""
    p = problem
    slices = -(-p.k // slice_of(config, p))
    return -(-p.m // config.bm) * -(-p.n // config.bn) * slices * p.batch


def _tensor_cores(problem: Problem, properties: Properties) -> Iterator[str]:
    if properties.capability != (9, 0):
        yield f"it needs sm_90a, this GPU is {properties.arch}"
    if problem.dtype not in TENSOR_TYPES:
        yield f"tensor cores multiply {', '.join(TENSOR_TYPES)}, not {problem.dtype}"
    if problem.sums in ("blocks32", "blocks16"):
        yield "it has no factors of blocks that are bytes"


def _gemm(config: Gemm, problem: Problem, properties: Properties) -> Iterator[str]:
    yield from _tensor_cores(problem, properties)
    yield from known(specs.GEMM, config)
    yield from _tile(config, problem)
    yield from _sharing(config, problem)
    needed = specs.GEMM.shared_bytes(tunables(config, problem))
    if needed > properties.shared_per_cta:
        yield (f"it needs {needed} bytes of shared memory, this GPU has "
               f"{properties.shared_per_cta} per CTA")
    rows, columns = cluster_tiles(config, problem)
    if rows * columns * problem.batch > _MAX_TILES:
        yield f"{rows} x {columns} x {problem.batch} tiles are more than {_MAX_TILES}"
    if config.cluster > properties.sm_count:
        yield f"a cluster of {config.cluster} CTAs is more than the GPU's SMs"
    if config.group < 1:
        yield f"group={config.group} is not positive"


def _tile(config: Gemm, problem: Problem) -> Iterator[str]:
    if config.bm % 64 or config.rows % 64:
        yield "a warpgroup's rows are no multiple of 64"
    if config.columns % 8 or not 8 <= config.columns <= 256:
        yield "a warpgroup's columns are no multiple of 8 from 8 to 256"
    if config.share == "columns" and majors(config, problem)[1] == "mn" and config.columns % 64:
        yield "a warpgroup's columns of an operand that runs along them are no multiple of 64"
    yield from _pieces(config, problem)
    yield from _registers(config, problem)


def _registers(config: Gemm, problem: Problem) -> Iterator[str]:
    blocks = config.rows // 64
    needed, most = blocks * config.columns // 2, _MAX_ACCUMULATORS[config.share]
    if problem.sums == "promoted":
        most = min(most, _MAX_PROMOTED - config.columns // 2)
    if problem.sums == "blocks":
        most = min(most, _MAX_BLOCKWISE - config.columns // 2 - 8 * blocks)
    if store(config, problem) == "direct":
        most = min(most, _MAX_DIRECT)
    if terms(problem) == "scales":
        most = min(most, _MAX_WITH_SCALES)
    if terms(problem) == "all":
        single = blocks == 1 and config.split == 1
        most = min(most, _MAX_WITH_EXTRAS if single else _MAX_BLOCKS_WITH_EXTRAS[config.share])
    if needed > most:
        yield f"{needed} accumulators per thread are more than {most}"


def _pieces(config: Gemm, problem: Problem) -> Iterator[str]:
    """C leaves through pieces of shared memory that must make up a warpgroup's part of a tile."""
    columns, size = config.columns, problem.out_size
    if not config.swap:
        if columns * size % 32:
            yield f"a warpgroup's {columns} columns are no multiple of 32 bytes of C"
    elif size != 2 or not problem.tma_c:
        yield "swap needs a C of 16-bit elements whose rows start at multiples of 16 bytes"
    elif columns > 64 and columns % 64:
        yield f"a warpgroup's {columns} columns of C^T are no multiple of 64"


def _sharing(config: Gemm, problem: Problem) -> Iterator[str]:
    if config.cluster > 8:
        yield f"a cluster of {config.cluster} CTAs is more than 8"
    for name, rows, parts, major in zip(
            ("bm", "bn"), (config.bm, config.bn), (config.cn, config.cm),
            majors(config, problem), strict=True):
        if major == "k" and rows % (8 * parts * -(-rows // parts // 256)):
            yield f"{name}={rows} is not {parts} parts of whole blocks of 8"
        if major == "mn" and -(-rows // 64) % parts:
            yield f"{name}={rows} is not {parts} parts of whole blocks of 64"
    if config.split > 1 and (config.bm != 128 or config.share != "rows"
                             or config.cm * config.cn > 1):
        yield "split goes with bm=128, share=rows and no other cluster"
    if problem.sums == "blocks":
        yield from _blockwise(config)
    if config.split > -(-problem.k * problem.itemsize // specs.ROW):
        yield f"K={problem.k} is too short to be divided"


def _blockwise(config: Gemm) -> Iterator[str]:
    """Factors of blocks are those of rows of A and of 128 columns of C, along all of K."""
    if config.swap or config.split > 1:
        yield "factors of blocks go with neither swap nor split"
    columns = config.columns
    if columns > 128 + (columns & -columns):
        yield f"a warpgroup's {columns} columns touch more than two blocks of 128"


def _narrow(config: Narrow, problem: Problem, properties: Properties) -> Iterator[str]:
    yield from _tensor_cores(problem, properties)
    yield from known(specs.NARROW, config)
    if problem.majors != ("k", "k"):
        yield "both operands must run along K"
    if problem.sums == "blocks" and config.rows % 16:
        yield f"factors of blocks need a multiple of 16 rows, not {config.rows}"
    if config.rows * config.bn // 4 % config.split:
        yield f"split={config.split} does not divide rows bn / 4"
    per_column, rest = _NARROW_REGISTERS[problem.sums]
    needed = int(per_column * config.bn) + rest
    most = _SM_REGISTERS // (-(-specs.narrow_threads(config.rows) // 128) * 128) // 8 * 8
    if needed > most:
        yield f"{needed} registers per thread are more than {most}"
    if -(-problem.m // config.bn) > _MAX_GRID_YZ or problem.batch > _MAX_GRID_YZ:
        yield f"more than {_MAX_GRID_YZ} tiles of rows, or matrices"
    needed = specs.NARROW.shared_bytes(tunables(config, problem))
    if needed > properties.shared_per_cta:
        yield (f"it needs {needed} bytes of shared memory, this GPU has "
               f"{properties.shared_per_cta} per CTA")


def _vector(problem: Problem, properties: Properties) -> Iterator[str]:
    if problem.m > VECTOR_ROWS or problem.batch > 1:
        yield f"it takes one matrix of up to {VECTOR_ROWS} rows"
    if problem.dtype not in _EXACT:
        yield f"it multiplies f32, f16 and bf16, not {problem.dtype}"
    if problem.scales:
        yield "it has no factors of rows or columns"
    if problem.b == "mn" and problem.m * problem.k * problem.itemsize > _VECTOR_SHARED:
        yield f"K={problem.k} is too long for {problem.m} rows in shared memory"
    if problem.k > _VECTOR_K:
        yield f"K={problem.k} is more than {_VECTOR_K}"
    if problem.a != "k" or not problem.b:
        yield "a must run along K, b along K or N"
    if properties.capability < ((8, 0) if problem.b == "k" else (9, 0)):
        yield f"this GPU is {properties.arch}"


def _sgemm(config: Sgemm, problem: Problem, properties: Properties) -> Iterator[str]:
    if problem.dtype not in ("f32", "tf32"):
        yield f"it multiplies f32, not {problem.dtype}"
    yield from known(SGEMM, config)
    if config.bm * config.bn < 64 * 64:
        yield f"a tile of {config.bm} x {config.bn} has too few threads for its copies"
    if not 1 <= config.split * SGEMM_BK <= max(SGEMM_BK, problem.k):
        yield f"split={config.split} is not from 1 to K / {SGEMM_BK}"
    elif (ctas := sgemm_ctas(config, problem)) > _MAX_TILES:
        yield f"{ctas} CTAs are more than {_MAX_TILES}"
    if properties.capability < (8, 0):
        yield f"it needs sm_80, this GPU is {properties.arch}"


def _ladder(rung: str, problem: Problem, properties: Properties) -> Iterator[str]:
    if rung not in ("k1", "sm80.a2", "sm80.a3"):
        yield f"rung={rung} is none of k1, sm80.a2, sm80.a3"
    if problem.dtype not in _EXACT:
        yield f"it multiplies f32, f16 and bf16, not {problem.dtype}"
    if rung != "k1":
        if problem.itemsize != 2:
            yield f"{rung} multiplies f16 and bf16"
        if not (problem.a and problem.b):
            yield f"{rung} needs operands with a contiguous dimension"
        if properties.capability < (8, 0):
            yield f"{rung} needs sm_80, this GPU is {properties.arch}"
