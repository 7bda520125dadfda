"""Which variant of a kernel a call would launch, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpukit.kernels.spec import Value
from gpukit.ops.sampling import choose, rows


def explain(op: str, logits: Any, settings: Mapping[str, Any],
            tunables: Mapping[str, Value]) -> dict[str, Any]:
    """The tunables, grid and block of "argmax", "softmax" or "sample" for these logits."""
    given = rows.adopt(op, "logits", logits)
    if op == "softmax":
        chosen = choose.staged(op, given)
    elif op == "argmax":
        chosen = import_module("gpukit.ops.sampling.argmax").choose(given)
    else:
        chosen = import_module("gpukit.ops.sampling.sample").tuned(given, settings.get("top_k", 0))
    chosen = {**chosen, **tunables}
    facts = {name: value for name, value in chosen.items() if name not in ("dtype", "threads")}
    return {"grid": given.count * int(chosen["cluster"]), "block": chosen["threads"], **facts}
