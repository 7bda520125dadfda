"""Products with 1 to 8 rows, at the speed at which the weights can be read.

Launch functions only: the matmul front end has checked devices, shapes, dtypes and overlap. Sums
are f32 in a fixed order. The epilogue is act(alpha A B + bias[n]) + residual[m, n], see
`cuda_src/matmul/epilogue.cuh`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.errors import UnsupportedError
from gpukit.kernels.matmul_helpers import STAGES
from gpukit.kernels.spec import Value
from gpukit.ops.arrays import check_float

MAX_ROWS = 8
_LOAD = 16  # bytes of the widest load
_SHARED = 200 << 10  # bytes of an SM's shared memory to plan with, of 227 KiB; the rest is L1


class Problem(NamedTuple):
    """What the choice of a variant depends on."""

    m: int
    n: int
    k: int
    itemsize: int
    vec: int
    sms: int

    @property
    def steps(self) -> int:
        """Loads of a warp along one row of K."""
        return -(-self.k // (32 * self.vec))


class Plan(NamedTuple):
    """A decided launch, for any arrays that lie like those it was decided for.

    Attributes:
        terms: what the epilogue adds: 1 bias, 2 residual.
        numbers: N, K and the elements from row to row of a, b, out and residual.
    """

    name: str
    tunables: Mapping[str, Value]
    ctas: int
    terms: int
    numbers: tuple[int, ...]

    def bind(self, device: Device) -> Callable[..., None]:
        """The launch: takes `Device.pointer`s of a, b, out, bias, residual (any, where there is
        none), and alpha."""
        kernel = device.compile(kernels.get(self.name), self.tunables)
        enqueue = kernel.bind((self.ctas,), self.block)

        def launch(a: Any, b: Any, out: Any, bias: Any, residual: Any, alpha: float) -> None:
            enqueue(a, b, out, bias, residual, self.terms, *self.numbers, alpha)

        return launch

    @property
    def block(self) -> tuple[int]:
        """Threads per CTA."""
        return (32 * int(self.tunables["warps"]),)


def gemv_nk(device: Device, a: Any, b: Any, out: Any, *, bias: Any = None, residual: Any = None,
            alpha: float = 1.0, act: str = "none",
            tuning: Mapping[str, Value] | None = None) -> None:
    """out = act(alpha a b^T + bias) + residual.

    Args:
        a: [M, K] with M of 1 to 8; K of 0 to 2^31 - 1 runs fastest.
        b: [N, K], a's dtype, K runs fastest.
        out: [M, N], N runs fastest; rows of all three may lie apart.
        bias, residual: [N] without gaps, and [M, N] with N fastest; out's dtype.
        act: one of `gpukit.kernels.matmul_helpers.ACTIVATIONS`.
        tuning: tunables of matmul.gemv_nk to use instead of the chosen ones.
    """
    plan = plan_nk(device, a, b, out, bias=bias, residual=residual, act=act, tuning=tuning)
    _run(plan, device, a, b, out, bias, residual, alpha)


def gemv_kn(device: Device, a: Any, b: Any, out: Any, *, bias: Any = None, residual: Any = None,
            alpha: float = 1.0, act: str = "none",
            tuning: Mapping[str, Value] | None = None) -> None:
    """out = act(alpha a b + bias) + residual.

    Args:
        b: [K, N], a's dtype, N runs fastest.
        others: as for `gemv_nk`, tunables of matmul.gemv_kn.

    Raises:
        UnsupportedError: K is too long for shared memory: beyond 65536 for 8 rows of 16 bits, half
            of that for float32, more for fewer rows.
    """
    plan = plan_kn(device, a, b, out, bias=bias, residual=residual, act=act, tuning=tuning)
    _run(plan, device, a, b, out, bias, residual, alpha)


def plan_nk(device: Device, a: Any, b: Any, out: Any, *, bias: Any = None, residual: Any = None,
            act: str = "none", tuning: Mapping[str, Value] | None = None) -> Plan:
    """What `gemv_nk` would launch."""
    (m, k), n = a.shape, b.shape[0]
    problem = Problem(m, n, k, a.dtype.itemsize, _common(device, k, a, b),
                      device.properties.sm_count)
    chosen = {**tune_nk(problem), **(tuning or {})}
    if tuning and "stage" not in tuning:
        chosen["stage"] = stage_nk(problem, chosen)
    ctas = min(-(-n // int(chosen["rows"])), problem.sms * int(chosen["blocks"]))
    chosen |= {**_types(a, out, act), "m": m, "vec": problem.vec}
    return _plan("matmul.gemv_nk", chosen, ctas, (a, b, out, bias, residual), (n, k))


def plan_kn(device: Device, a: Any, b: Any, out: Any, *, bias: Any = None, residual: Any = None,
            act: str = "none", tuning: Mapping[str, Value] | None = None) -> Plan:
    """What `gemv_kn` would launch.

    Raises:
        UnsupportedError: as `gemv_kn`.
    """
    (m, k), n = a.shape, b.shape[1]
    problem = Problem(m, n, k, a.dtype.itemsize, _common(device, n, b),
                      device.properties.sm_count)
    chosen = {**tune_kn(problem), **(tuning or {})}
    if tuning and "stage" not in tuning:
        chosen["stage"] = stage_kn(problem, chosen)
    ctas = ctas_kn(problem, chosen)
    chosen |= {**_types(a, out, act), "m": m, "vec": problem.vec, "xvec": _common(device, 0, a)}
    return _plan("matmul.gemv_kn", chosen, ctas, (a, b, out, bias, residual), (n, k))


def _plan(name: str, tunables: Mapping[str, Value], ctas: int, operands: tuple[Any, ...],
          sizes: tuple[int, int]) -> Plan:
    a, b, out, bias, residual = operands
    terms = (bias is not None) + 2 * (residual is not None)
    rows = [array.strides[0] // array.dtype.itemsize
            for array in (a, b, out, out if residual is None else residual)]
    return Plan(name, tunables, ctas, terms, (*sizes, *rows))


def _run(plan: Plan, device: Device, a: Any, b: Any, out: Any, bias: Any, residual: Any,
         alpha: float) -> None:
    bias, residual = (out if term is None else term for term in (bias, residual))  # never null
    device.compile(kernels.get(plan.name), plan.tunables).launch(
        (plan.ctas,), plan.block, (a, b, out, bias, residual, plan.terms, *plan.numbers, alpha))


def _types(a: Any, out: Any, act: str) -> dict[str, Value]:
    return {"dtype": check_float("gemv", "a", a).name,
            "out": check_float("gemv", "out", out).name, "act": act}


def _common(device: Device, length: int, *matrices: Any) -> int:
    """The most elements, 16 bytes at most, whose size divides every row's address and length."""
    itemsize: int = matrices[0].dtype.itemsize
    bits = length * itemsize | _LOAD
    for matrix in matrices:
        bits |= device.phase(matrix) | (matrix.strides[0] if matrix.shape[0] > 1 else 0)
    return low_bit(bits) // itemsize


def low_bit(bits: int) -> int:
    """The largest power of two that divides every number whose bits were joined."""
    return bits & -bits


def tune_nk(p: Problem) -> dict[str, Value]:
    """Tunables of matmul.gemv_nk for a problem: 64 to 128 KB of loads in flight on every SM.

    Rows for every warp if there are enough, else rows for every CTA; its warps read their part of
    x once or twice, and shared memory would be a detour.
    """
    narrow = p.vec * p.itemsize < _LOAD
    if p.n < 16 * p.sms:
        warps = 4 if p.steps <= 4 else 8
        unroll = _power_of_two(-(-p.steps // warps), 4)
        rows = min(8 // unroll, _power_of_two(p.n // p.sms, 4))
        return {"split": "true", "warps": warps, "unroll": unroll, "rows": rows, "stage": 0,
                "blocks": (3 if p.m <= 2 else 2) * 8 // warps}
    loads, most = (32, 16) if narrow else (8, 8 if p.m == 1 else 4)
    unroll = _power_of_two(p.steps, most)
    tunables: dict[str, Value] = {
        "split": "false", "warps": 16, "unroll": unroll, "rows": min(4, loads // unroll),
        "blocks": 2 if p.m <= 2 and not narrow else 1}
    return {**tunables, "stage": stage_nk(p, tunables)}


def stage_nk(p: Problem, tunables: Mapping[str, Value]) -> int:
    """The smallest stage that holds K in whole batches; 0 if none does in the memory there is."""
    step = 32 * p.vec * (int(tunables["warps"]) if tunables["split"] == "true" else 1)
    return _stage(p, p.k, step * int(tunables["unroll"]), int(tunables["blocks"]))


def tune_kn(p: Problem) -> dict[str, Value]:
    """Tunables of matmul.gemv_kn for a problem.

    The widest tiles that make 0.9 CTAs per SM, in the smallest cluster in which they do and whose
    CTAs have their share of x in shared memory.

    Raises:
        UnsupportedError: there is no such cluster.
    """
    shapes = [_tuned_kn(p, cluster, lanes) for cluster in (1, 2, 4, 8) for lanes in (32, 16, 8, 4)]
    fitting = [shape for shape in shapes if shape["stage"]]
    if not fitting:
        raise UnsupportedError(f"gemv_kn: K={p.k} is too long for {p.m} rows of "
                               f"{p.itemsize}-byte elements in shared memory; use another kernel")
    return next((shape for shape in fitting if ctas_kn(p, shape) >= 0.9 * p.sms), fitting[-1])


def ctas_kn(p: Problem, tunables: Mapping[str, Value]) -> int:
    """The grid: a cluster for every tile of columns."""
    return -(-p.n // (int(tunables["lanes"]) * p.vec)) * int(tunables["cluster"])


def _tuned_kn(p: Problem, cluster: int, lanes: int) -> dict[str, Value]:
    warps = 16
    most = 16 if p.vec * p.itemsize < _LOAD else 8 if p.m <= 4 else 4
    unroll = _power_of_two(p.k // cluster // (32 * warps // lanes), most)
    tunables: dict[str, Value] = {"warps": warps, "cluster": cluster, "lanes": lanes,
                                  "unroll": unroll, "blocks": 2 if p.m == 1 else 1}
    return {**tunables, "stage": stage_kn(p, tunables)}


def stage_kn(p: Problem, tunables: Mapping[str, Value]) -> int:
    """The smallest stage that holds a CTA's share of K in whole batches; 0 if none does."""
    cluster, lanes = int(tunables["cluster"]), int(tunables["lanes"])
    share = -(-p.k // cluster // 16) * 16
    return _stage(p, share, 32 * int(tunables["warps"]) // lanes * int(tunables["unroll"]),
                  int(tunables["blocks"]))


def _stage(p: Problem, length: int, batch: int, blocks: int) -> int:
    padded = max(1, -(-length // batch)) * batch
    stage = next((stage for stage in STAGES if stage >= padded), 0)
    return stage if p.m * stage * p.itemsize * blocks <= _SHARED else 0


def _power_of_two(at_least: int, at_most: int) -> int:
    """The smallest power of two that is not below `at_least`, within 1 and `at_most`."""
    return min(at_most, 1 << max(0, at_least - 1).bit_length())
