"""Everything that the answers of a report are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpukit.bench.model import Row
from gpukit.devices.protocol import Properties
from gpukit.study.table import Table


@dataclass(frozen=True)
class Evidence:
    """Rows of a study and the facts gathered with them (`gpukit.study.facts`)."""

    rows: Sequence[Row]
    facts: Mapping[str, Any]

    @cached_property
    def table(self) -> Table:
        """The rows that were timed."""
        return Table(self.rows)

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.facts["device"]["name"])

    @cached_property
    def properties(self) -> Properties:
        """What launches are decided by, as far as the facts tell."""
        device = self.facts["device"]
        major, minor = divmod(int(device["arch"].removeprefix("sm_")), 10)
        return Properties(
            name=device["name"], uuid="", capability=(major, minor), shared_per_cta=0,
            sm_count=device["sm_count"], threads_per_sm=device["threads_per_sm"],
            l2_bytes=device["l2_bytes"], memory_bytes=device["memory_bytes"])

    @property
    def l2_bytes(self) -> int:
        """The size of the L2 cache."""
        return self.properties.l2_bytes

    @property
    def memory(self) -> Mapping[str, Any]:
        """Bus width, clocks and the datasheet's bandwidth; empty for emulated devices."""
        return dict(self.facts.get("memory") or {})

    @property
    def pin_gbs(self) -> float | None:
        """The datasheet's bandwidth, else the one computed from bus and clock."""
        from gpukit.study.answers.peak import theoretical

        return self.memory.get("datasheet_gbs") or theoretical(self.memory)
