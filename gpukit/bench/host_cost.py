"""What a call costs the host: `python -m gpukit.bench.host_cost --out FILE`.

Times public op calls on a warm path beside a bare CuPy RawKernel launch and CuPy's own ufunc, on
so few elements that the GPU is never the bottleneck. Each sample is the mean of a burst of calls
that the launch queue can hold; the device is synchronised between bursts, outside the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

_BURST = 200
_BURSTS = 50

Call = Callable[[], Any]


def contenders() -> dict[str, Call]:
    """The calls, compiled and warm after their first run."""
    return {**_elementwise(), **_products(), **_attention(), **_sampling()}


def _elementwise() -> dict[str, Call]:
    import cupy
    import numpy as np

    import gpukit

    x, y, one = cupy.ones(1024, "f4"), cupy.ones(1024, "f4"), np.float32(1)
    source = 'extern "C" __global__ void bare(const float*, float*, long long, float) {}'
    bare = cupy.RawKernel(source, "bare")
    return {
        "bare CuPy RawKernel, 4 arguments": lambda: bare((1,), (256,), (x, y, 1024, one)),
        "gpukit.exp(x, out=y)": lambda: gpukit.exp(x, out=y),
        "gpukit.exp(x)": lambda: gpukit.exp(x),
        "gpukit.scale(x, 2.0)": lambda: gpukit.scale(x, 2.0),
        "gpukit.add(x, y)": lambda: gpukit.add(x, y),
        "gpukit.axpy(2.0, x, y, out=y)": lambda: gpukit.axpy(2.0, x, y, out=y),
        "cupy.exp(x, y)": lambda: cupy.exp(x, y),
        "cupy.exp(x)": lambda: cupy.exp(x),
    }


def _products() -> dict[str, Call]:
    import cupy

    import gpukit

    a, w, c = cupy.ones((16, 256), "f2"), cupy.ones((256, 256), "f2"), cupy.ones((16, 256), "f2")
    bias = cupy.ones(256, "f2")
    return {
        "gpukit.matmul(a, w.T)": lambda: gpukit.matmul(a, w.T),
        "gpukit.matmul(a, w, out=c)": lambda: gpukit.matmul(a, w, out=c),
        "gpukit.matmul(..., bias, silu)": lambda: gpukit.matmul(a, w, out=c, bias=bias,
                                                                activation="silu"),
        "gpukit.matmul(a[:, 1:], w[1:])": lambda: gpukit.matmul(a[:, 1:], w[1:], out=c),
        "cupy.matmul(a, w, out=c)": lambda: cupy.matmul(a, w, out=c),
    }


def _attention() -> dict[str, Call]:
    import cupy

    import gpukit
    from gpukit.ops.attention.decode import DecodePlan

    q, o = cupy.ones((1, 128, 8, 64), "f2"), cupy.ones((1, 128, 8, 64), "f2")
    k, v, last = q.copy(), q.copy(), cupy.ones((1, 1, 8, 64), "f2")
    plan = DecodePlan.of(last, k, v)
    return {
        "gpukit.attention(q, k, v)": lambda: gpukit.attention(q, k, v),
        "gpukit.attention(..., causal, out=o)": lambda: gpukit.attention(q, k, v, mask="causal",
                                                                         out=o),
        "gpukit.attention_decode(q, k, v)": lambda: gpukit.attention_decode(last, k, v),
        "gpukit.attention_decode(..., plan)": lambda: gpukit.attention_decode(last, k, v,
                                                                              plan=plan),
    }


def _sampling() -> dict[str, Call]:
    import cupy

    from gpukit import sampling

    logits, tokens = cupy.ones((1, 1024), "f4"), cupy.zeros(1, "i8")
    return {
        "gpukit.sampling.sample(x, top_p=0.9)": lambda: sampling.sample(logits, top_p=0.9),
        "gpukit.sampling.sample(..., out=t)": lambda: sampling.sample(logits, top_p=0.9,
                                                                      out=tokens),
    }


def measure(calls: dict[str, Call]) -> list[dict[str, Any]]:
    """One row per call: median, quartile and least microseconds; bursts of all calls take turns."""
    import cupy
    import numpy as np

    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(_BURSTS):
        for name, call in calls.items():
            cupy.cuda.runtime.deviceSynchronize()
            samples[name].append(_burst_us(call))
    return [{"call": name, "median_us": float(np.median(values)),
             "upper_quartile_us": float(np.quantile(values, 0.75)), "least_us": min(values)}
            for name, values in samples.items()]


def _burst_us(call: Call) -> float:
    start = time.perf_counter_ns()
    for _ in range(_BURST):
        call()
    return (time.perf_counter_ns() - start) / _BURST / 1e3


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for rows and environment.")
def main(out: Path | None) -> None:
    """Print host microseconds per call."""
    from gpukit.measure import environment

    rows = measure(contenders())
    for row in rows:
        click.echo(f"{row['call']:<36} {row['median_us']:7.2f} us  (least {row['least_us']:.2f})")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"rows": rows, "environment": environment()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
