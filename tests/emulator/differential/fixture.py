"""A recorded group: PTX, digests, outputs and where they come from, in one ``.npz``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .model import Array

NOT_RUN, HUNG = "not run", "hung or ended its process"  # errors that say nothing about a case
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@dataclass
class Record:
    """What one case left behind: outputs as raw bytes, or why there are none."""

    digest: str
    ptx: str
    outputs: list[bytes] = field(default_factory=list)
    error: str = ""


@dataclass
class Fixture:
    """All records of a group by case name, and the recording machine."""

    info: dict[str, Any]
    records: dict[str, Record]

    def save(self, path: Path) -> None:
        """Write a compressed ``.npz``: one blob of bytes, one of text, a JSON index."""
        index = [
            [name, r.digest, len(r.ptx), [len(o) for o in r.outputs], r.error]
            for name, r in self.records.items()
        ]
        np.savez_compressed(
            path,
            index=_text(json.dumps({"info": self.info, "cases": index})),
            ptx=_text("".join(r.ptx for r in self.records.values())),
            outputs=np.frombuffer(
                b"".join(b"".join(r.outputs) for r in self.records.values()), np.uint8
            ),
        )

    @classmethod
    def load(cls, path: Path) -> Fixture:
        with np.load(path) as file:
            index = json.loads(file["index"].tobytes())
            text, blob = file["ptx"].tobytes().decode(), file["outputs"].tobytes()
        records, at, start = {}, 0, 0
        for name, digest, length, sizes, error in index["cases"]:
            outputs = []
            for size in sizes:
                outputs.append(blob[at : at + size])
                at += size
            records[name] = Record(digest, text[start : start + length], outputs, error)
            start += length
        return cls(index["info"], records)


def _text(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)
