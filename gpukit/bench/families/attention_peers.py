"""What attention is compared with, on the same q, k and v; each allocates its own output.

cudnn, flash: torch's scaled_dot_product_attention, that backend alone (flash: FlashAttention-2);
              sliding windows by cuDNN through nvidia-cudnn-frontend.
fa3:          FlashAttention-3, from whichever package has it.
flex:         torch's flex_attention, compiled: the stock way to a sliding window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from gpukit.bench.families import attention_cudnn
from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.errors import UnsupportedError
from gpukit.reference.attention import Rules

Call = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Problem:
    """A case as its peers see it: q, k, v as [batch, seq, heads, columns] per slot."""

    rules: Rules
    inputs: Sequence[tuple[Any, Any, Any]]


#: A launch, and the last result it gave, as a CuPy array like out.
Made = tuple[Launch, Callable[[], Any]]


def made(problem: Problem, make: Callable[[Any, Any, Any], Callable[[], Any]],
         read: Callable[[Any], Any], kind: np.dtype[Any] | None = None) -> Made:
    """On CuPy's stream: `make` gives a launch for the tensors of a buffer set, `read` makes a CuPy
    array of what it returns. `kind` is what operands are, if their arrays do not say."""
    with torch_stream():
        launches = [make(*(as_torch(x, kind) for x in three)) for three in problem.inputs]
    last: list[Any] = [None]

    def launch(slot: int) -> None:
        with torch_stream():
            last[0] = launches[slot]()

    def result() -> Any:
        with torch_stream():
            return read(last[0])

    return launch, result


def _of_16_bits(problem: Problem, make: Callable[[Any, Any, Any], Callable[[], Any]]) -> Made:
    def read(out: Any) -> Any:
        import cupy
        import torch

        return cupy.from_dlpack(out.contiguous().view(torch.int16)).view(dtype)

    dtype = problem.inputs[0][0].dtype
    return made(problem, make, read)


def _on_torch(problem: Problem, call: Call) -> Made:
    """`call` on [batch, seq, heads, columns] tensors."""
    return _of_16_bits(problem, lambda *three: partial(call, *three))


def _sdpa(backend: str, problem: Problem) -> Made:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if problem.rules.window:
        raise UnsupportedError("torch gives it no sliding window")
    causal = problem.rules.mask == "causal"
    q, k, _ = problem.inputs[0]
    shared = q.shape[2] != k.shape[2]
    chosen = getattr(SDPBackend, backend)
    attend = torch.nn.functional.scaled_dot_product_attention

    def call(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel([chosen]):
            return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                          is_causal=causal, enable_gqa=shared).transpose(1, 2)

    return _on_torch(problem, call)


def _cudnn(problem: Problem) -> Made:
    window = problem.rules.window
    if window:
        return _of_16_bits(problem, lambda q, k, v: attention_cudnn.windowed(q, k, v, window))
    return _sdpa("CUDNN_ATTENTION", problem)


def _flash(problem: Problem) -> Made:
    return _sdpa("FLASH_ATTENTION", problem)


def _fa3(problem: Problem) -> Made:
    attend = fa3_function()
    rules = problem.rules
    window = {"window_size": (rules.window - 1, 0)} if rules.window else {}
    causal = rules.mask != "null"

    def call(q: Any, k: Any, v: Any) -> Any:
        out = attend(q, k, v, causal=causal, **window)
        return out[0] if isinstance(out, tuple) else out

    return _on_torch(problem, call)


def fa3_function() -> Any:
    """FlashAttention-3's `flash_attn_func`.

    Raises:
        UnsupportedError: no package has it.
    """
    for module in ("flash_attn_interface", "fa3_fwd_interface"):
        try:
            return import_module(module).flash_attn_func
        except ImportError:
            continue
    raise UnsupportedError("neither flash_attn_interface nor fa3_fwd_interface is installed")


def _flex(problem: Problem) -> Made:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    rules, s = problem.rules, problem.inputs[0][0].shape[1]
    if rules.mask == "null":
        blocks = None
    else:
        width = rules.window or s
        blocks = create_block_mask(
            lambda b, h, i, j: (j <= i) & (i - j < width), None, None, s, s, device="cuda")
    compiled: Any = torch.compile(flex_attention, dynamic=False)

    def call(q: Any, k: Any, v: Any) -> Any:
        return compiled(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                        block_mask=blocks, enable_gqa=q.shape[2] != k.shape[2]).transpose(1, 2)

    return _on_torch(problem, call)


PEERS: dict[str, Callable[[Problem], Made]] = {
    "cudnn": _cudnn, "flash": _flash, "fa3": _fa3, "flex": _flex,
}
