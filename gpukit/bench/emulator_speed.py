"""How fast the emulator is: `python -m gpukit.bench.emulator_speed [--only TEXT] [--out FILE]`.

Times a start (in a fresh process) and launches with all checks on, beside what they are meant to
take. Launches are warm: compiled and decoded before the clock starts. Times are CPU time, which on
an idle machine is what one waits: the emulator runs on one core, and a busy machine has no say.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np

from gpukit import devices, emulator
from gpukit.devices import emulated
from gpukit.errors import MissingDependencyError
from gpukit.ops import matmul_sm100

#: Three folders up from here is the repository; an installed package has no examples.
MATMUL = Path(__file__).resolve().parents[2] / "examples" / "emulator" / "hopper_matmul.cu"
_RATE = 0.15e6  # warp instructions per second that launches without tensor cores are to reach
_PROFILE_LINES = 15

_START = """
import sys, time
begin = time.process_time()
from gpukit import emulator
from gpukit.emulator.nvrtc import compile_ptx
imported = time.process_time()
path = sys.argv[1]
ptx = compile_ptx(open(path).read(), include_dirs=(path.rpartition("/")[0],))
compiled = time.process_time()
emulator.load(ptx)
print(imported - begin, compiled - imported, time.process_time() - compiled)
"""
_NAIVE = r"""extern "C" __global__ void naive(const float* a, const float* b, float* c, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}"""
_TILED = r"""extern "C" __global__ void tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float left[16][64], right[16][64];  // [k][row], [k][column]
  const int t = threadIdx.x, x = t % 16 * 4, y = t / 16 * 4;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < n; k0 += 16) {
    for (int i = t; i < 1024; i += 256) {
      left[i % 16][i / 16] = a[(blockIdx.y * 64 + i / 16) * n + k0 + i % 16];
      right[i / 64][i % 64] = b[(k0 + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; k++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] += left[k][y + i] * right[k][x + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      c[(blockIdx.y * 64 + y + i) * n + blockIdx.x * 64 + x + j] = sum[i][j];
}"""
_COLLATZ = r"""extern "C" __global__ void collatz(int* steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, count = 0;
  if (i >= n) return;
  for (unsigned v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v / 2) count++;
  steps[i] = count;
}"""
_COPY = r"""extern "C" __global__ void copy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}"""


@dataclass(frozen=True)
class Speed:
    """Median CPU ``seconds`` of a task and how many it may take (0: no target).

    ``wall_seconds`` is what passed meanwhile (0: not taken). ``warp_instructions`` is what a launch
    issued, ``target_rate`` how many of them per second it is meant to (0: no target, a wgmma is
    worth thousands of others).
    """

    task: str
    seconds: float
    target: float = 0.0
    warp_instructions: int = 0
    target_rate: float = 0.0
    wall_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Warp instructions per second."""
        return self.warp_instructions / self.seconds

    @property
    def missed(self) -> bool:
        """Whether it took too long."""
        return 0 < self.target < self.seconds or self.rate < self.target_rate


@dataclass(frozen=True)
class Task:
    """A launch to time and its targets; ``run`` returns its counters."""

    name: str
    target: float
    target_rate: float
    run: Callable[[], emulator.Counters]


def matmul(a: Any, b: Any, **options: Any) -> tuple[Any, emulator.Counters]:
    """C = A B^T by `examples/emulator/hopper_matmul.cu`: bf16 [M, K] and [N, K] to f32 [M, N].

    M is a multiple of 128, N of 256, K of 64; ``options`` as `gpukit.emulator.run`.
    """
    (m, k), n = a.shape, b.shape[0]
    c = np.zeros((m, n), np.float32)
    maps = [emulator.TensorMap(array, box=(64, rows), swizzle="128B")
            for array, rows in ((a, 128), (b, 256))]
    result = emulator.run(_matmul_source(), (n // 256, m // 128), 384,
                          [*maps, c, np.int32(n), np.int32(k)], shared_bytes=4 * 49152, **options)
    return c, result.counters


def _matmul_source() -> Path:
    if not MATMUL.is_file():
        raise MissingDependencyError(f"{MATMUL} is not there; it comes with the repository only")
    return MATMUL


def _run_matmul(m: int, n: int, k: int) -> emulator.Counters:
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (r, k)).astype(ml_dtypes.bfloat16) for r in (m, n))
    c, counters = matmul(a, b)
    _check(c, a.astype(np.float32) @ b.astype(np.float32).T)
    return counters


def _run_rung(rung: int, m: int, n: int, k: int) -> emulator.Counters:
    """A rung of the Blackwell ladder, with its default tile."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (r, k)).astype(ml_dtypes.bfloat16) for r in (m, n))
    c = np.zeros((m, n), np.float32)
    matmul_sm100.launch(rung, devices.get("emu:b200"), a, b.T, c)
    _check(c, a.astype(np.float32) @ b.astype(np.float32).T)
    counters = emulated.get("b200").last_counters
    assert counters is not None
    return counters


def _run_product(
    source: str, tile: int, block: tuple[int, int], n: int, policy: str = "random"
) -> emulator.Counters:
    a, b = (np.random.default_rng(0).integers(-4, 5, (2, n, n))).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    grid = n // tile
    result = emulator.run(source, (grid, grid), block, [a, b, c, np.int32(n)], policy=policy)
    _check(c, a @ b)
    return result.counters


_run_naive = partial(_run_product, _NAIVE, 16, (16, 16))
_run_tiled = partial(_run_product, _TILED, 64, (256, 1))


def _run_collatz(n: int, policy: str = "random") -> emulator.Counters:
    steps = np.zeros(n, np.int32)
    result = emulator.run(_COLLATZ, -(-n // 256), 256, [steps, np.int32(n)], policy=policy)
    _check(steps, [_collatz(i + 1) for i in range(n)])
    return result.counters


def _collatz(value: int) -> int:
    count = 0
    while value != 1:
        value, count = 3 * value + 1 if value % 2 else value // 2, count + 1
    return count


def _run_copy(n: int) -> emulator.Counters:
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    result = emulator.run(_COPY, n // 256, 256, [x, y, np.int32(n)])
    _check(y, x)
    return result.counters


def _check(found: Any, wanted: Any) -> None:
    if not np.array_equal(found, wanted):
        raise AssertionError("the kernel's result is wrong")


def tasks() -> list[Task]:
    """The launches, with the seconds that they may take."""
    return [
        Task("bf16 matmul 512x512x256, TMA + wgmma", 1.0, 0, partial(_run_matmul, 512, 512, 256)),
        Task("bf16 matmul 1024x1024x1024, TMA + wgmma", 5.0, 0, partial(_run_matmul, *[1024] * 3)),
        *(Task(f"bf16 matmul {m}x{n}x{k}, tcgen05, rung {rung}", 0, 0,
               partial(_run_rung, rung, m, n, k))
          for rung in (7, 8) for m, n, k in ((512, 512, 256), (1024, 1024, 1024))),
        Task("naive f32 matmul 128x128x128", 1.5, _RATE, partial(_run_naive, 128)),
        Task("copy of 1 Mi floats", 3.0, _RATE, partial(_run_copy, 1 << 20)),
        Task("tiled f32 matmul 128x128x128", 0, _RATE, partial(_run_tiled, 128)),
        Task("collatz, 2000 numbers", 0, _RATE, partial(_run_collatz, 2000)),
        Task("naive 64x64x64, never in lockstep", 0, _RATE, partial(_run_naive, 64, "starved")),
        Task("tiled 128x128x128, never in lockstep", 0, _RATE, partial(_run_tiled, 128, "starved")),
        Task("collatz, never in lockstep", 0, _RATE, partial(_run_collatz, 2000, "starved")),
    ]


def time_start() -> list[Speed]:
    """Import, NVRTC and decoding of the matmul in a fresh process, and their sum (CPU seconds)."""
    command = [sys.executable, "-c", _START, str(_matmul_source())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = [float(word) for word in done.stdout.split()]
    names = ("start: import", "start: NVRTC", "start: parse and decode")
    return [*map(Speed, names, parts), Speed("start", sum(parts), 1.5)]


def time_task(task: Task, repeat: int) -> Speed:
    """The median of some runs, after a first that compiles and decodes. Each checks its result."""
    counters = task.run()
    took = [_timed(task.run) for _ in range(repeat)]
    cpu, wall = (statistics.median(column) for column in zip(*took, strict=True))
    return Speed(task.name, cpu, task.target, counters.warp_instructions, task.target_rate, wall)


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds and seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def profile(task: Task) -> str:
    """The functions of the emulator that a warm run spends most time in."""
    profiler = cProfile.Profile()
    profiler.runcall(task.run)
    found = pstats.Stats(profiler).strip_dirs().get_stats_profile().func_profiles
    rows = sorted(found.items(), key=lambda item: -item[1].tottime)[:_PROFILE_LINES]
    lines = [f"{f.tottime:8.3f} s  {f.ncalls:>12}  {name} ({f.file_name}:{f.line_number})"
             for name, f in rows]
    return "\n".join([task.name, *lines])


def _line(row: Speed) -> str:
    cells = (row.seconds, row.target, row.rate / 1e6, row.target_rate / 1e6)
    numbers = " ".join(f"{cell:9.2f}" if cell else " " * 9 for cell in cells)
    return f"{row.task:<44} {numbers}{'  MISSED' if row.missed else ''}".rstrip()


def _environment() -> dict[str, Any]:
    from gpukit.measure import environment

    return environment()


def _print(rows: Sequence[Speed]) -> None:
    click.echo(f"{'':<44} {'CPU s':>9} {'target':>9} {'M inst/s':>9} {'target':>9}")
    for row in rows:
        click.echo(_line(row))


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for rows and environment.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True)
@click.option("--only", default="", metavar="TEXT", help="Launches whose name has this in it.")
@click.option("--profile", "profiled", is_flag=True, help="Show where the time goes.")
def main(out: Path | None, repeat: int, only: str, profiled: bool) -> None:
    """Print how long the emulator takes, beside its targets."""
    chosen = [task for task in tasks() if only in task.name]
    if not chosen:
        raise click.BadParameter(f"no launch has {only!r} in its name", param_hint="--only")
    rows = [*([] if only else time_start()), *(time_task(task, repeat) for task in chosen)]
    _print(rows)
    if out is not None:
        document = {"rows": [asdict(row) for row in rows], "environment": _environment()}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(document, indent=1) + "\n")
    for task in chosen if profiled else ():
        click.echo(f"\n{profile(task)}")


if __name__ == "__main__":
    main()
