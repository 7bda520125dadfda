"""What attention of e4m3 operands is compared with; scales are ones.

cudnn: cuDNN through nvidia-cudnn-frontend; on Hopper its output is e4m3 as well.
fa3:   FlashAttention-3, from whichever package has it; its output is bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit import dtypes
from gpukit.bench.families import attention_peer_cudnn8
from gpukit.bench.families.attention_peers import Made, Problem, fa3_function
from gpukit.bench.families.buffers import as_torch, torch_stream
from gpukit.errors import UnsupportedError

#: Peers whose output is rounded to e4m3, and what it is multiplied with before.
COARSE = {"cudnn": 16.0}


def _made(problem: Problem, make: Callable[[Any, Any, Any], Callable[[], Any]],
          factor: float = 1.0) -> Made:
    """`make` gives a launch for the tensors of a buffer set, on CuPy's stream."""
    kind = dtypes.parse("e4m3").value_dtype
    with torch_stream():
        launches = [make(*(as_torch(x, kind) for x in three)) for three in problem.inputs]
    last: list[Any] = [None]

    def launch(slot: int) -> None:
        with torch_stream():
            last[0] = launches[slot]()

    def result() -> Any:
        import cupy
        import torch

        with torch_stream():
            wide = (last[0].float() / factor).bfloat16().contiguous()
            return cupy.from_dlpack(wide.view(torch.int16)).view(dtypes.parse("bf16").numpy)

    return launch, result


def _cudnn(problem: Problem) -> Made:
    if problem.rules.window:
        raise UnsupportedError("no sliding window is asked of it")
    causal, factor = problem.rules.mask == "causal", COARSE["cudnn"]
    return _made(problem, lambda q, k, v: attention_peer_cudnn8.forward(q, k, v, causal, factor),
                 factor)


def _fa3(problem: Problem) -> Made:
    attend, rules = fa3_function(), problem.rules
    window = {"window_size": (rules.window - 1, 0)} if rules.window else {}

    def make(q: Any, k: Any, v: Any) -> Callable[[], Any]:
        def call() -> Any:
            out = attend(q, k, v, causal=rules.mask != "null", **window)
            return out[0] if isinstance(out, tuple) else out

        return call

    return _made(problem, make)


PEERS: dict[str, Callable[[Problem], Made]] = {"cudnn": _cudnn, "fa3": _fa3}
