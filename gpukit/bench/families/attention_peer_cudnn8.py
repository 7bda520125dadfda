"""cuDNN's attention of e4m3 operands, through nvidia-cudnn-frontend: torch has no call for it.

On Hopper its output is e4m3 as well. Weights are multiplied with 2^8 before they are rounded, as
gpukit does, and outputs with a factor of the caller's, or most of them would underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from gpukit.errors import UnsupportedError

_LIFT = 256.0


def forward(q: Any, k: Any, v: Any, causal: bool, out_factor: float) -> Callable[[], Any]:
    """A launch on torch's current stream that returns out, [batch, queries, heads, dv] of e4m3,
    `out_factor` times too large.

    Args:
        q, k, v: torch tensors [batch, tokens, heads, columns] of float8_e4m3fn.

    Raises:
        UnsupportedError: no nvidia-cudnn-frontend, or cuDNN has no plan for such a problem.
    """
    try:
        cudnn: Any = import_module("cudnn")
    except ImportError as missing:
        raise UnsupportedError(f"nvidia-cudnn-frontend is not installed ({missing})") from missing
    try:
        return _plan(cudnn, q, k, v, causal, out_factor)
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError) as refusal:
        raise UnsupportedError(f"cuDNN: {str(refusal).splitlines()[0]:.120}") from refusal


def _plan(cudnn: Any, q: Any, k: Any, v: Any, causal: bool,
          out_factor: float) -> Callable[[], Any]:
    import torch

    byte, number = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    handle = cudnn.create_handle()
    graph = cudnn.pygraph(io_data_type=byte, intermediate_data_type=number,
                          compute_data_type=number, handle=handle)
    inputs = [x.transpose(1, 2) for x in (q, k, v)]
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device).transpose(1, 2)
    factors = {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0, "descale_s": 1 / _LIFT,
               "scale_s": _LIFT, "scale_o": out_factor}
    memory: dict[Any, Any] = {}

    def one(value: float) -> Any:
        held = torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=q.device)
        node = graph.tensor(dim=(1, 1, 1, 1), stride=(1, 1, 1, 1), data_type=number)
        memory[node] = held
        return node

    nodes = [graph.tensor(dim=tuple(x.shape), stride=tuple(x.stride()), data_type=byte)
             for x in inputs]
    memory.update(zip(nodes, inputs, strict=True))
    result, _, *largest = graph.sdpa_fp8(
        q=nodes[0], k=nodes[1], v=nodes[2], **{name: one(x) for name, x in factors.items()},
        is_inference=True, attn_scale=1 / math.sqrt(q.shape[3]), use_causal_mask=causal)
    result.set_output(True).set_dim(tuple(out.shape)).set_stride(tuple(out.stride()))
    result.set_data_type(byte)
    memory[result] = out
    for node in largest:
        node.set_output(True).set_dim((1, 1, 1, 1)).set_stride((1, 1, 1, 1)).set_data_type(number)
        memory[node] = torch.zeros((1, 1, 1, 1), dtype=torch.float32, device=q.device)
    graph.build([cudnn.heur_mode.A])
    scratch = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=q.device)

    def launch() -> Any:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(memory, scratch, handle=handle)
        return out.transpose(1, 2)

    return launch
