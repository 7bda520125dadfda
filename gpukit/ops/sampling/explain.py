"""Which variant of a kernel a call would launch, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpukit.kernels.spec import Value
from gpukit.ops.sampling import choose, ladder, rows


def explain(op: str, logits: Any, settings: Mapping[str, Any] | None = None,
            tunables: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """The tunables, grid and block for these logits: what is chosen by B, V and k.

    Args:
        op: "argmax", "softmax", "gumbel", "top_k", "sample", or "resident", the sampler that keeps
            rows in shared memory, or a rung of the ladder.
        settings: as given to the op; `top_k` alone matters.
        tunables: overrides, as given to the op.
    """
    top_k, tunables = (settings or {}).get("top_k", 0), tunables or {}
    if op in ladder.RUNGS:
        return ladder.explain_rung(op, logits, int(top_k), tunables)
    given = rows.adopt(op, "logits", logits)
    if op == "softmax":
        chosen = import_module("gpukit.ops.sampling.softmax").warps(given)
    elif op == "argmax":
        chosen = import_module("gpukit.ops.sampling.argmax").choose(given)
    elif op == "gumbel":
        chosen = import_module("gpukit.ops.sampling.gumbel").choose(given)
    elif op == "resident":
        chosen = resident(logits, top_k)
    else:
        chosen = choose.streamed(given, top_k)
    chosen = {**chosen, **tunables}
    facts = {name: value for name, value in chosen.items() if name not in ("dtype", "threads")}
    teams = -(-given.count // int(chosen.get("turns", 1)))
    return {"grid": teams * int(chosen["cluster"]), "block": chosen["threads"], **facts}


def resident(logits: Any, top_k: Any) -> dict[str, Value]:
    """Tunables that make `sample` keep rows in shared memory."""
    given = rows.adopt("sample", "logits", logits)
    return dict(import_module("gpukit.ops.sampling.sample").tuned(given, top_k))
