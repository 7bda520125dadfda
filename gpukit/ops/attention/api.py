"""`gpukit.attention` and `gpukit.attention_ragged`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.ops.attention import arguments, forward_warm, fp8_arguments, masks, terms
from gpukit.ops.attention.forward_warm import Given
from gpukit.ops.attention.fp8_arguments import E4M3, Words
from gpukit.ops.attention.problem import Lengths, Problem, Scales, Terms
from gpukit.ops.attention.run import run
from gpukit.ops.attention.terms import Sizes

_LAYOUTS = ("bshd", "bhsd")


def attention(q: Any, k: Any, v: Any, *, mask: str = "null", window: int | None = None,
              chunk: int | None = None, top_left: bool = False, scale: float | None = None,
              softcap: float | None = None, alibi: Any = None, bias: Any = None,
              relative: Any = None, sinks: Any = None, q_lengths: Any = None,
              kv_lengths: Any = None, page_table: Any = None, layout: str = "bshd", out: Any = None,
              return_lse: bool = False, kernel: str | None = None, dtype: str | None = None,
              out_dtype: Any = None, q_scale: Any = None, k_scale: Any = None,
              v_scale: Any = None) -> Any:
    """softmax(scale q k^T) v, head by head.

    Arrays may be views of any strides; where elements of a row are not next to each other, or rows
    do not start at multiples of 16 bytes, they are copied first. Head h of q reads head
    h // (heads / kv_heads) of k and v.

    Args:
        q: [batch, queries, heads, d], float16, bfloat16 or, on Hopper, e4m3 (layout "bhsd":
            [batch, heads, queries, d]); d up to 256.
        k: [batch, keys, kv_heads, d] in the same layout; with `page_table` [pages, page, kv_heads,
            d].
        v: like k, with dv columns.
        mask: which keys query i sees, at position p = i + keys - queries (with `top_left` p = i):
            "null" all; "causal" j <= p; "chunked_causal" those of them in p's chunk of `chunk`
            keys; "sliding_causal" the last `window` of them; "sliding" |p - j| < window.
        scale: of q k^T; 1 / sqrt(d) by default.
        softcap: scores s become softcap tanh(s / softcap), before bias.
        alibi: float32 slopes [heads] or [batch, heads]: -slope |p - j| is added.
        bias: [batch, queries, keys] or [batch, heads, queries, keys] of q's dtype, added to scores.
        relative: [batch, queries, heads, extent] of q's dtype: entry p - j is added. For causal and
            sliding_causal, not with sinks.
        sinks: float32 [heads]: a logit more in each sum, without a value.
        q_lengths: uint32 [batch] on the device: queries that count; the others give zeros.
        kv_lengths: uint32 [batch] on the device: keys that count; what lies beyond is never used.
        page_table: uint32 [batch, entries]: page of every `page` keys; needs kv_lengths.
        out: [batch, queries, heads, dv] in the layout, of q's dtype; of e4m3 float16 or bfloat16.
        return_lse: whether to return (out, lse), float32 [batch, heads, queries]: the natural
            logarithm of the sum of exponentials (with the sink's), -inf where there is no key.
        kernel: "k2", "k5" of the Hopper ladder, "k4" of Blackwell's and so on; by default the
            GPU's best.
        dtype: "e4m3", what uint8 arrays hold (CuPy has no dtype for it). NumPy arrays of ml_dtypes
            and torch's float8 tensors say so themselves.
        out_dtype: of a new out for e4m3 operands: "bfloat16" (the default) or "float16".
        q_scale, k_scale, v_scale: what e4m3 operands are multiplied with: a positive number, or
            float32 on the device: one, [heads], or [batch, heads]; heads of q or k for q_scale, of
            k for the others. Their weights are rounded to e4m3 too. Not with softcap, alibi, bias
            and relative.

    Returns:
        out; queries that see no key give zeros.

    Raises:
        ArgumentError: an argument of another type, shape, dtype or device, or a combination that
            does not go together.
        UnsupportedError: pages on a GPU older than Hopper, or on Blackwell with wide heads.
    """
    given = (q, k, v, out, sinks, alibi, bias, relative, None, q_lengths, None, kv_lengths,
             page_table, ("dense", mask, window, chunk, top_left, scale, softcap, layout, kernel,
                          bool(return_lse)))
    results = _attend(_the_long_way, given, dtype, out_dtype, q_scale, k_scale, v_scale)
    return results if return_lse else results[0]


def _attend(long_way: Callable[[Given, Words], Any], given: tuple[Any, ...], dtype: Any,
            out_dtype: Any, q_scale: Any, k_scale: Any, v_scale: Any) -> Any:
    """out and lse, by the short way if the call has been made before."""
    plain = (dtype is None and out_dtype is None and q_scale is None and k_scale is None
             and v_scale is None)
    found = forward_warm.call(given) if plain else None
    if found is not None:
        return found
    call, words = Given(*given), Words(dtype, out_dtype, q_scale, k_scale, v_scale)
    if not plain:
        found = forward_warm.call(fp8_arguments.warm(call, words))
    return found or long_way(call, words)


def _the_long_way(given: Given, words: Words) -> tuple[Any, Any]:
    """Check and launch; the same call is quicker the next time."""
    function = "attention"
    _, mask, window, chunk, top_left, scale, softcap, layout, kernel, return_lse = given.words
    device, q, k, v, eight = _tensors(function, given, words, 4)
    if layout not in _LAYOUTS:
        raise ArgumentError(f"{function}: layout={layout!r} is unknown; accepted: "
                            f"{', '.join(_LAYOUTS)}")
    swap = layout == "bhsd"
    q, k, v = (x.swapaxes(1, 2) if swap else x for x in (q, k, v))
    arguments.heads(function, q, k, v)
    batch, queries, heads, _ = q.shape
    lengths, keys = _keys(function, k, batch, given.k_lengths, given.table, device)
    if given.q_lengths is not None:
        lengths = replace(lengths, q_lengths=arguments.integers(
            function, "q_lengths", given.q_lengths, (batch,), device))
    shape = (batch, queries, heads, v.shape[3])
    out = _out(function, given, _swapped(shape, swap), q, k, v, device, words if eight else None)
    seen = masks.named(function, mask, window, chunk, top_left)
    rules = terms.check(
        function, q, Sizes(batch, queries, keys, heads), device, seen, scale=scale,
        softcap=softcap, alibi=given.slopes, bias=given.bias, relative=given.relative,
        sinks=given.sinks)
    scales = _scales(function, words, batch, q, k, device)
    _apart(function, given, out, rules, lengths, scales, device)
    lse = device.empty((batch, heads, queries), "float32") if return_lse else None
    problem = Problem(device, E4M3 if eight else _name(q), q, k, v,
                      out.swapaxes(1, 2) if swap else out, lse, batch, queries, keys, seen, rules,
                      lengths, scales)
    run(function, problem, kernel)
    forward_warm.keep(fp8_arguments.warm(given, words), problem, kernel, out, lse)
    return out, lse


def attention_ragged(q: Any, k: Any, v: Any, q_offsets: Any, kv_offsets: Any = None, *,
                     max_queries: int, mask: str = "null", window: int | None = None,
                     chunk: int | None = None, top_left: bool = False,
                     scale: float | None = None, softcap: float | None = None, alibi: Any = None,
                     relative: Any = None, sinks: Any = None, kv_lengths: Any = None,
                     page_table: Any = None, out: Any = None, return_lse: bool = False,
                     kernel: str | None = None, dtype: str | None = None, out_dtype: Any = None,
                     q_scale: Any = None, k_scale: Any = None, v_scale: Any = None) -> Any:
    """`gpukit.attention` of sequences of different lengths, one after the other.

    Lengths stay on the device: nothing waits for it, and a captured graph may be replayed after
    they have changed.

    Args:
        q: [tokens, heads, d]; sequence b has rows q_offsets[b] to q_offsets[b + 1].
        k, v: [tokens, kv_heads, columns] cut by kv_offsets, or pages with page_table and
            kv_lengths; see `gpukit.attention`.
        q_offsets, kv_offsets: uint32 [batch + 1] on the device, not falling, from 0.
        max_queries: of the longest sequence, or more; decides how much is launched.

    Other arguments, errors: as of `gpukit.attention`. Rows of out past the last offset are not
    written.

    Returns:
        out [tokens, heads, dv]; with return_lse also lse [heads, tokens].
    """
    given = (q, k, v, out, sinks, alibi, None, relative, q_offsets, None, kv_offsets, kv_lengths,
             page_table, ("ragged", mask, window, chunk, top_left, scale, softcap, max_queries,
                          kernel, bool(return_lse)))
    results = _attend(_the_long_ragged_way, given, dtype, out_dtype, q_scale, k_scale, v_scale)
    return results if return_lse else results[0]


def _the_long_ragged_way(given: Given, words: Words) -> tuple[Any, Any]:
    function = "attention_ragged"
    _, mask, window, chunk, top_left, scale, softcap, most, kernel, return_lse = given.words
    paged = given.table is not None
    device, q, k, v, eight = _tensors(function, given, words, 3, 4 if paged else 3)
    q = q[None]
    k, v = (k, v) if paged else (k[None], v[None])
    arguments.heads(function, q, k, v)
    q_offsets = arguments.integers(function, "q_offsets", given.q_offsets, (None,), device)
    batch, (tokens, heads) = max(q_offsets.shape[0] - 1, 0), q.shape[1:3]
    most = _count(function, most, tokens)
    lengths, keys = _ragged_keys(function, k, batch, given.k_offsets, given.k_lengths, given.table,
                                 device)
    out = _out(function, given, (tokens, heads, v.shape[3]), q, k, v, device,
               words if eight else None)
    seen = masks.named(function, mask, window, chunk, top_left)
    rules = terms.check(
        function, q, Sizes(batch, tokens, None, heads), device, seen, scale=scale, softcap=softcap,
        alibi=given.slopes, bias=None, relative=given.relative, sinks=given.sinks)
    lengths = replace(lengths, q_offsets=q_offsets)
    scales = _scales(function, words, batch, q, k, device)
    _apart(function, given, out, rules, lengths, scales, device)
    lse = device.empty((heads, tokens), "float32") if return_lse else None
    if batch and most:
        problem = Problem(device, E4M3 if eight else _name(q), q, k, v, out[None],
                          None if lse is None else lse[None], batch, most, keys, seen, rules,
                          lengths, scales)
        run(function, problem, kernel)
        forward_warm.keep(fp8_arguments.warm(given, words), problem, kernel, out, lse)
    return out, lse


def _tensors(function: str, given: Given, words: Words, rank: int,
             rank_kv: int | None = None) -> tuple[Device, Any, Any, Any, bool]:
    """q, k, v, and whether they are bytes that hold e4m3."""
    q, k, v, eight = fp8_arguments.unpack(function, given.q, given.k, given.v, words)
    if eight:
        fp8_arguments.refuse_terms(function, softcap=given.words[6], alibi=given.slopes,
                                   bias=given.bias, relative=given.relative)
    device, q = arguments.tensor(function, "q", q, rank, None, eight=eight)
    _, k = arguments.tensor(function, "k", k, rank_kv or rank, device, q.dtype, eight=eight)
    _, v = arguments.tensor(function, "v", v, rank_kv or rank, device, q.dtype, eight=eight)
    return device, q, k, v, eight


def _out(function: str, given: Given, shape: tuple[int, ...], q: Any, k: Any, v: Any,
         device: Device, eight: Words | None) -> Any:
    inputs = {"q": q, "k": k, "v": v}
    if eight is None:
        return arguments.out(function, given.out, shape, q, device, inputs)
    return fp8_arguments.out(function, given.out, shape, eight.out_dtype, device, inputs)


def _apart(function: str, given: Given, out: Any, rules: Terms, lengths: Lengths, scales: Scales,
           device: Device) -> None:
    """A given out shares no memory with what else is read."""
    if given.out is not None:
        arguments.apart(function, out, {
            "alibi": rules.slopes, "bias": rules.bias, "relative": rules.relative,
            "sinks": rules.sinks, "q_offsets": lengths.q_offsets, "q_lengths": lengths.q_lengths,
            "kv_offsets": lengths.k_offsets, "kv_lengths": lengths.k_lengths,
            "page_table": lengths.table, "q_scale": scales.q, "k_scale": scales.k,
            "v_scale": scales.v}, device)


def _scales(function: str, words: Words, batch: int, q: Any, k: Any, device: Device) -> Scales:
    return fp8_arguments.scales(function, words, batch, q.shape[2], k.shape[2], device)


def _keys(function: str, k: Any, batch: int, kv_lengths: Any, page_table: Any,
          device: Device) -> tuple[Lengths, int]:
    """Where keys end, and how many a sequence has at most."""
    if kv_lengths is not None:
        kv_lengths = arguments.integers(function, "kv_lengths", kv_lengths, (batch,), device)
    if page_table is None:
        if k.shape[0] != batch:
            raise ArgumentError(f"{function}: k has a batch of {k.shape[0]}, q of {batch}; they "
                                "must be equal")
        return Lengths(k_lengths=kv_lengths), k.shape[1]
    if kv_lengths is None:
        raise ArgumentError(f"{function}: page_table needs kv_lengths")
    table = arguments.integers(function, "page_table", page_table, (batch, None), device)
    return Lengths(k_lengths=kv_lengths, table=table), k.shape[1] * table.shape[1]


def _ragged_keys(function: str, k: Any, batch: int, kv_offsets: Any, kv_lengths: Any,
                 page_table: Any, device: Device) -> tuple[Lengths, int]:
    if page_table is not None:
        if kv_offsets is not None:
            raise ArgumentError(f"{function}: kv_offsets and page_table exclude each other")
        return _keys(function, k, batch, kv_lengths, page_table, device)
    if kv_offsets is None:
        raise ArgumentError(f"{function}: kv_offsets is missing; accepted: uint32 [batch + 1], or "
                            "page_table and kv_lengths")
    if kv_lengths is not None:
        raise ArgumentError(f"{function}: kv_lengths goes with page_table; kv_offsets tell lengths")
    offsets = arguments.integers(function, "kv_offsets", kv_offsets, (batch + 1,), device)
    return Lengths(k_offsets=offsets), k.shape[1]


def _count(function: str, value: Any, tokens: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value <= tokens:
        raise ArgumentError(f"{function}: max_queries={value!r} is not accepted; 0 to q's {tokens} "
                            "rows")
    return int(value)


def _swapped(shape: tuple[int, ...], swap: bool) -> tuple[int, ...]:
    return (shape[0], shape[2], shape[1], shape[3]) if swap else shape


def _name(q: Any) -> str:
    found = dtypes.of(q.dtype)
    assert found is not None  # checked with the other arguments
    return found.name
