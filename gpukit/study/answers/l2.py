"""Where does L2 stop flattering?"""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.bench.model import Row
from gpukit.study import words
from gpukit.study.design import COLD, FLUSHED, HOT
from gpukit.study.evidence import Evidence
from gpukit.study.table import FASTER, SLOWER, Ratio, rate, traffic

TITLE = "Where does L2 stop flattering?"


@dataclass(frozen=True)
class Point:
    """One size in all three states; ``flattery`` is the time cold over the time hot."""

    hot: Row
    cold: Row
    flushed: Row
    flattery: Ratio
    clean: Ratio

    @property
    def traffic(self) -> int:
        """Bytes read and written."""
        return traffic(self.hot)


def points(evidence: Evidence) -> list[Point]:
    """The f32 copy by the library's own launch, ascending."""
    table, found = evidence.table, []
    for n in table.sizes("copy", "f32", HOT):
        hot, cold, flushed = (table.get("copy", "f32", n, state, {})
                              for state in (HOT, COLD, FLUSHED))
        if hot and cold and flushed:
            found.append(Point(hot, cold, flushed, table.ratio(cold, hot),
                               table.ratio(flushed, cold)))
    return found


def last_flattered(found: list[Point]) -> int | None:
    """The largest traffic at which hot is told to be faster than cold."""
    return max((p.traffic for p in found if p.flattery.verdict == SLOWER), default=None)


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    found = points(evidence)
    if not found:
        return []
    return [_where(evidence, found), "", *_pins(evidence, found), *_dirty(evidence, found),
            *_table(evidence, found)]


def _where(evidence: Evidence, found: list[Point]) -> str:
    last, l2 = last_flattered(found), evidence.l2_bytes
    if last is None:
        return "**At no size**: hot is nowhere distinguishably faster than cold."
    top = max(found, key=lambda p: p.flattery.value)
    most = (f"At most, at {words.size(top.traffic)}, the cold copy takes {top.flattery} times as "
            "long as the hot one.")
    free = next((p.traffic for p in found if p.traffic > last), None)
    if free is None:
        return f"**Not within the sizes measured**, up to {words.size(last)}. {most}"
    return (f"**From {words.size(free)} of traffic on** ({free / l2:.2g} times the L2 of "
            f"{words.size(l2)}) no repeated copy is distinguishably faster than a cold one; the "
            f"largest size at which it is faster is {words.size(last)} ({last / l2:.2g} times the "
            f"L2). {most}")


def _pins(evidence: Evidence, found: list[Point]) -> list[str]:
    pin = evidence.pin_gbs
    above = [p for p in found if pin and rate(p.hot) > pin]
    if not pin or not above:
        return []
    return [f"Hot copies of {words.listed(words.size(p.traffic) for p in above)} "
            f"exceed the pin bandwidth of {pin:.0f} GB/s, which no copy from memory can: such "
            "numbers are those of the cache.", ""]


def _dirty(evidence: Evidence, found: list[Point]) -> list[str]:
    """What a clean L2 saves: the writes that stay in it while the clock runs."""
    large = [p for p in found if p.traffic >= 2 * evidence.l2_bytes and p.clean.verdict == FASTER]
    if not large:
        return []
    saved = [((p.cold.time_us or 0) - (p.flushed.time_us or 0)) * rate(p.cold) * 1e3
             for p in large]
    each = words.listed(f"{words.size(bytes_)} at {words.size(p.traffic)}"
                        for bytes_, p in zip(saved, large, strict=True))
    return ["Flushing flatters too: an L2 full of clean lines takes the last writes without "
            "evicting any, as long as the clock runs. Told by the difference to rotating buffers, "
            f"at the rate of the latter, that spares the traffic of {each}.", ""]


def _table(evidence: Evidence, found: list[Point]) -> list[str]:
    head = ("traffic", "of L2", "hot GB/s", "cold (rotated) GB/s", "flushed GB/s",
            "time cold / hot", "time flushed / cold")
    body = [(words.size(p.traffic), f"{p.traffic / evidence.l2_bytes:.2f}", f"{rate(p.hot):.0f}",
             f"{rate(p.cold):.0f}", f"{rate(p.flushed):.0f}", p.flattery, p.clean) for p in found]
    return words.table(head, body)
