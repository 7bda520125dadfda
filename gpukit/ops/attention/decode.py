"""Attention of the last few tokens of sequences over their caches of keys and values."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops.attention import decode_arguments, decode_config, decode_warm
from gpukit.ops.attention.decode_arguments import Call
from gpukit.ops.attention.masks import FAR
from gpukit.ops.attention.plan import Config, Problem, choose

_LOG2_E = math.log2(math.e)
_PLANS = 256  # a program that never repeats a shape must not grow without bound


def attention_decode(q: Any, k: Any, v: Any, *, lengths: Any = None, page_table: Any = None,
                     mask: str = "causal", window: int | None = None, chunk: int | None = None,
                     scale: float | None = None, softcap: float = 0.0, sinks: Any = None,
                     alibi: Any = None, bias: Any = None, relative: Any = None,
                     q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, out: Any = None,
                     return_lse: bool = False, plan: DecodePlan | None = None) -> Any:
    """softmax(scale q k^T) v for the last tokens of each sequence, read at memory speed.

    Query t of T stands at position length - T + t of its sequence, its own key included in the
    cache. Head h of q reads KV head h // (heads / KV heads). Nothing is read beyond a sequence's
    length, page table entries included. Lengths stay on the device: a captured call may be
    replayed with others. The result has the same bits every time.

    Args:
        q: [sequences, heads, dim] or [sequences, tokens, heads, dim], float16 or bfloat16, or with
            a cache of e4m3 also uint8 (e4m3): the result is then bfloat16, or as out.
        k, v: [sequences, rows, KV heads, dim] of q's dtype or uint8 (e4m3); with page_table [pages,
            page, KV heads, dim], a page having 2^n rows. Any strides whose rows are at multiples of
            16 bytes: other orders are transposed views (see `gpukit.ops.attention.paged.layer`).
        lengths: uint32 [sequences], keys that count (at most rows or entries x page); all without.
        page_table: uint32 [sequences, entries], pages in the order of their keys.
        mask: "null", "causal", "chunked_causal" (with chunk), "sliding_causal" or "sliding" (with
            window: a query sees window keys, its own included, or window - 1 to either side).
        scale: 1 / sqrt(dim) by default.
        softcap: scores become softcap tanh(scores / softcap); 0: none.
        sinks: float32 [heads], a logit more in each head's softmax, unscaled.
        alibi: float32 [heads], slopes: -slope times distance is added to scores.
        bias: added to scores, of the result's dtype, [sequences, tokens, keys] or [sequences or 1,
            heads or 1, tokens, keys], keys being all that k or the page table has room for.
        relative: of the result's dtype and q's shape but for the last axis: entry p - j is added
            where there is one. For causal and sliding_causal, neither with sinks nor with bias.
        q_scale, k_scale, v_scale: what arrays of e4m3 are multiplied by: a number, or float32
            [KV heads or 1] or [sequences or 1, KV heads or 1].
        out: where to put the result; q's shape, and its dtype unless q is of e4m3.
        return_lse: also return the logarithm of each softmax's sum.
        plan: from `DecodePlan.of`: the memory in which splits of a sequence meet. Without one,
            calls of a stream share one per shape, and a captured call gets its own, cleared by an
            operation more at each replay.

    Returns:
        out in q's shape; with return_lse (out, lse), lse float32 [sequences, heads] or [sequences,
        heads, tokens], natural logarithm. A query that sees no key has output 0 and lse -inf (or
        its sink).

    Raises:
        ArgumentError: an argument's shape, dtype, strides, value or device.
        UnsupportedError: a dtype, head dim or page size that no kernel takes.
    """
    given = (q, k, v, out, lengths, page_table, sinks, alibi, bias, relative, q_scale, k_scale,
             v_scale)
    words = mask, window, chunk, scale, softcap, bool(return_lse)
    results = decode_warm.call(given, words, plan) or _the_long_way(given, words, plan)
    return results if return_lse else results[0]


def _the_long_way(given: decode_warm.Given, words: decode_warm.Words,
                  own: DecodePlan | None) -> tuple[Any, Any]:
    """Check, choose and launch; the same call is quicker the next time."""
    call = decode_arguments.check(*given, *words)
    if own is not None:
        if not isinstance(own, DecodePlan):
            raise ArgumentError("attention_decode: plan must be what DecodePlan.of returns, got "
                                f"{type(own).__name__}")
        own.require(call)
    if call.out.size:
        plan = own or _plan(call.device, call.problem)
        launch = plan.bind(call)
        launch(*map(call.device.pointer, call.arrays))
        if not call.device.emulated:
            decode_warm.keep(given, words, call, plan, launch, own is not None)
    return call.results()


class DecodePlan:
    """A cut of decode calls of one shape, and the memory in which splits of a sequence meet.

    Calls that may run at the same time need a plan each; one after another may share one: all
    layers of a model, captured or not.

    Attributes:
        config: how the calls are cut up; chosen for the problem if none is given.
        meets: whether splits meet in the plan's memory.

    Raises:
        ArgumentError: a config for other calls.
    """

    def __init__(self, device: Device, problem: Problem, config: Config | None = None) -> None:
        self.device, self.problem = device, problem
        self.config = (choose(problem) if config is None
                       else decode_config.check(config, problem))
        self.meets = self.config.parts > 1
        self.entries: decode_warm.Entries = {}
        states = self.config.states(problem) if self.meets else 0
        self._values = device.xp.empty((states, 4), "float32")
        self._statistics = device.xp.empty((states, 2), "float32")
        counters = self.config.counters(problem)
        self._arrived = device.xp.zeros(counters if self.meets else 0, "uint32")
        self._kernel = device.compile(self.config.spec, self.config.tunables(problem))

    @classmethod
    def of(cls, q: Any, k: Any, v: Any, *, lengths: Any = None, page_table: Any = None,
           bias: Any = None, relative: Any = None, out: Any = None,
           config: Config | None = None) -> DecodePlan:
        """The plan of calls with such arrays (out: if q is of e4m3); see `attention_decode`.

        Calls may have lengths or not, whatever the plan is made with; made with lengths (or a page
        table), it divides unequal ones evenly.
        """
        call = decode_arguments.check(q, k, v, out, lengths, page_table, bias=bias,
                                      relative=relative)
        return cls(call.device, call.problem, config)

    def require(self, call: Call) -> None:
        """The call has the plan's shape and device.

        Raises:
            ArgumentError: it has not.
        """
        if call.device is not self.device:
            raise ArgumentError(f"attention_decode: plan is of {self.device.name}, q on "
                                f"{call.device.name}")
        for name, mine, given in zip(Problem._fields, self.problem, call.problem, strict=True):
            if mine != given and name != "uneven":
                raise ArgumentError(f"attention_decode: plan is for {name}={mine}, the arrays have "
                                    f"{given}; make one with DecodePlan.of")

    def bind(self, call: Call) -> Callable[..., None]:
        """The launch of calls like a checked one: takes what `Call.arrays` has, as pointers."""
        p, config, mask, cap = self.problem, self.config, call.mask, call.softcap
        work = map(self.device.pointer, (self._values, self._statistics, self._arrived))
        strides = (step for array in (call.q, call.k, call.v, call.out) for step in _steps(array))
        table_row = 0 if call.table is None else call.table.strides[0] // 4
        rest = (*work, *strides, table_row, *_steps(call.extra), _extent(call),
                max(0, p.page.bit_length() - 1), p.sequences, p.keys, p.tokens, p.group, p.heads,
                mask.left, mask.right, mask.chunk or FAR, call.scale * _LOG2_E,
                call.scale / cap if cap else 0.0, cap * _LOG2_E,
                *(call.scales.rest if p.queries else ()))
        return self._kernel.bind(config.grid(p), (32 * config.warps,), rest)


def _steps(array: Any) -> list[int]:
    """Elements from sequence (or page) to the next, from row to row and from head to head."""
    if array is None:
        return [0, 0, 0]
    return [step // array.dtype.itemsize for step in array.strides[:3]]


def _extent(call: Call) -> int:
    return int(call.extra.shape[3]) if call.problem.extra == "relative" else 0


_plans: OrderedDict[tuple[Any, ...], DecodePlan] = OrderedDict()
_captured: list[DecodePlan] = []  # what graphs use must live as long as they may be replayed


def _plan(device: Device, problem: Problem) -> DecodePlan:
    """The plan that calls of a stream share: they come one after another.

    A captured call has its own, whose counters every replay clears first: its graph may be
    replayed beside others.
    """
    stream = 0 if device.emulated else int(device.xp.cuda.get_current_stream().ptr)
    if not device.emulated and device.xp.cuda.runtime.streamIsCapturing(stream):
        _captured.append(DecodePlan(device, problem))
        return _captured[-1]
    key = (device.name, decode_warm.stream_name(stream), problem)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = DecodePlan(device, problem)
        if len(_plans) > _PLANS:
            _plans.popitem(last=False)
    return plan
