"""What the sampling kernels are compared with, on the same logits.

torch:       argmax; softmax; topk; for gumbel softmax and the exponential race; for samplers
             softmax and multinomial where nothing is filtered, and otherwise the path by sorting
             (sort, mask by rank and by cumulated probability, draw).
torch_topk:  top-k first, then the rest on k values; for samplers with a k.
flashinfer:  its softmax, and its sampling from probabilities by rejection.
flashinfer_logits: its top-k and top-p from logits, which a division by the temperature goes before.
flashinfer_topk: its top-k first, then its top-p on k values: fewer bytes than either for a small k.
Only torch's argmax and softmax write our output; drawn tokens differ with every generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.errors import UnsupportedError
from gpukit.ops.sampling.ladder import RUNGS

_SAMPLERS = ("sample", "resident", *RUNGS)
# FlashInfer's own generator asks the host, which a graph cannot capture; numbers given do not.
_SEED = {"seed": 7, "offset": 0}


@dataclass(frozen=True)
class Problem:
    """A case as its peers see it: arrays per slot, and the sampler's settings."""

    op: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    settings: dict[str, Any]


Call = Callable[[Any, Any], Any]


def _on_torch(problem: Problem, call: Call) -> Launch:
    inputs = [as_torch(x) for x in problem.inputs]
    outputs = [as_torch(x) for x in problem.outputs]

    def launch(slot: int) -> None:
        with torch_stream():
            call(inputs[slot], outputs[slot])

    return launch


def _torch(problem: Problem) -> Launch:
    import torch

    if problem.op == "argmax":
        return _on_torch(problem, lambda x, out: torch.argmax(x, 1, out=out))
    if problem.op == "top_k":
        return _on_torch(problem, lambda x, out: torch.topk(x, problem.settings["top_k"], 1))
    temperature = max(problem.settings["temperature"], 1e-5)
    if problem.op == "softmax":
        return _on_torch(problem, lambda x, out: torch.softmax(
            x if temperature == 1 else x / temperature, 1, dtype=torch.float32, out=out))
    if problem.op == "gumbel":
        return _on_torch(problem, lambda x, out: torch.argmax(
            torch.softmax(x.float() / temperature, 1) / torch.empty_like(
                x, dtype=torch.float32).exponential_(), 1))
    k, p = problem.settings["top_k"], problem.settings["top_p"]
    min_p = problem.settings.get("min_p", 0.0)
    if k == 0 and p == 1 and min_p == 0:
        return _on_torch(problem, lambda x, out: torch.multinomial(
            torch.softmax(x.float() / temperature, 1), 1))
    return _on_torch(problem, lambda x, out: _by_sorting(x.float() / temperature, k, p,
                                                         min_p))


def _by_sorting(x: Any, k: int, p: float, min_p: float) -> Any:
    import torch

    values, index = torch.sort(x, 1, descending=True)
    if k:
        values[:, k:] = float("-inf")
    return _from_sorted(torch.softmax(values, 1), index, p, min_p)


def _from_sorted(probabilities: Any, index: Any, p: float, min_p: float) -> Any:
    """Drops what top-p and min-p drop and draws by the exponential race."""
    import torch

    kept = probabilities.cumsum(1) - probabilities < p
    kept &= probabilities >= min_p * probabilities[:, :1]
    race = probabilities * kept / torch.empty_like(probabilities).exponential_()
    return index.gather(1, race.argmax(1, keepdim=True))


def _torch_topk(problem: Problem) -> Launch:
    import torch

    k = problem.settings.get("top_k", 0)
    if problem.op not in _SAMPLERS or not k:
        raise UnsupportedError("it is for samplers with a top_k")
    temperature = max(problem.settings["temperature"], 1e-5)

    def call(x: Any, out: Any) -> Any:
        values, index = torch.topk(x, k, 1)
        return _from_sorted(torch.softmax(values.float() / temperature, 1), index,
                            problem.settings["top_p"], problem.settings.get("min_p", 0.0))

    return _on_torch(problem, call)


def _flashinfer(problem: Problem) -> Launch:
    sampling: Any = import_module("flashinfer.sampling")

    if problem.op == "argmax":
        raise UnsupportedError("it has no argmax")
    if problem.op == "top_k":
        flashinfer: Any = import_module("flashinfer")
        return _on_torch(problem, lambda x, out: flashinfer.top_k(x, problem.settings["top_k"],
                                                                  sorted=True))
    temperature = problem.settings["temperature"]
    if problem.op == "softmax":
        return _on_torch(problem, lambda x, out: sampling.softmax(x, temperature))
    if problem.op == "gumbel":
        return _on_torch(problem, lambda x, out: sampling.sampling_from_logits(x / temperature,
                                                                               **_SEED))
    k, p = _filters(problem)
    order = "joint" if problem.op == "s4" else "top_k_first"

    def call(x: Any, out: Any) -> Any:
        probabilities = sampling.softmax(x, temperature)
        if k and p < 1:
            return sampling.top_k_top_p_sampling_from_probs(probabilities, k, p, **_SEED,
                                                            filter_apply_order=order)
        if k:
            return sampling.top_k_sampling_from_probs(probabilities, k, **_SEED)
        if p < 1:
            return sampling.top_p_sampling_from_probs(probabilities, p, **_SEED)
        return sampling.sampling_from_probs(probabilities, **_SEED)

    return _on_torch(problem, call)


def _filters(problem: Problem) -> tuple[int, float]:
    if problem.settings.get("min_p"):
        raise UnsupportedError("its min-p goes with neither top-k nor top-p")
    return problem.settings["top_k"], problem.settings["top_p"]


def _flashinfer_logits(problem: Problem) -> Launch:
    sampling: Any = import_module("flashinfer.sampling")

    if problem.op not in _SAMPLERS or not problem.settings["top_k"]:
        raise UnsupportedError("it is for samplers with a top_k")
    k, p = _filters(problem)
    order = "joint" if problem.op == "s4" else "top_k_first"
    temperature = max(problem.settings["temperature"], 1e-5)
    return _on_torch(problem, lambda x, out: sampling.top_k_top_p_sampling_from_logits(
        x.float() / temperature, k, p, **_SEED, filter_apply_order=order))


def _flashinfer_topk(problem: Problem) -> Launch:
    import torch

    flashinfer: Any = import_module("flashinfer")
    sampling: Any = import_module("flashinfer.sampling")

    if problem.op not in _SAMPLERS or not problem.settings["top_k"]:
        raise UnsupportedError("it is for samplers with a top_k")
    k, p = _filters(problem)
    temperature = max(problem.settings["temperature"], 1e-5)

    def call(x: Any, out: Any) -> Any:
        values, index = flashinfer.top_k(x, k, sorted=True)
        probabilities = torch.softmax(values.float() / temperature, 1)
        drawn = (sampling.top_p_sampling_from_probs(probabilities, p, **_SEED) if p < 1 else
                 sampling.sampling_from_probs(probabilities, **_SEED))
        return index.gather(1, drawn.long()[:, None])

    return _on_torch(problem, call)


PEERS: dict[str, Callable[[Problem], Launch]] = {
    "torch": _torch, "torch_topk": _torch_topk, "flashinfer": _flashinfer,
    "flashinfer_logits": _flashinfer_logits, "flashinfer_topk": _flashinfer_topk,
}
