"""Attention of the last few tokens of sequences over their caches of keys and values."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from gpukit.devices.protocol import Device
from gpukit.ops.attention import decode_arguments
from gpukit.ops.attention.decode_arguments import Call
from gpukit.ops.attention.masks import FAR
from gpukit.ops.attention.plan import Config, Problem, choose

_LOG2_E = math.log2(math.e)
_PLANS = 256  # a program that never repeats a shape must not grow without bound


def attention_decode(q: Any, k: Any, v: Any, *, lengths: Any = None, page_table: Any = None,
                     mask: str = "causal", window: int | None = None, chunk: int | None = None,
                     scale: float | None = None, softcap: float = 0.0, sinks: Any = None,
                     alibi: Any = None, out: Any = None, return_lse: bool = False,
                     plan: DecodePlan | None = None) -> Any:
    """softmax(scale q k^T) v for the last tokens of each sequence, read at memory speed.

    Query t of T stands at position length - T + t of its sequence, its own key included in the
    cache. Head h of q reads KV head h // (heads / KV heads). Nothing is read beyond a sequence's
    length, page table entries included. Lengths stay on the device: a captured call may be
    replayed with others. The result has the same bits every time.

    Args:
        q: [sequences, heads, dim] or [sequences, tokens, heads, dim], float16 or bfloat16.
        k, v: [sequences, rows, KV heads, dim] of q's dtype; with page_table [pages, page, KV heads,
            dim], a page having 2^n rows. Any strides whose rows are at multiples of 16 bytes: other
            orders are transposed views (see also `gpukit.ops.attention.paged.layer`).
        lengths: uint32 [sequences], keys that count (at most rows or entries x page); all without.
        page_table: uint32 [sequences, entries], pages in the order of their keys.
        mask: "null", "causal", "chunked_causal" (with chunk), "sliding_causal" or "sliding" (with
            window: a query sees window keys, its own included, or window - 1 to either side).
        scale: 1 / sqrt(dim) by default.
        softcap: scores become softcap tanh(scores / softcap); 0: none.
        sinks: float32 [heads], a logit more in each head's softmax, unscaled.
        alibi: float32 [heads], slopes: -slope times distance is added to scores.
        out: where to put the result; q's shape and dtype.
        return_lse: also return the logarithm of each softmax's sum.
        plan: from `DecodePlan.of`, for calls of equal shapes that may overlap in time.

    Returns:
        out in q's shape; with return_lse (out, lse), lse float32 [sequences, heads] or [sequences,
        heads, tokens], natural logarithm. A query that sees no key has output 0 and lse -inf (or
        its sink).

    Raises:
        ArgumentError: an argument's shape, dtype, strides, value or device.
        UnsupportedError: a dtype, head dim or page size that no kernel takes.
    """
    call = decode_arguments.check(
        q, k, v, out=out, return_lse=return_lse, lengths=lengths, page_table=page_table, mask=mask,
        window=window, chunk=chunk, scale=scale, softcap=softcap, sinks=sinks, alibi=alibi)
    if call.out.size:
        (plan or _plan(call.device, call.problem)).run(call)
    if q.ndim == 4:
        return (call.out, call.lse) if return_lse else call.out
    single = call.out[:, 0]
    return (single, call.lse[:, :, 0]) if return_lse else single


class DecodePlan:
    """A cut of decode calls of one shape, and the memory in which splits of a sequence meet.

    Calls that may run at the same time need a plan each; one after another may share one.

    Attributes:
        config: how the calls are cut up.
    """

    def __init__(self, device: Device, problem: Problem, config: Config | None = None) -> None:
        self.device, self.problem = device, problem
        self.config = config or choose(problem)
        parts = self.config.parts > 1
        states = self.config.states(problem) if parts else 0
        self._values = device.xp.empty((states, 4), "float32")
        self._statistics = device.xp.empty((states, 2), "float32")
        counters = problem.sequences * self.config.units(problem) * self.config.cluster
        self._arrived = device.xp.zeros(counters if parts else 0, "uint32")
        self._kernel = device.compile(self.config.spec, self.config.tunables(problem))

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, *, page_table: Any = None,
           config: Config | None = None) -> DecodePlan:
        """The plan of calls with such arrays; see `attention_decode`."""
        call = decode_arguments.check(
            q, k, v, out=None, return_lse=False, lengths=None, page_table=page_table, mask="null",
            window=None, chunk=None, scale=None, softcap=0.0, sinks=None, alibi=None)
        return cls(call.device, call.problem, config)

    def run(self, call: Call) -> None:
        """Enqueue a checked call of this plan's shape."""
        p, config, mask = self.problem, self.config, call.mask
        table_row = 0 if call.table is None else call.table.strides[0] // 4
        strides = [step for array in (call.q, call.k, call.v, call.out) for step in _steps(array)]
        cap = call.softcap
        self._kernel.launch(config.grid(p), (32 * config.warps,), (
            call.q, call.k, call.v, call.out, call.lse, call.lengths, call.table, call.sinks,
            call.slopes, self._values, self._statistics, self._arrived, *strides, table_row,
            max(0, p.page.bit_length() - 1), p.keys, p.tokens, p.group, p.heads, mask.left,
            mask.right, mask.chunk or FAR, call.scale * _LOG2_E, call.scale / cap if cap else 0.0,
            cap * _LOG2_E))


def _steps(array: Any) -> list[int]:
    """Elements from sequence (or page) to the next, from row to row and from head to head."""
    return [step // array.dtype.itemsize for step in array.strides[:3]]


_plans: OrderedDict[tuple[Any, ...], DecodePlan] = OrderedDict()


def _plan(device: Device, problem: Problem) -> DecodePlan:
    """The plan that calls of a stream share: they come one after another."""
    stream = 0 if device.emulated else device.xp.cuda.get_current_stream().ptr
    key = (device.name, stream, problem)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = DecodePlan(device, problem)
        if len(_plans) > _PLANS:
            _plans.popitem(last=False)
    return plan
