"""Results from elsewhere: whether a document or a row has the form that everything relies on.

Whoever reads a result reads it through here, so that a file written by hand, by a script or by a
broken program is refused in one line that says where and why. Keys that are not known are fine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

#: Deeper structures than this are no results, and could exhaust the stack later on.
MAX_DEPTH = 20

#: A check gets a value and where it stands; it raises ValueError.
Check = Callable[[Any, str], None]


def check_document(document: Mapping[str, Any]) -> None:
    """Check a result document but for its version; raises ValueError, which says where and why."""
    _shallow(document)
    _table(document["rows"], "rows", check_row)
    _object(_object(_anything))(document.get("environments", {}), "environments")
    _table(document.get("runs", []), "runs", _run)


def check_row(row: Any, where: str = "row") -> None:
    """Check one row in the form of `Row.to_dict`."""
    _object(_anything)(row, where)
    for name, check in _ROW.items():
        if name in row:
            check(row[name], f"{where}.{name}")
        elif name in _REQUIRED:
            raise ValueError(f"{where} has no {name!r}")


def _run(run: Any, where: str) -> None:
    _object(_anything)(run, where)
    if run.get("command") is not None:
        _table(run["command"], f"{where}.command", _text)
    _or_null(_object(_or_null(_ceiling)))(run.get("ceilings"), f"{where}.ceilings")


def _ceiling(values: Any, where: str) -> None:
    _object(_anything)(values, where)
    for name in ("gbs", "tflops"):
        _or_null(_number)(values.get(name), f"{where}.{name}")


def _shallow(tree: Any) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [item for node in level for item in _children(node)]
    if level:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _refuse(where: str, value: Any, wanted: str) -> ValueError:
    shown = repr(value)
    return ValueError(f"{where} is {shown if len(shown) <= 40 else shown[:37] + '...'}, {wanted}")


def _anything(value: Any, where: str) -> None:
    return None


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise _refuse(where, value, "not text")


def _integer(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(where, value, "not an integer")


def _number(value: Any, where: str) -> None:
    most = sys.float_info.max
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -most <= value <= most:
        raise _refuse(where, value, "not a finite number")


def _scalar(value: Any, where: str) -> None:
    if isinstance(value, (list, dict)):
        raise _refuse(where, value, "not a single value")


def _or_null(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def _object(check: Check) -> Check:
    """Return a check for objects (dicts) whose every value passes ``check``."""

    def check_object(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _refuse(where, value, "not an object")
        for name, item in value.items():
            check(item, f"{where}.{name}")

    return check_object


def _table(value: Any, where: str, check: Check) -> None:
    """Check a list whose every item passes ``check``."""
    if not isinstance(value, list):
        raise _refuse(where, value, "not a list")
    for index, item in enumerate(value):
        check(item, f"{where}[{index}]")


def _samples(value: Any, where: str) -> None:
    _table(value, where, _number)


def _counters(counters: Any, where: str) -> None:
    """Check counters of the emulator: numbers, and groups of numbers (kinds of traffic)."""
    _object(_anything)(counters, where)
    for name, value in counters.items():
        if isinstance(value, dict) or name in _TRAFFIC:
            _group(value, f"{where}.{name}")
        else:
            _or_null(_number)(value, f"{where}.{name}")


def _group(group: Any, where: str) -> None:
    _object(_number)(group, where)
    for name, base in (("sectors", "requests"), ("wavefronts", "ideal")):
        if name in group and base not in group:
            raise ValueError(f"{where} has {name!r} without {base!r}")


def _peer(peer: Any, where: str) -> None:
    _object(_scalar)(peer, where)
    for name in ("time_us", "ratio"):
        _or_null(_number)(peer.get(name), f"{where}.{name}")
    _or_null(_text)(peer.get("reason"), f"{where}.reason")


def _clocks(clocks: Any, where: str) -> None:
    _object(_anything)(clocks, where)
    for name in ("sm_mhz", "power_w"):
        _or_null(_object(_or_null(_number)))(clocks.get(name), f"{where}.{name}")


_TRAFFIC = ("global_loads", "global_stores")
_REQUIRED = ("family", "kernel", "device", "arch", "dtype", "shape", "params", "l2", "method")
_FIGURES = ("error", "time_us", "spread", "gbs", "tflops", "pct_peak", "pct_ceiling")
_WORDS = ("family", "kernel", "device", "arch", "dtype", "l2", "method", "load", "status",
          "message")
_ROW: dict[str, Check] = {
    **dict.fromkeys((*_WORDS, "environment"), _text),
    **dict.fromkeys(_FIGURES, _or_null(_number)),
    "tolerance": _or_null(_text),
    "shape": _object(_integer),
    "params": _object(_scalar),
    "launch": _object(_anything),
    "peers": _object(_peer),
    "counters": _or_null(_counters),
    "clocks": _or_null(_clocks),
    "samples_us": _samples,
}
