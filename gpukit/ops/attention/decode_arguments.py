"""What `gpukit.attention_decode` was given, checked: every argument before anything is launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit import devices, dtypes
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.kernels.attention_decode import DIMS
from gpukit.ops import arrays
from gpukit.ops.attention import arguments, decode_extra, decode_narrow, masks
from gpukit.ops.attention.decode_narrow import Scales
from gpukit.ops.attention.plan import Problem

_F = "attention_decode"
_ALIGN = 16  # bytes of the kernels' copies
_MAX_KEYS = (1 << 30) - 1  # positions and distances are added up in 32 bits


@dataclass(frozen=True)
class Call:
    """A checked call.

    Attributes:
        q, out: [sequences, tokens, heads, dim].
        k, v: [sequences or pages, rows, KV heads, dim].
        lse: None or f32 [sequences, heads, tokens].
        extra: None, bias [sequences, tokens, heads, keys] or relative logits [sequences, tokens,
            heads, extent].
        single: the caller's q has no axis of tokens.
        scales: of 8-bit operands.
    """

    device: Device
    problem: Problem
    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any
    lengths: Any
    table: Any
    sinks: Any
    slopes: Any
    extra: Any
    mask: masks.Mask
    scale: float
    softcap: float
    single: bool
    scales: Scales

    @property
    def arrays(self) -> tuple[Any, ...]:
        """In the order of the kernels' parameters."""
        return (self.q, self.k, self.v, self.out, self.lse, self.lengths, self.table, self.sinks,
                self.slopes, self.extra, *(self.scales.arrays if self.problem.queries else ()))

    def results(self) -> tuple[Any, Any]:
        """out and lse of the rank that the caller has."""
        if not self.single:
            return self.out, self.lse
        return self.out[:, 0], None if self.lse is None else self.lse[:, :, 0]


def check(q: Any, k: Any, v: Any, out: Any = None, lengths: Any = None, page_table: Any = None,
          sinks: Any = None, alibi: Any = None, bias: Any = None, relative: Any = None,
          q_scale: Any = None, k_scale: Any = None, v_scale: Any = None, mask: str = "causal",
          window: int | None = None, chunk: int | None = None, scale: float | None = None,
          softcap: float = 0.0, return_lse: bool = False) -> Call:
    """The call, or an error that names the argument.

    Raises:
        ArgumentError, UnsupportedError: see `gpukit.attention_decode`.
    """
    q, k, v = map(decode_narrow.bytes_of, (q, k, v))
    device, q = devices.adopt("q", q, _F)
    k, v = (_adopt_on(device, name, array) for name, array in (("k", k), ("v", v)))
    out, lengths, page_table, sinks, alibi = (
        _adopt(device, name, array) for name, array in
        (("out", out), ("lengths", lengths), ("page_table", page_table),
         ("sinks", sinks), ("alibi", alibi)))
    single, q = q.ndim == 3, _with_tokens("q", q)
    narrow = k.dtype == "uint8"
    dtype = decode_narrow.element(q, out) if narrow else _element(q)
    for name, array in (("k", k), ("v", v)):
        _check_cache(device, name, array, q)
    if k.dtype != v.dtype:
        raise ArgumentError(f"{_F}: v has dtype {v.dtype}, k {k.dtype}; they must be equal")
    if k.shape != v.shape:
        raise ArgumentError(f"{_F}: v has shape {v.shape}, k {k.shape}; they must be equal")
    _check_rows(device, "q", q)
    problem = _problem(device, dtype, q, k, page_table, lengths is not None)
    scales = decode_narrow.scales(device, problem, q, narrow, q_scale, k_scale, v_scale)
    problem = problem._replace(queries=scales.queries)
    _check_vector("lengths", lengths, "uint32", problem.sequences)
    _check_vector("sinks", sinks, "float32", problem.heads)
    _check_vector("alibi", alibi, "float32", problem.heads)
    chosen = masks.named(_F, mask, window, chunk, False)
    extra = decode_extra.check(device, problem, q, single, chosen, bias, relative, sinks)
    uneven = lengths is not None or page_table is not None
    problem = problem._replace(extra=extra.kind, uneven=uneven)
    scale, softcap = arguments.scale(_F, scale, problem.dim), _softcap(softcap)
    out = _output(device, out, q, dtype)
    arrays.check_no_overlap(_F, "q", out, q, device, same_ok=True)
    arguments.apart(_F, out, {"k": k, "v": v, "lengths": lengths, "page_table": page_table,
                              "sinks": sinks, "alibi": alibi, extra.kind: extra.array,
                              **scales.named}, device)
    shape = problem.sequences, problem.heads, problem.tokens
    lse = device.empty(shape, "float32") if return_lse else None
    return Call(device, problem, q, k, v, out, lse, lengths, page_table, sinks, alibi,
                extra.array, chosen, scale * scales.scores, softcap, single, scales)


def _adopt(device: Device, name: str, array: Any) -> Any:
    return None if array is None else _adopt_on(device, name, array)


def _adopt_on(device: Device, name: str, array: Any) -> Any:
    own, adopted = devices.adopt(name, array, _F)
    arrays.check_device(_F, name, own, device)
    return adopted


def _element(q: Any) -> str:
    dtype = arrays.check_float(_F, "q", q).name
    if dtype == "f32":
        raise UnsupportedError(f"{_F}: q has dtype float32; accepted: float16, bfloat16")
    return dtype


def _with_tokens(name: str, array: Any) -> Any:
    """[sequences, heads, dim] as [sequences, 1, heads, dim]."""
    if array.ndim == 3:
        return array[:, None]
    if array.ndim != 4:
        raise ArgumentError(f"{_F}: {name} has shape {array.shape}; accepted: [sequences, heads, "
                            "dim] or [sequences, tokens, heads, dim]")
    return array


def _check_cache(device: Device, name: str, array: Any, q: Any) -> None:
    if array.ndim != 4 or array.shape[3] != q.shape[3]:
        raise ArgumentError(f"{_F}: {name} has shape {array.shape}; accepted: [sequences or pages, "
                            f"rows, KV heads, {q.shape[3]}]")
    if array.dtype not in (q.dtype, "uint8"):
        raise ArgumentError(f"{_F}: {name} has dtype {array.dtype}, q {q.dtype}; they must be "
                            "equal, or that of k and v uint8 (e4m3)")
    _check_rows(device, name, array)


def _check_rows(device: Device, name: str, array: Any) -> None:
    """Rows of dim elements without gaps, each at a multiple of 16 bytes."""
    steps = [step for size, step in zip(array.shape, array.strides, strict=True) if size > 1][:-1]
    if not array.size:
        return
    if array.strides[3] != array.dtype.itemsize or any(step % _ALIGN for step in steps):
        raise ArgumentError(f"{_F}: {name} has strides {array.strides} bytes; accepted: "
                            f"{array.dtype.itemsize} along the last axis, multiples of {_ALIGN} "
                            "along others")
    if device.phase(array) % _ALIGN:
        raise ArgumentError(f"{_F}: {name} starts at an address that is no multiple of {_ALIGN} "
                            "bytes; pass an aligned copy")


def _problem(device: Device, dtype: str, q: Any, k: Any, table: Any, bounded: bool) -> Problem:
    sequences, tokens, heads, dim = q.shape
    rows, kv_heads = k.shape[1:3]
    if dim not in DIMS:
        raise UnsupportedError(f"{_F}: q has a head dim of {dim}; accepted: "
                               f"{', '.join(map(str, DIMS))}")
    if not kv_heads or heads % kv_heads:
        raise ArgumentError(f"{_F}: q has {heads} heads, k {kv_heads}; q's must be a multiple")
    keys = rows
    if table is None and k.shape[0] != sequences:
        raise ArgumentError(f"{_F}: k has {k.shape[0]} sequences, q {sequences}; they must be "
                            "equal (with pages, pass page_table)")
    if table is not None:
        _check_table(table, sequences, rows)
        if not k.shape[0] and table.size and not bounded:
            raise ArgumentError(f"{_F}: k has no pages, and without lengths all entries of "
                                "page_table name one")
        keys = table.shape[1] * rows
    if keys > _MAX_KEYS:
        raise UnsupportedError(f"{_F}: k has room for {keys} keys; at most 2^30 - 1 are supported")
    return Problem(dtype, sequences, tokens, heads, kv_heads, dim, keys,
                   0 if table is None else rows, device.properties.sm_count,
                   device.properties.capability[0] == 9)


def _check_table(table: Any, sequences: int, page: int) -> None:
    if table.ndim != 2 or table.shape[0] != sequences or table.dtype != "uint32":
        raise ArgumentError(f"{_F}: page_table has shape {table.shape} and dtype {table.dtype}; "
                            f"accepted: [{sequences}, entries] of uint32")
    if table.size and (table.strides[1] != 4 or table.strides[0] % 4):
        raise ArgumentError(f"{_F}: page_table has strides {table.strides} bytes; its entries "
                            "must be contiguous")
    if page < 1 or page & (page - 1):
        raise UnsupportedError(f"{_F}: k has pages of {page} rows; accepted: powers of two")


def _check_vector(name: str, array: Any, dtype: str, size: int) -> None:
    if array is None:
        return
    if array.shape != (size,) or array.dtype != dtype or not array.flags.c_contiguous:
        raise ArgumentError(f"{_F}: {name} has shape {array.shape}, dtype {array.dtype} and "
                            f"strides {array.strides}; accepted: ({size},) of {dtype} without gaps")


def _output(device: Device, out: Any, q: Any, dtype: str) -> Any:
    wanted = dtypes.parse(dtype).numpy
    if out is None:
        return device.empty(q.shape, wanted)
    out = _with_tokens("out", out)
    if out.shape != q.shape or out.dtype != wanted:
        raise ArgumentError(f"{_F}: out has shape {out.shape} and dtype {out.dtype}; accepted: "
                            f"{q.shape} of {wanted}")
    _check_rows(device, "out", out)
    arrays.check_writable(_F, "out", out)
    arrays.check_distinct(_F, "out", out)
    return out


def _softcap(value: Any) -> float:
    number = 0.0 if value is None else arrays.check_scalar(_F, "softcap", value)
    far = arguments.FAR
    if number and not 1.0 / far <= number <= far:
        raise ArgumentError(f"{_F}: softcap={number} is not accepted; 0 (none), or {1.0 / far:g} "
                            f"to {far:g}")
    return number
