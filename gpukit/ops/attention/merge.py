"""`gpukit.merge_states`: attention over parts of the keys, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpukit import dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels import attention as specs
from gpukit.ops import arrays
from gpukit.ops.attention import arguments

_THREADS = 256
_NAME = "merge_states"


def merge_states(states: Sequence[tuple[Any, Any]], *, out: Any = None,
                 return_lse: bool = True) -> Any:
    """One state of states over disjoint sets of keys, exact but for roundings.

    A shared prefix is attended to once and merged with what each sequence has for itself; long
    keys are worked on in pieces. Sinks belong to one of the parts alone.

    Args:
        states: 1 to 8 pairs (out, lse) as `gpukit.attention` returns them: out
            [batch, tokens, heads, dv] in float16 or bfloat16 and lse float32
            [batch, heads, tokens], or out [tokens, heads, dv] and lse [heads, tokens] as of
            `gpukit.attention_ragged`. C-contiguous, all of the same shape and dtype.
        out: where to put the result; may be the output of one of the states.
        return_lse: whether to return the merged lse too.

    Returns:
        (out, lse), or out alone. Where no part saw a key out is 0 and lse minus infinity.

    Raises:
        ArgumentError: names the argument and what is accepted.
    """
    device, outs, lses = _states(states)
    first = outs[0]
    given = _out(out, outs, device, lses)
    lse = device.empty(lses[0].shape, "float32") if return_lse else None
    if first.size:
        _launch(device, outs, lses, given, lse)
    return given if lse is None else (given, lse)


def _states(states: Any) -> tuple[Device, list[Any], list[Any]]:
    if not isinstance(states, Iterable):
        raise ArgumentError(f"{_NAME}: states is a {type(states).__name__}; accepted: 1 to "
                            f"{specs.MERGED} pairs (out, lse)")
    pairs = list(states)
    if not 1 <= len(pairs) <= specs.MERGED or not all(map(_is_pair, pairs)):
        raise ArgumentError(f"{_NAME}: states has {len(pairs)} entries; accepted: 1 to "
                            f"{specs.MERGED} pairs (out, lse)")
    device, first, lse = _state(0, pairs[0], None, None)
    outs, lses = [first], [lse]
    for i, pair in enumerate(pairs[1:], 1):
        _, out, lse = _state(i, pair, device, first)
        outs.append(out)
        lses.append(lse)
    return device, outs, lses


def _is_pair(state: Any) -> bool:
    return isinstance(state, tuple | list) and len(state) == 2


def _state(i: int, pair: tuple[Any, Any], device: Device | None,
           like: Any) -> tuple[Device, Any, Any]:
    name, rank = f"states[{i}][0]", len(getattr(pair[0], "shape", ()))
    where, out = arguments.tensor(_NAME, name, pair[0], 3 if rank == 3 else 4, device,
                                  None if like is None else like.dtype)
    if like is not None and out.shape != like.shape:
        raise ArgumentError(f"{_NAME}: {name} has shape {out.shape}, states[0][0] has "
                            f"{like.shape}; they must be equal")
    if not out.flags.c_contiguous:
        raise ArgumentError(f"{_NAME}: {name} is not C-contiguous")
    *batch, tokens, heads, _ = out.shape
    lse = arguments.floats(_NAME, f"states[{i}][1]", pair[1], (*batch, heads, tokens), where)
    if lse is None:
        raise ArgumentError(f"{_NAME}: states[{i}][1] is None; accepted: float32 of shape "
                            f"{(*batch, heads, tokens)}")
    return where, out, lse


def _out(out: Any, outs: list[Any], device: Device, lses: list[Any]) -> Any:
    """Where the result goes. It may be a state's own output: a thread reads before it writes."""
    like = outs[0]
    given = arguments.out(_NAME, out, like.shape, like, device,
                          {f"states[{i}][1]": lse for i, lse in enumerate(lses)})
    if not given.flags.c_contiguous:
        raise ArgumentError(f"{_NAME}: out is not C-contiguous")
    for i, state in enumerate(outs):
        arrays.check_no_overlap(_NAME, f"states[{i}][0]", given, state, device, same_ok=True)
    return given


def _launch(device: Device, outs: list[Any], lses: list[Any], out: Any, lse: Any) -> None:
    tokens, heads, columns = out.shape[-3:]
    wide = columns % 8 == 0 and all(device.phase(x) % 16 == 0 for x in (*outs, out))
    vec = 8 if wide else 1
    name = dtypes.of(out.dtype)
    assert name is not None  # checked with the other arguments
    kernel = device.compile(specs.MERGE, {"dtype": name.name, "vec": vec})
    rest = [None] * (specs.MERGED - len(outs))
    grid = -(-out.size // (vec * _THREADS))
    kernel.launch((grid,), (_THREADS,), (
        out, lse, *outs, *rest, *lses, *rest, len(outs), out.size // columns,
        tokens, heads, columns))


