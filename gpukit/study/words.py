"""Numbers and lists as the report writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpukit.bench.formats import markdown_table

_MIB = 1 << 20
#: What the report calls the states that rows name by how they are brought about.
STATES = {"rotate": "cold", "flush": "flushed", "hot": "hot"}


def size(nbytes: float) -> str:
    """Bytes in binary units: ``64 MiB``, ``1.5 GiB``."""
    mib = nbytes / _MIB
    if mib < 1:
        return f"{nbytes / 1024:.3g} KiB"
    return f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{mib:.3g} MiB"


def times(count: int, what: str) -> str:
    """``1 wave``, ``4 waves``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def percent(share: float, digits: int = 1) -> str:
    """A share: ``5.3 %``."""
    return f"{100 * share:.{digits}f} %"


def listed(items: Iterable[object]) -> str:
    """``a, b and c``; ``none`` of nothing."""
    words = [str(item) for item in items]
    if len(words) < 2:
        return words[0] if words else "none"
    return f"{', '.join(words[:-1])} and {words[-1]}"


def table(header: Sequence[str], body: Sequence[Sequence[object]], left: int = 1) -> list[str]:
    """Lines of a Markdown table whose first ``left`` columns are words, the others numbers."""
    cells = [[str(cell) for cell in line] for line in body]
    right = [at >= left for at in range(len(header))]
    return [*markdown_table(header, cells, right), ""] if body else []


def number(value: float | None, digits: int = 0) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
