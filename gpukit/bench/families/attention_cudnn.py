"""cuDNN's attention as a graph of nvidia-cudnn-frontend: what torch has no call for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gpukit.errors import UnsupportedError

_LIFT = 256.0  # of weights, before they are rounded to e4m3


class Graph:
    """A graph under construction, and the memory of its tensors.

    Attributes:
        cudnn: the package.
        nodes: the operations, as methods.
    """

    def __init__(self, kind: str) -> None:
        """
        Args:
            kind: of operands, as cuDNN names it: BFLOAT16, HALF or FP8_E4M3.

        Raises:
            UnsupportedError: no nvidia-cudnn-frontend, or one that finds no cuDNN.
        """
        self.cudnn = _frontend()
        with self.refusals():
            kinds = self.cudnn.data_type
            self.number, self._kind = kinds.FLOAT, getattr(kinds, kind)
            self._handle = self.cudnn.create_handle()
            self.nodes = self.cudnn.pygraph(
                io_data_type=self._kind, intermediate_data_type=self.number,
                compute_data_type=self.number, handle=self._handle)
        self._memory: dict[Any, Any] = {}

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """What cuDNN does not take, as UnsupportedError in one line."""
        try:
            yield
        except (self.cudnn.cudnnGraphNotSupportedError, RuntimeError, TypeError) as refusal:
            said = re.sub(r"_{2,}|\s+", " ", str(refusal))
            raise UnsupportedError(f"cuDNN: {said:.200}") from refusal

    def input(self, tensor: Any, kind: Any = None) -> Any:
        """A node that reads `tensor`."""
        node = self.nodes.tensor(dim=tuple(tensor.shape), stride=tuple(tensor.stride()),
                                 data_type=kind or self._kind)
        self._memory[node] = tensor
        return node

    def output(self, node: Any, tensor: Any, kind: Any = None) -> None:
        """The result `node` is written to `tensor`."""
        node.set_output(True).set_dim(tuple(tensor.shape)).set_stride(tuple(tensor.stride()))
        node.set_data_type(kind or self._kind)
        self._memory[node] = tensor

    def built(self) -> Callable[[], None]:
        """A launch on torch's current stream."""
        import torch

        self.nodes.build([self.cudnn.heur_mode.A])
        size = max(1, self.nodes.get_workspace_size())
        scratch = torch.empty(size, dtype=torch.uint8, device="cuda")

        def launch() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            self.cudnn.set_stream(handle=self._handle, stream=stream)
            self.nodes.execute(self._memory, scratch, handle=self._handle)

        return launch


def _frontend() -> Any:
    try:
        return import_module("cudnn")
    except (ImportError, OSError) as missing:
        raise UnsupportedError(f"nvidia-cudnn-frontend is not installed ({missing})") from missing


def windowed(q: Any, k: Any, v: Any, window: int) -> Callable[[], Any]:
    """Attention of bfloat16 or float16 over a sliding window: a query sees its own key and the
    window - 1 before it.

    Args:
        q, k, v: torch tensors [batch, tokens, heads, columns].

    Returns:
        A launch on torch's current stream that returns out, [batch, tokens, heads, dv].

    Raises:
        UnsupportedError: no nvidia-cudnn-frontend, or cuDNN has no plan for such a problem.
    """
    import torch

    graph = Graph({torch.bfloat16: "BFLOAT16", torch.float16: "HALF"}[q.dtype])
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    with graph.refusals():
        nodes = [graph.input(x.transpose(1, 2)) for x in (q, k, v)]
        result, _ = graph.nodes.sdpa(
            q=nodes[0], k=nodes[1], v=nodes[2], attn_scale=1 / math.sqrt(q.shape[3]),
            generate_stats=False, diagonal_alignment=graph.cudnn.diagonal_alignment.TOP_LEFT,
            diagonal_band_left_bound=window, diagonal_band_right_bound=0)
        graph.output(result, out.transpose(1, 2))
        launch = graph.built()
    return _returning(launch, out)


def eight_bit(q: Any, k: Any, v: Any, causal: bool, window: int,
              out_factor: float) -> Callable[[], Any]:
    """Attention of e4m3. On Hopper its output is e4m3 as well: weights are multiplied with 2^8
    before they are rounded, as gpukit does, and outputs with a factor of the caller's, or most of
    them would underflow.

    Args:
        q, k, v: torch tensors [batch, tokens, heads, columns] of float8_e4m3fn.
        window: keys that a causal query sees, its own among them; 0: all before it.

    Returns:
        A launch on torch's current stream that returns out, [batch, queries, heads, dv] of e4m3,
        `out_factor` times too large.

    Raises:
        UnsupportedError: no nvidia-cudnn-frontend, or cuDNN has no plan for such a problem.
    """
    import torch

    graph = Graph("FP8_E4M3")
    out = torch.empty((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    factors = {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0, "descale_s": 1 / _LIFT,
               "scale_s": _LIFT, "scale_o": out_factor}

    band = {"right_bound": 0, "left_bound": window or None} if causal else {}

    def one(value: float) -> Any:
        return torch.full((1, 1, 1, 1), value, dtype=torch.float32, device=q.device)

    with graph.refusals():
        nodes = [graph.input(x.transpose(1, 2)) for x in (q, k, v)]
        result, _, *largest = graph.nodes.sdpa_fp8(
            q=nodes[0], k=nodes[1], v=nodes[2], attn_scale=1 / math.sqrt(q.shape[3]),
            is_inference=True, diagonal_alignment=graph.cudnn.diagonal_alignment.TOP_LEFT, **band,
            **{name: graph.input(one(x), graph.number) for name, x in factors.items()})
        graph.output(result, out.transpose(1, 2))
        for node in largest:
            graph.output(node, one(0.0), graph.number)
        launch = graph.built()
    return _returning(launch, out)


def _returning(launch: Callable[[], None], out: Any) -> Callable[[], Any]:
    def call() -> Any:
        launch()
        return out

    return call
