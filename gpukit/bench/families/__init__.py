"""The families that ``gpukit bench`` knows, found by name and imported when used.

Besides the built-in ones, a distribution can add its own under the entry point group
``gpukit.families``, and ``GPUKIT_FAMILIES="name=module:attribute;..."`` adds one for a single
run. The attribute is an instance of a `gpukit.bench.model.Family`.
"""

from __future__ import annotations

import importlib
import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from gpukit.bench.model import Family

BUILT_IN = {
    "attention": "gpukit.bench.families.attention:FAMILY",
    "attention-decode": "gpukit.bench.families.attention_decode:FAMILY",
    "ceilings": "gpukit.bench.families.ceilings:FAMILY",
    "elementwise": "gpukit.bench.families.elementwise:FAMILY",
    "memcpy": "gpukit.bench.families.memcpy:FAMILY",
    "matmul": "gpukit.bench.families.matmul:FAMILY",
    "sampling": "gpukit.bench.families.sampling:FAMILY",
    "timer": "gpukit.bench.families.timer:FAMILY",
}
ENTRY_POINT_GROUP = "gpukit.families"
VARIABLE = "GPUKIT_FAMILIES"


def families() -> dict[str, str]:
    """Return family name to ``module:attribute``; later sources replace earlier ones."""
    found = dict(BUILT_IN)
    found.update({point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)})
    found.update(_from_environment())
    return found


def _from_environment() -> dict[str, str]:
    found = {}
    for item in filter(None, os.environ.get(VARIABLE, "").split(";")):
        name, equals, where = item.partition("=")
        if not (name and equals and ":" in where):
            raise ArgumentError(f"{VARIABLE}: {item!r} is not name=module:attribute")
        found[name.strip()] = where.strip()
    return found


def load_family(name: str) -> Family:
    """Import the family ``name``; an unknown one is an error that lists the known ones."""
    known = families()
    if name not in known:
        raise ArgumentError(f"unknown family {name!r}; known: {', '.join(sorted(known))}")
    module, _, attribute = known[name].partition(":")
    try:
        return cast("Family", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as problem:
        raise ArgumentError(f"family {name!r}: cannot load {known[name]} ({problem})") from problem
