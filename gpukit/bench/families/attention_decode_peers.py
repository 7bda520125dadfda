"""What decoding is compared with, on the same q and caches; each allocates its own output.

plain:        gpukit's own kernel 6 with queries on the 16 rows of mma.sync's M.
upright:      its kernel 7 with queries on the 64 rows of wgmma's M: what transposing gains.
cudnn, flash: torch's scaled_dot_product_attention with that backend alone; equal lengths, no pages.
fa3:          FlashAttention-3's flash_attn_with_kvcache, from whichever package has it.
flashinfer:   its batch decode over pages, with tensor cores; a cache without pages is a page each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.errors import UnsupportedError
from gpukit.ops.attention.decode import DecodePlan
from gpukit.ops.attention.plan import choose

_WORKSPACE = 256 << 20  # bytes; what FlashInfer's documentation asks for, and some


@dataclass(frozen=True)
class Problem:
    """A case as its peers see it.

    Attributes:
        q: [sequences, tokens, heads, dim].
        caches: k and v per slot, [sequences or pages, rows, KV heads, dim].
        table: uint32 [sequences, entries] or None.
        lengths: keys of each sequence, on the host.
        on_device: the same, if gpukit's call gets them.
        cut: of the call that it is compared with.
    """

    q: Any
    caches: Sequence[tuple[Any, ...]]
    table: Any
    lengths: NDArray[np.uint32]
    on_device: Any
    cut: str

    def require_16_bits(self) -> None:
        """Raise UnsupportedError if the cache has 8."""
        if self.caches[0][0].dtype != self.q.dtype:
            raise UnsupportedError("it takes a cache of q's type")


#: A launch, and the last result it gave, as a CuPy array like out.
Made = tuple[Launch, Callable[[], Any]]
Call = Callable[[Any, Any, Any], Any]


def _on_torch(problem: Problem, call: Call) -> Made:
    """`call` on q, k and v as tensors, on CuPy's stream."""
    q, dtype = as_torch(problem.q), problem.q.dtype
    tensors = [tuple(map(as_torch, pair)) for pair in problem.caches]
    last: list[Any] = [None]

    def launch(slot: int) -> None:
        with torch_stream():
            last[0] = call(q, *tensors[slot])

    def result() -> Any:
        import cupy
        import torch

        out = last[0].contiguous().view(torch.int16)
        return cupy.from_dlpack(out).view(dtype).reshape(problem.q.shape)

    return launch, result


def _sdpa(backend: str, problem: Problem) -> Made:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    problem.require_16_bits()
    if problem.table is not None or len(set(problem.lengths)) > 1:
        raise UnsupportedError("torch gives it no pages and no lengths")
    if problem.q.shape[1] > 1:
        raise UnsupportedError("torch aligns its causal mask to the first key")
    shared = problem.q.shape[2] != problem.caches[0][0].shape[2]
    chosen = getattr(SDPBackend, backend)
    attend = torch.nn.functional.scaled_dot_product_attention

    def call(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel([chosen]):
            return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                          enable_gqa=shared).transpose(1, 2)

    return _on_torch(problem, call)


def _cudnn(problem: Problem) -> Made:
    return _sdpa("CUDNN_ATTENTION", problem)


def _flash(problem: Problem) -> Made:
    return _sdpa("FLASH_ATTENTION", problem)


def _fa3(problem: Problem) -> Made:
    import torch

    problem.require_16_bits()
    attend = _fa3_function()
    lengths = torch.as_tensor(problem.lengths.astype(np.int32), device="cuda")
    pages = {} if problem.table is None else {"page_table": as_torch(problem.table.view("i4"))}

    def call(q: Any, k: Any, v: Any) -> Any:
        out = attend(q, k, v, cache_seqlens=lengths, causal=True, **pages)
        return out[0] if isinstance(out, tuple) else out

    return _on_torch(problem, call)


def _fa3_function() -> Any:
    for module in ("flash_attn_interface", "fa3_fwd_interface"):
        try:
            return import_module(module).flash_attn_with_kvcache
        except ImportError:
            continue
    raise UnsupportedError("neither flash_attn_interface nor fa3_fwd_interface is installed")


def _flashinfer(problem: Problem) -> Made:
    import torch

    problem.require_16_bits()
    flashinfer = import_module("flashinfer")
    if problem.q.shape[1] > 1:
        raise UnsupportedError("its batch decode takes one token of a sequence")
    batch, _, heads, dim = problem.q.shape
    k = problem.caches[0][0]
    if not k.flags.c_contiguous:
        raise UnsupportedError("it takes pages without gaps")
    page = k.shape[1]
    used = -(-problem.lengths.astype(np.int64) // page)  # pages
    table = (np.arange(batch)[:, None] if problem.table is None
             else problem.table.get().astype(np.int64))
    numbers = np.concatenate([row[:n] for row, n in zip(table, used, strict=True)])
    starts, numbers, last = (torch.as_tensor(x.astype(np.int32), device="cuda") for x in (
        np.concatenate([[0], used.cumsum()]), numbers, problem.lengths - (used - 1) * page))
    workspace = torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
    wrapper.plan(starts, numbers, last, heads, k.shape[2], dim, page,
                 q_data_type=as_torch(problem.q).dtype)
    return _on_torch(problem, lambda q, k, v: wrapper.run(q[:, 0], (k, v)))


def _own(kind: str, problem: Problem) -> Made:
    import gpukit

    problem.require_16_bits()
    q, (k, v), table = problem.q, problem.caches[0], problem.table
    plan = DecodePlan.of(q, k, v, page_table=table)
    plan = DecodePlan(plan.device, plan.problem, choose(plan.problem, kind, problem.cut))
    last: list[Any] = [None]

    def launch(slot: int) -> None:
        last[0] = gpukit.attention_decode(q, *problem.caches[slot], lengths=problem.on_device,
                                          page_table=table, out=last[0], plan=plan)

    return launch, lambda: last[0]


PEERS: dict[str, Callable[[Problem], Made]] = {
    "plain": partial(_own, "plain"), "upright": partial(_own, "upright"), "cudnn": _cudnn,
    "flash": _flash, "fa3": _fa3, "flashinfer": _flashinfer,
}
