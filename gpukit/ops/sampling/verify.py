"""Speculative decoding: which drafted tokens stand, and the token that follows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpukit import devices, kernels
from gpukit.devices.protocol import Device
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import Value
from gpukit.ops.sampling import rows

MOST_DRAFTS = 256


def verify_drafts(drafts: Any, target: Any, draft: Any = None, *, lengths: Any = None,
                  seed: Any = 0, position: Any = 0, out: Any = None, accepted: Any = None,
                  tunables: Mapping[str, Value] | None = None) -> Any:
    """Accept a chain of drafts per row and draw the token after it: in law, draws from `target`.

    Draft t at step i stands if u p_i(t) < q_i(t). After the first that does not, the next token is
    drawn from max(q_i - p_i, 0), or from q_i where that is zero; after the last draft from q_n. NaN
    counts as 0; drafts outside the vocabulary never stand. Numbers are Philox's of (seed,
    position): block i of domain 3 for draft i, domain 4 for the draw.

    Args:
        drafts: int32 or int64 [B, n], n up to 256.
        target: float32 [B, n + 1, V], the model's probabilities q.
        draft: float32 [B, n, V], the probabilities p that drafts were drawn from; None: certain,
            as greedy drafts are. A greedy target is one whose probabilities are 0 and 1.
        lengths: int32 [B], how many drafts a row has; None: n.
        seed: an integer, or uint64 [B].
        position: an integer, or int64 [B].
        out: int64 [B, n + 1].
        accepted: int32 [B], written: how many drafts stand.
        tunables: overrides of `gpukit.kernels.sampling_draw.VERIFY`'s.

    Returns:
        int64 [B, n + 1]: the drafts that stand, the token that follows, then -1.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
    """
    device, tokens = devices.adopt("drafts", drafts, "verify_drafts")
    if tokens.ndim != 2 or tokens.dtype.name not in ("int32", "int64") or (
            tokens.shape[1] > MOST_DRAFTS):
        raise ArgumentError(f"verify_drafts: drafts is {tokens.dtype}{list(tokens.shape)}; "
                            f"accepted: int32 or int64 [B, n], n up to {MOST_DRAFTS}")
    b, n = tokens.shape
    tokens = rows.vector("verify_drafts", "drafts", tokens, (b, n), tokens.dtype, device)
    q, width = _probabilities("target", target, b, n + 1, None, device)
    p = None if draft is None else _probabilities("draft", draft, b, n, width, device)[0]
    given = rows.adopt("verify_drafts", "target", q.reshape(b * (n + 1), width))
    pairs = [rows.setting("verify_drafts", name, value, dtype, b, device) for name, value, dtype in
             (("seed", seed, "uint64"), ("position", position, "int64"))]
    if lengths is not None:
        lengths = rows.vector("verify_drafts", "lengths", lengths, (b,), "int32", device)
    out = rows.output("verify_drafts", "out", out, (b, n + 1), "int64", device)
    if accepted is not None:
        accepted = rows.output("verify_drafts", "accepted", accepted, (b,), "int32", device)
    if b:
        chosen = {**_choose(b, device), "index": "i64" if tokens.dtype.itemsize == 8 else "i32",
                  **(tunables or {})}
        kernel = device.compile(kernels.get("sampling.verify"), chosen)
        kernel.launch((b * int(chosen["cluster"]),), (int(chosen["threads"]),), (
            tokens, lengths, p, given.array, *(pointer for pointer, _ in pairs), out, accepted, n,
            width, *(number for _, number in pairs)))
    return out


def _probabilities(name: str, given: Any, b: int, n: int, width: int | None,
                   device: Device) -> tuple[Any, int]:
    array = devices.adopt(name, given, "verify_drafts")[1]
    if array.ndim != 3 or array.shape[2] < 1:
        raise ArgumentError(f"verify_drafts: {name} has shape {array.shape}; accepted: "
                            f"[{b}, {n}, V]")
    v = array.shape[2] if width is None else width
    if v > 2**23:
        raise ArgumentError(f"verify_drafts: {name} has {v} columns; accepted: 1 to {2**23}")
    return rows.vector("verify_drafts", name, array, (b, n, v), "float32", device), v


def _choose(b: int, device: Device) -> dict[str, Value]:
    sms = device.properties.sm_count
    return {"threads": 256, "cluster": next((c for c in (1, 2, 4) if c * b >= 2 * sms), 8)}
