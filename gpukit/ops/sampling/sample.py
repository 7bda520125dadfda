"""The fused sampler: bitmask, penalties, temperature, min-p, top-k, top-p and the draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpukit import kernels
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import choose, inputs, rows, warm
from gpukit.ops.sampling.edit import apply_penalties
from gpukit.ops.sampling.inputs import Penalties
from gpukit.ops.sampling.rows import Rows

_SETTINGS = (("temperature", "float32"), ("top_k", "int32"), ("top_p", "float32"),
             ("min_p", "float32"), ("seed", "uint64"), ("position", "int64"))


def sample(logits: Any, *, temperature: Any = 1.0, top_k: Any = 0, top_p: Any = 1.0,
           min_p: Any = 0.0, seed: Any = 0, position: Any = 0, joint: bool = False,
           bitmask: Any = None, penalties: Penalties | None = None, out: Any = None,
           status: Any = None, distribution: Any = None,
           tunables: Mapping[str, Value] | None = None) -> Any:
    """One token per row, in one launch.

    In this order: tokens that the bitmask forbids become -infinity; penalties; division by the
    temperature; min-p keeps p >= min_p max p; top-k keeps the k largest, all of those equal to the
    k-th; top-p keeps a token if the mass strictly above it is less than top_p times the mass that
    min-p and top-k kept (`joint`: times the whole mass), so the token that crosses stays. The draw
    is the first token, in the order of the vocabulary, at which the running sum of kept
    probabilities passes a Philox number of (seed, position).

    Temperatures up to 1e-5 (0 included) and rows with +infinity take the first maximum. A NaN
    counts as -infinity. A row with no finite logit gives token 0 and a status without bit 0. The
    token depends on the row, its settings, seed and position alone, bit for bit.

    Args:
        logits: [B, V], float32, float16 or bfloat16, any row stride; unchanged.
        temperature, top_p, min_p: a number, or float32 [B]. top_p >= 1 and min_p 0 are off.
        top_k: an integer, or int32 [B]; 0 or less, or V and more, is off.
        seed: an integer, or uint64 [B].
        position: an integer, or int64 [B]: the step, so that each draws anew.
        bitmask: uint32 or int32 [B, ceil(V / 32)]; bit v % 32 of word v // 32 allows v.
        out: int64 [B].
        status: uint8 [B], written: bit 0 the row is usable, bit 1 it had a NaN.
        distribution: float32 [B, V], written: the probabilities that were drawn from.
        tunables: overrides of `gpukit.kernels.sampling.SAMPLE`'s.

    Returns:
        int64 [B].

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnsupportedError: `stage` among the tunables, and rows too long for it.

    Rows with penalties are kept in a cluster's shared memory. Those above 393216 tokens do not fit:
    a float32 copy of the logits is penalised first, in two launches more and with 4 B V bytes from
    CuPy's pool.
    """
    if joint is not True and joint is not False:
        raise ArgumentError(f"sample: joint={joint!r:.40} is not accepted; True or False")
    if penalties is None and tunables is None:
        quick = _Quick.of(logits, (temperature, top_k, top_p, min_p, seed, position), joint,
                          bitmask, (out, status, distribution))
        done = None if quick is None else warm.call("sample", *quick[:3], quick.numbers)
        if done is not None:
            return done
    else:
        quick = None
    return _checked(logits, (temperature, top_k, top_p, min_p, seed, position), joint, bitmask,
                    penalties, (out, status, distribution), tunables, quick)


def _checked(logits: Any, values: tuple[Any, ...], joint: bool, bitmask: Any,
             penalties: Penalties | None, outputs: tuple[Any, Any, Any],
             tunables: Mapping[str, Value] | None, quick: _Quick | None) -> Any:
    """`sample` of arguments not seen before; `values` in the order of `_SETTINGS`."""
    given = rows.adopt("sample", "logits", logits)
    if penalties is not None and given.width > choose.MOST_RESIDENT:
        given, penalties = _penalized(given, penalties), None
    settings = dict(zip([name for name, _ in _SETTINGS], values, strict=True))
    pointers, numbers = _settings(settings, given)
    mask, mask_pitch = inputs.bitmask("sample", bitmask, given, given.count)
    lists, strengths, strength0 = inputs.penalties("sample", penalties, given)
    b, top_k = given.count, settings["top_k"]
    out, status, distribution = _outputs(given, *outputs)
    if b and streams(penalties, tunables):
        chosen = choose.sampled(given, {} if distribution is not None else settings)
        _stream(given, {**chosen, **(tunables or {})}, (
            *pointers, mask, out, status, distribution), (
            given.pitch, mask_pitch, given.width, given.width, int(joint), *numbers[:4]),
                tuple(numbers[4:6]), quick)
    elif b:
        _reside(given, dict(tunables or {}), top_k, (
            *pointers, mask), (*lists, *strengths), (
            out, status, distribution, given.pitch, mask_pitch, given.width, given.width,
            int(joint)), (*numbers, *strength0))
    return out


def _outputs(given: rows.Rows, out: Any, status: Any, distribution: Any) -> tuple[Any, Any, Any]:
    """The tokens, made unless given, and what else is to be written."""
    device, b = given.device, given.count
    out = rows.output("sample", "out", out, (b,), "int64", device)
    if status is not None:
        status = rows.output("sample", "status", status, (b,), "uint8", device)
    if distribution is not None:
        distribution = rows.output("sample", "distribution", distribution, (b, given.width),
                                   "float32", device)
    return out, status, distribution


def streams(penalties: Penalties | None, tunables: Mapping[str, Value] | None) -> bool:
    """Whether rows are streamed: not with penalties, nor where resident rows are asked for."""
    return penalties is None and "stage" not in (tunables or {})


def _penalized(given: Rows, penalties: Penalties) -> Rows:
    """A penalised copy: longer rows than a cluster can keep."""
    copy = given.array.astype(np.float32)
    return rows.adopt("sample", "logits", apply_penalties(copy, penalties))


class _Quick(NamedTuple):
    """A call as the short way knows it, if it may go that way."""

    arrays: tuple[Any, ...]
    out_at: int
    words: tuple[Any, ...]
    numbers: tuple[int, ...]

    @staticmethod
    def of(logits: Any, settings: tuple[Any, ...], joint: bool, bitmask: Any,
           results: tuple[Any, ...]) -> _Quick | None:
        """Settings: the six of `sample` in order, of which seed and position are new every time."""
        arrays, words = warm.apart(settings)
        numbers = warm.keyed(words[4], words[5])
        if numbers is None:
            return None
        return _Quick((logits, *arrays, bitmask, *results), _OUT_AT, (*words[:4], bool(joint)),
                      numbers)


_OUT_AT = 8  # the tokens among the kernel's pointers


def _stream(given: Rows, chosen: dict[str, Value], pointers: tuple[Any, ...],
            constants: tuple[Any, ...], numbers: tuple[Any, ...], quick: _Quick | None) -> None:
    kernel = given.device.compile(kernels.get("sampling.stream"), chosen)
    grid, block = (given.count * int(chosen["cluster"]),), (int(chosen["threads"]),)
    kernel.launch(grid, block, (given.array, *pointers, *constants, *numbers))
    if quick is not None and not given.device.emulated:
        warm.keep("sample", quick.arrays, quick.words, pointers[_OUT_AT - 1],
                  kernel.bind(grid, block), constants)


def _reside(given: Rows, tunables: dict[str, Value], top_k: Any, given_inputs: tuple[Any, ...],
            penalties: tuple[Any, ...], results: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
    chosen = {**tuned(given, top_k), **tunables}
    kernel = given.device.compile(kernels.get("sampling.sample"), chosen)
    kernel.launch((given.count * int(chosen["cluster"]),), (int(chosen["threads"]),),
                  (given.array, *given_inputs, *penalties, *results, *numbers))


def tuned(given: Rows, top_k: Any) -> dict[str, Value]:
    """The tunables for these rows; a longer list where k is known to need it."""
    known = isinstance(top_k, int) and top_k > 200
    chosen = choose.staged("sample", given)
    if known and int(chosen["stage"]) <= 64:
        chosen["blocks"] = 2
    return {**chosen, "candidates": 2048 if known else 512}


def _settings(values: Mapping[str, Any], given: Rows) -> tuple[list[Any], list[Any]]:
    pairs = [rows.per_row("sample", name, values[name], dtype, given) for name, dtype in _SETTINGS]
    return [pointer for pointer, _ in pairs], [number for _, number in pairs]
