"""What attention of e4m3 operands is compared with; scales are ones.

cudnn: cuDNN through nvidia-cudnn-frontend; on Hopper its output is e4m3 as well.
fa3:   FlashAttention-3, from whichever package has it; its output is bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukit import dtypes
from gpukit.bench.families import attention_cudnn
from gpukit.bench.families.attention_peers import Made, Problem, fa3_function, made

#: Peers whose output is rounded to e4m3, and what it is multiplied with before.
COARSE = {"cudnn": 16.0}


def _made(problem: Problem, make: Callable[[Any, Any, Any], Callable[[], Any]],
          factor: float = 1.0) -> Made:
    def read(out: Any) -> Any:
        import cupy
        import torch

        wide = (out.float() / factor).bfloat16().contiguous()
        return cupy.from_dlpack(wide.view(torch.int16)).view(dtypes.parse("bf16").numpy)

    return made(problem, make, read, dtypes.parse("e4m3").value_dtype)


def _cudnn(problem: Problem) -> Made:
    rules, factor = problem.rules, COARSE["cudnn"]
    return _made(problem, lambda q, k, v: attention_cudnn.eight_bit(
        q, k, v, rules.mask != "null", rules.window, factor), factor)


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
