"""The rules that ``checks=True`` adds, by name, and which of them a launch leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import items, shown

#: What each rule looks for. Kernels of others may be run without some of them.
RULES = {
    "races": "accesses to shared or global memory, or to an mbarrier, that nothing orders",
    "proxy-fences": "what needs a fence.proxy.async and has none",
    "async-hazards": "memory used while a copy, wgmma or mma may still use it",
    "tensor-fences": "tcgen05 operations without the tcgen05.fence that must order them",
    "tensor-hazards": "Tensor Memory used while others may use it: not waited for, or unordered",
    "exits": "a CTA that ends while its shared memory may still be used",
    "uninitialized": "reads of shared or Tensor Memory that nothing has written",
}


class Rules:
    """Which rules a launch is held to: all but those that are ignored."""

    def __init__(self, ignored: Iterable[str] = ()) -> None:
        self._ignored = frozenset(ignored)

    def holds(self, rule: str) -> bool:
        """Whether the launch is held to a rule."""
        return rule not in self._ignored

    def report(self, rule: str, fault: Exception) -> None:
        """Raise the fault; if the rule is ignored, go on as if nothing were wrong."""
        if self.holds(rule):
            raise fault


def take_rules(given: object) -> tuple[str, ...]:
    """The names of rules to ignore. Raises ``LaunchError`` for one that is not known."""
    names: tuple[str, ...] = items("ignore", given, str, "names of rules")
    for name in names:
        if name not in RULES:
            raise LaunchError(f"ignore: no rule is called {shown(name)}; known: {', '.join(RULES)}")
    return names
