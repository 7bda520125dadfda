"""Peers beside the measured kernel: what a row knows of one that ran, or of one that did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpukit.measure import Work

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PeerWork(Work):
    """A peer that runs here. ``facts`` (numbers and words) go into its entry of the row."""

    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Absent:
    """A peer that was asked for and cannot run this case here, and why."""

    peer: str
    reason: str

    def __str__(self) -> str:
        return f"peer {self.peer} cannot run this case: {self.reason}"
