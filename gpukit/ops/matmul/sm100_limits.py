"""What a configuration of Blackwell's kernel can and cannot do, checked on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpukit.devices.protocol import Properties
from gpukit.kernels import matmul_sm100_library as specs
from gpukit.kernels.matmul_library import turned
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.matmul.configs import Config, Tcgen05
from gpukit.ops.matmul.problem import Problem

_SCALED = {"blocks32": "mx", "blocks16": "nv"}  # sums: what the kernel calls their formats
_MAX_TILES = 2**31 - 1


def format_of(problem: Problem, swap: bool) -> str:
    """What the kernel calls A's and B's types."""
    dtype = turned(problem.dtype) if swap else problem.dtype
    return _SCALED.get(problem.sums, "") + dtype


def has_factors(problem: Problem) -> bool:
    """Whether blocks of K have factors that the tensor core multiplies with."""
    return problem.sums in _SCALED


def sizes(config: Tcgen05, problem: Problem) -> tuple[int, int]:
    """M and N as the kernel gets them."""
    return (problem.n, problem.m) if config.swap else (problem.m, problem.n)


def majors(config: Tcgen05, problem: Problem) -> tuple[str, str]:
    """Contiguous dimensions of the operands as the kernel gets them."""
    a, b = problem.majors
    return (b, a) if config.swap else (a, b)


def tunables(config: Tcgen05, problem: Problem) -> dict[str, Value]:
    """The template arguments; slices of K leave sums in f32, which another kernel finishes."""
    a, b = majors(config, problem)
    finish: dict[str, Value] = {"out": problem.out, "act": problem.act,
                                "extras": str(problem.extras).lower()}
    if config.split > 1:
        finish = {"out": "f32", "act": "none", "extras": "false"}
    return {"dtype": format_of(problem, config.swap), "bn": config.bn, "stages": config.stages,
            "ctas": config.ctas, "cluster": config.cluster, "a_major": a, "b_major": b,
            "store": "columns" if config.swap else "rows", **finish}


def settled(config: Tcgen05, problem: Problem, properties: Properties) -> Tcgen05:
    """The configuration with as many stages as fit, where it leaves them open."""
    if config.stages:
        return config
    counts = next(t.choices for t in specs.GEMM.tunables if t.name == "stages")
    fitting = (int(n) for n in counts
               if _shared(replace(config, stages=int(n)), problem) <= properties.shared_per_cta)
    return replace(config, stages=max(fitting, default=int(counts[0])))


def _shared(config: Tcgen05, problem: Problem) -> int:
    return specs.GEMM.shared_bytes(tunables(config, problem))


def steps(problem: Problem) -> int:
    """Of 128 bytes of K."""
    return -(-problem.k * problem.itemsize // specs.ROW)


def depth(config: Tcgen05, problem: Problem) -> int:
    """Steps of a slice of K, the last one shorter."""
    return -(-steps(problem) // config.split)


def slices(config: Tcgen05, problem: Problem) -> int:
    """Slices of K that have steps."""
    return -(-steps(problem) // depth(config, problem))


def cluster_rows(config: Tcgen05, problem: Problem) -> int:
    """Rows of tiles of clusters in C."""
    return -(-sizes(config, problem)[0] // (specs.BM * config.cluster))


def cluster_tiles(config: Tcgen05, problem: Problem) -> int:
    """Tiles of clusters in all: of C, of every matrix, of every slice of K."""
    columns = -(-sizes(config, problem)[1] // config.bn)
    return (cluster_rows(config, problem) * columns * problem.batch
            * slices(config, problem))


def known(spec: KernelSpec, config: Config) -> Iterator[str]:
    """Values that no variant of a kernel has."""
    for tunable in spec.tunables:
        value = getattr(config, tunable.name, tunable.default)
        if value not in tunable.choices:
            yield f"{tunable.name}={value} is none of {', '.join(map(str, tunable.choices))}"


def refusal(config: Tcgen05, problem: Problem, properties: Properties) -> Iterator[str]:
    """Why a problem cannot be solved with a configuration."""
    if properties.capability != (10, 0):
        yield f"it needs sm_100a, this GPU is {properties.arch}"
    if problem.sums == "blocks":
        yield "it has no factors of blocks of 128"
    if (name := format_of(problem, config.swap)) not in specs.FORMATS:
        yield f"tensor cores multiply {', '.join(specs.FORMATS)}, not {name}"
    yield from known(specs.GEMM, config)
    yield from _sharing(config, problem)
    yield from _results(config, problem)
    if not specs.accumulators(name, config.bn):
        yield f"bn={config.bn}: sums and factors are more than Tensor Memory"
    needed = _shared(config, problem)
    if needed > properties.shared_per_cta:
        yield (f"it needs {needed} bytes of shared memory, this GPU has "
               f"{properties.shared_per_cta} per CTA")
    if (tiles := cluster_tiles(config, problem) * config.cluster) > _MAX_TILES:
        yield f"{tiles} tiles are more than {_MAX_TILES}"


def _sharing(config: Tcgen05, problem: Problem) -> Iterator[str]:
    if config.cluster % config.ctas:
        yield f"cluster={config.cluster} is no multiple of ctas={config.ctas}"
    if config.ctas == 2 and config.bn % 32:
        yield f"bn={config.bn} is no multiple of 32, as ctas=2 needs"
    rows, groups = config.bn // config.ctas, max(1, config.cluster // config.ctas)
    if majors(config, problem)[1] == "k":
        if rows % (8 * groups):
            yield f"bn={config.bn} is not {config.cluster} parts of whole blocks of 8"
    elif -(-rows // 64) % groups:
        yield f"bn={config.bn} is not {config.cluster} parts of whole blocks of 64"
    if config.group < 1:
        yield f"group={config.group} is not positive"
    if not 1 <= config.split <= steps(problem):
        yield f"split={config.split} is not from 1 to the {steps(problem)} steps of K"


def _results(config: Tcgen05, problem: Problem) -> Iterator[str]:
    """How sums leave: transposed ones by plain stores, which may go anywhere."""
    if config.swap:
        return
    if config.bn % specs.PIECE_COLUMNS:
        yield f"bn={config.bn} is no multiple of {specs.PIECE_COLUMNS}, as it is without swap"
    if problem.n % 4 if config.split > 1 else not problem.tma_c:
        yield "without swap rows of C (or of sums of slices) start at multiples of 16 bytes"
