"""One launch under several schedules: a correct kernel gives the same answer under all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpukit.emulator import api
from gpukit.emulator.argument_text import Argument
from gpukit.emulator.errors import KernelFault


@dataclass(frozen=True)
class Trial:
    """One run: its counters and printf text, or the fault that ended it; arrays as it left them."""

    policy: str
    arguments: Sequence[Argument]
    result: api.Result | None = None
    fault: KernelFault | None = None


def run_trials(
    source: str | Path,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Callable[[], Sequence[Argument]],
    policies: Sequence[str],
    **options: Any,
) -> list[Trial]:
    """Run once per policy, each on ``arguments()`` of its own; ``options`` as ``emulator.run``.

    Raises ``EmulatorError`` for bad input; a ``KernelFault`` is part of its trial.
    """
    trials = []
    for policy in policies:
        given = arguments()
        values = [argument.value for argument in given]
        try:
            result = api.run(source, grid, block, values, policy=policy, **options)
        except KernelFault as fault:
            trials.append(Trial(policy, given, fault=fault))
        else:
            trials.append(Trial(policy, given, result))
    return trials


def differences(trials: Sequence[Trial]) -> list[str]:
    """One line for each array that is not bit for bit what the first faultless trial left."""
    fine = [trial for trial in trials if trial.fault is None]
    return [
        f"args[{number}] under policy {trial.policy} differs from that under {fine[0].policy}"
        for trial in fine[1:]
        for number, (one, other) in enumerate(
            zip(fine[0].arguments, trial.arguments, strict=True)
        )
        if one.array is not None and one.array.tobytes() != other.array.tobytes()
    ]
