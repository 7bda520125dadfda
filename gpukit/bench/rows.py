"""What is written about one case, and the keys that cases and rows are matched by."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpukit.bench.model import Case

#: The load that every row has unless it says otherwise, and the other one.
BURST, SUSTAINED = "burst", "sustained"


class Identified(Protocol):
    """What has a case's identity: a `Case`, or the `Row` it became."""

    @property
    def family(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Mapping[str, int]: ...
    @property
    def params(self) -> Mapping[str, int | str | bool]: ...
    @property
    def l2(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def load(self) -> str: ...


def case_key(case: Identified) -> str:
    """Return the identity of a case: its parts in a fixed order, mappings sorted by name.

    The usual load goes without saying.
    """
    named = {
        "dtype": case.dtype,
        **_sorted(case.shape),
        **_sorted(case.params),
        "l2": case.l2,
        "method": case.method,
        **({} if case.load == BURST else {"load": case.load}),
    }
    return f"{case.family}/{case.kernel} " + " ".join(f"{n}={v}" for n, v in named.items())


def _sorted(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: mapping[name] for name in sorted(mapping)}


@dataclass
class Row:
    """What is written about one case. Field names are the same in every format.

    Rates use powers of ten (GB = 1e9 bytes); times are microseconds. ``error`` is the check's
    ``max |err| / tolerance``. ``peers`` has one entry a peer: ``time_us`` and ``ratio`` (its time
    over ours: above 1, ours is faster) and facts about it, or the ``reason`` it was not timed.
    None stands for "does not apply" and "not measured"; no field is ever NaN.
    """

    family: str
    kernel: str
    device: str
    arch: str
    dtype: str
    shape: dict[str, int]
    params: dict[str, int | str | bool]
    l2: str
    method: str
    launch: dict[str, Any] = field(default_factory=dict)
    status: str = "incomplete"
    message: str = ""
    error: float | None = None
    tolerance: str | None = None
    time_us: float | None = None
    spread: float | None = None
    gbs: float | None = None
    tflops: float | None = None
    pct_peak: float | None = None
    pct_ceiling: float | None = None
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    counters: dict[str, Any] | None = None
    clocks: dict[str, Any] | None = None
    environment: str = ""
    samples_us: list[float] = field(default_factory=list)
    load: str = BURST

    @classmethod
    def of(cls, case: Case, device: str, arch: str, environment: str) -> Row:
        """Return the row of a case that has not run yet."""
        return cls(
            family=case.family,
            kernel=case.kernel,
            device=device,
            arch=arch,
            dtype=case.dtype,
            shape=dict(case.shape),
            params=dict(case.params),
            l2=case.l2,
            method=case.method,
            load=case.load,
            environment=environment,
        )

    @property
    def case_key(self) -> str:
        """The case's identity, whatever the device."""
        return case_key(self)

    @property
    def key(self) -> str:
        """The row's identity: the case on this model of device."""
        return row_key(self.device, self.case_key)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: every field, then ``key``; infinities and NaN become None."""
        return {**_finite(dataclasses.asdict(self)), "key": self.key}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Row:
        """Rebuild a row from `to_dict`; keys that this version does not know are dropped."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


def row_key(device: str, case: str) -> str:
    """Return the identity of a case (its `Case.key`) on a device of this name."""
    return f"{device} {case}"


def _finite(value: Any) -> Any:
    """Return ``value`` with every float that JSON cannot say replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
