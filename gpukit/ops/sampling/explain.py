"""Which variant of a kernel a call would launch, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gpukit import kernels
from gpukit.devices.protocol import Device
from gpukit.dtypes import DType
from gpukit.errors import ArgumentError
from gpukit.kernels.spec import KernelSpec, Value
from gpukit.ops.sampling import ladder, rows
from gpukit.ops.sampling.rows import Rows


def explain(op: str, logits: Any, settings: Mapping[str, Any] | None = None,
            tunables: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """The tunables, grid and block for these logits: what is chosen by B, V and k.

    Args:
        op: "argmax", "softmax", "gumbel", "top_k", "sample", or "resident", the sampler that keeps
            rows in shared memory, or a rung of the ladder.
        settings: as given to the op; filters matter.
        tunables: overrides, as given to the op.
    """
    settings, tunables = settings or {}, tunables or {}
    if op in ladder.RUNGS:
        return ladder.explain_rung(op, logits, int(settings.get("top_k", 0)), tunables)
    chosen = {**_choose(op, rows.adopt("explain", "logits", logits), settings), **tunables}
    facts = {name: value for name, value in chosen.items() if name not in ("dtype", "threads")}
    teams = -(-len(logits) // int(chosen.get("turns", 1)))
    return {"grid": teams * int(chosen["cluster"]), "block": chosen["threads"], **facts}


def _choose(op: str, given: Rows, settings: Mapping[str, Any]) -> dict[str, Value]:
    if op not in _CHOICES:
        raise ArgumentError(f"explain: op={op!r:.40} is unknown; accepted: "
                            f"{', '.join((*_CHOICES, *ladder.RUNGS))}")
    function, takes = _CHOICES[op]
    module, _, name = function.partition(".")  # the ops' modules are hidden by their functions
    choice = getattr(import_module(f"gpukit.ops.sampling.{module}"), name)
    if takes == "settings":
        return dict(choice(given, settings))
    return dict(choice(given, settings.get("top_k", 0)) if takes else choice(given))


_CHOICES = {"sample": ("choose.sampled", "settings"), "softmax": ("softmax.warps", ""),
            "argmax": ("argmax.choose", ""), "gumbel": ("gumbel.choose", ""),
            "top_k": ("top_k.choose", ""), "resident": ("sample.tuned", "top_k")}
_KERNELS = {"sample": "sampling.stream", "resident": "sampling.sample"}


def foresee(op: str, device: Device, dtype: DType, shape: tuple[int, int],
            settings: Mapping[str, Any], tunables: Mapping[str, Value],
            ) -> list[tuple[KernelSpec, dict[str, Value]]]:
    """What a call with newly allocated logits of this shape and type would compile.

    Args:
        op, settings, tunables: as of `explain`.
    """
    given = rows.imagine(device, dtype, *shape)
    if op in ladder.RUNGS:
        return ladder.foresee_rung(op, given, int(settings.get("top_k", 0)), tunables)
    chosen = {**_choose(op, given, settings), **tunables}
    if op == "softmax":
        del chosen["turns"]
        chosen |= {"out": "f32", "out_vec": min(given.vec, 4)}
    return [(kernels.get(_KERNELS.get(op, f"sampling.{op}")), chosen)]


def resident(logits: Any, top_k: Any) -> dict[str, Value]:
    """Tunables that make `sample` keep rows in shared memory."""
    return _choose("resident", rows.adopt("sample", "logits", logits), {"top_k": top_k})
