"""One matmul case on a GPU: operands in the asked layout, the launch, peers and the check."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import gpukit
from gpukit import dtypes
from gpukit.bench.families import buffers, matmul_scales
from gpukit.bench.families.buffers import Launch
from gpukit.bench.families.matmul_kernels import argument
from gpukit.bench.families.matmul_peers import maker
from gpukit.bench.families.matmul_problem import Problem
from gpukit.bench.families.matmul_types import KINDS, Kind, normal, wide
from gpukit.bench.families.tuning import Contest
from gpukit.bench.model import Case, CheckResult
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels import KernelSpec
from gpukit.measure import Work
from gpukit.ops.matmul import choose
from gpukit.ops.matmul.explain import problem_of
from gpukit.reference import matmul as reference
from gpukit.reference.tolerance import Array, Bound

# Rows and columns of C that are compared with float64: where they cross, enough to meet every
# position within a tile, most tiles and all four edges.
_CHECKED_ROWS, _CHECKED_COLUMNS = 96, 2048


class PreparedMatmul:
    """See `gpukit.bench.model.Prepared`. Normal values, A scaled by 1/sqrt(K); in 8 bits the
    scales, if there are any, do that.

    ``spec`` is the kernel to run; without one `gpukit.matmul` chooses.
    """

    def __init__(self, case: Case, spec: KernelSpec | None, device: Any,
                 peers: tuple[str, ...]) -> None:
        self.kind, self.device = KINDS[case.dtype], device
        m, n, k = shape = (case.shape["m"], case.shape["n"], case.shape["k"])
        mode = str(case.params.get("scales", "none"))
        self.fast = case.params.get("accumulate") == "fast"
        self.out_dtype = dtypes.parse(str(case.params["out"]))
        self.footprint = ((m * k + k * n) * self.kind.stored.itemsize
                          + m * n * self.out_dtype.itemsize + matmul_scales.nbytes(mode, shape))
        self.bytes_moved, self.flops = self.footprint, 2 * m * n * k
        slots = buffers.slots_for(case.l2, self.footprint, device, 4 * max(m * k, k * n))
        layout = str(case.params["layout"])
        self.a = _operands(device, (m, k), k**-0.5, self.kind, layout[0] == "t", slots, 0)
        self.b = _operands(device, (k, n), 1.0, self.kind, layout[1] == "t", slots, 1)
        self.scales = matmul_scales.random(mode, shape, device, slots)
        self.out = [device.empty((m, n), self.out_dtype.numpy) for _ in range(slots)]
        self._chosen = (_sample(m, _CHECKED_ROWS), _sample(n, _CHECKED_COLUMNS))
        self._want = {slot: self._expected(slot) for slot in {0, slots - 1}}
        self.launch = self._told(spec)
        self.work = Work(case.kernel, self._ours(spec), slots)
        if peers:
            self.work.launch(0)  # what ours refuses needs no peers
        makers = {name: partial(self._peer, name, case) for name in peers}
        self.peers, self.notes = buffers.peer_works(makers, slots, device)

    def _told(self, spec: KernelSpec | None) -> dict[str, str]:
        """Which kernel it is: the one asked for, or how the library's choice is configured."""
        if spec:
            return {"kernel": spec.name}
        try:
            problem = problem_of(self.a[0], self.b[0], self.out[0], **self._words(0))
        except ArgumentError as refusal:
            raise UnsupportedError(str(refusal)) from refusal
        return {"config": str(choose(problem, self.device.properties))}

    def _words(self, slot: int) -> dict[str, Any]:
        """The arguments of `gpukit.matmul` besides a, b and out."""
        return {**self.kind.words(self.fast), **self.scales[slot].words}

    def _ours(self, spec: KernelSpec | None) -> Launch:
        kernel: dict[str, Any] = {"kernel": argument(spec)} if spec else {}
        words = [{**self._words(slot), **kernel} for slot in range(len(self.out))]

        def launch(slot: int) -> None:
            try:
                gpukit.matmul(self.a[slot], self.b[slot], out=self.out[slot], **words[slot])
            except ArgumentError as refusal:  # a rung that does not take such operands
                raise UnsupportedError(str(refusal)) from refusal

        return launch

    def _peer(self, name: str, case: Case) -> Launch:
        """The peer's launch, once its result has been found right."""
        contest = Contest(f"{name} of {case.shape} {case.params} {case.dtype}", self.device,
                          len(self.out), case.l2, case.method, self._verdict)
        m, n, k = (case.shape[axis] for axis in "mnk")
        layout = str(case.params["layout"])
        problem = Problem((m, n, k), case.dtype, self.out_dtype.name, layout,
                          self.a, self.b, self.out, contest, self.scales, self.fast)
        launch = maker(name)(problem)
        if wrong := self._verdict(launch):
            raise UnsupportedError(wrong)
        return launch

    def _verdict(self, launch: Launch) -> str:
        """What is wrong with a peer's result in the first buffer set; nothing: ""."""
        buffers.poison(self.out[0])
        launch(0)
        result = self.check(0)
        return "" if result.ok else f"its result is wrong: {result.error:.3g} x the tolerance"

    def poison(self) -> None:
        """Outputs of every buffer set hold a NaN no instruction makes."""
        for out in self.out:
            buffers.poison(out)

    def _expected(self, slot: int) -> tuple[Array, Bound]:
        """What the chosen elements must become, from operands that no launch has touched yet."""
        rows, columns = self._chosen
        stored = self.kind.stored
        a = self._picked(self.a[slot], stored, rows, None)
        b = self._picked(self.b[slot], stored, None, columns)
        a, b, epilogue = self.scales[slot].applied(self.device, a, b, rows, columns)
        multiply = self.kind.multiply(self.fast)
        return (reference.oracle(a, b, epilogue), reference.bound(
            a, b, self.out_dtype, epilogue=epilogue, multiply=multiply))

    def _picked(self, matrix: Any, stored: dtypes.DType, rows: Any, columns: Any) -> Array:
        """Rows and columns (None: all) of a matrix as float64 on the host.

        Gathered as words, which every dtype supports.
        """
        xp, picked = self.device.xp, buffers.words(matrix)
        if rows is not None:
            picked = picked[xp.asarray(rows)]
        if columns is not None:
            picked = picked[:, xp.asarray(columns)]
        return np.asarray(self.device.to_host(wide(xp, picked, stored)), np.float64)

    def check(self, slot: int = 0) -> CheckResult:
        """A sample of elements against float64, and no poison left anywhere."""
        out, (want, bound) = self.out[slot], self._want[slot]
        got = self._picked(out, self.out_dtype, *self._chosen)
        return buffers.judge(got, want, bound, complete=not buffers.poisoned(out))

    def close(self) -> None:
        """Let the buffers go."""
        self.a, self.b, self.out, self.scales, self.peers = [], [], [], [], ()
        del self.work
        self.device.release_memory()


def _operands(device: Any, shape: tuple[int, int], factor: float, kind: Kind, transposed: bool,
              slots: int, which: int) -> list[Any]:
    """One random matrix per slot, no two alike; stored transposed if asked.

    Those of A and B (`which`) differ also where both are square: sums of squares lose far more
    than others do where the tensor cores add up alone.
    """
    rng = device.xp.random.default_rng(2 * (shape[0] * 31 + shape[1]) + which)
    stored = shape[::-1] if transposed else shape
    matrices = [normal(device.xp, rng, stored, factor, kind, device.emulated)
                for _ in range(slots)]
    return [matrix.T if transposed else matrix for matrix in matrices]


def _sample(count: int, most: int) -> Any:
    """All indices below ``count``, or both ends and a random sample of about ``most``."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.concatenate([
        [0, count - 1], np.random.default_rng(count).integers(0, count, most - 2)]))
