"""How many machine instructions does a loop turn cost?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpukit.study import words
from gpukit.study.evidence import Evidence
from gpukit.study.turns import FORMS, PUBLISHED_ARCH, Turn, published_turns

TITLE = "How many machine instructions does a loop turn cost?"


def answer(evidence: Evidence) -> list[str]:
    """See the module."""
    turns = [_turn(values) for values in evidence.facts.get("turns", [])]
    if not turns:
        return [f"Not counted: {evidence.facts.get('turns_note') or 'the facts hold no counts'}."]
    return [_against_published(turns), "",
            "Counted by disassembling the compiled kernels: the instructions from the target of "
            "the branch back to that branch, in the innermost loop that reads and writes memory.",
            "", *_table(turns), *_listings(turns)]


def _turn(values: Mapping[str, Any]) -> Turn:
    return Turn(**{**values, "listing": tuple(values["listing"])})


def _against_published(turns: list[Turn]) -> str:
    """The published form, compiled now, beside what was published of it."""
    known = [(turn, count) for turn in turns if (count := published_turns(turn)) is not None]
    if not known:
        return f"No published count beside ours: none was made for {PUBLISHED_ARCH}."
    said = [f"{turn.instructions} with a {'32' if turn.index == 'u32' else '64'}-bit counter and "
            f"{turn.vec} element{'s' if turn.vec > 1 else ''} per access ({count} published)"
            for turn, count in known]
    same = sum(turn.instructions == count for turn, count in known)
    return (f"**{same} of {len(known)} counts equal the published ones.** {FORMS[0]}, the "
            "textbook's loop that the published counts are of, takes on "
            f"{PUBLISHED_ARCH} {words.listed(said)}.")


def _table(turns: list[Turn]) -> list[str]:
    head = ("kernel", "target", "counter", "elements per access", "instructions", "published",
            "bytes per turn", "instructions per 16 bytes")
    body = [(turn.kernel, turn.arch, turn.index, turn.vec, turn.instructions,
             words.number(published_turns(turn)), turn.bytes,
             f"{16 * turn.instructions / turn.bytes:.1f}") for turn in turns]
    return words.table(head, body, left=3)


def _listings(turns: list[Turn]) -> list[str]:
    """The loops of the textbook's form with wide accesses."""
    lines = []
    for turn in turns:
        if turn.kernel == FORMS[0] and turn.vec == 4:
            lines += [f"{turn.kernel}, {turn.arch}, {turn.index}:", "", "```", *turn.listing, "```",
                      ""]
    return lines
