"""The examples in documents that need no GPU run, and their assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

DOCS = Path(__file__).resolve().parents[1] / "docs"
NAMES = ("matmul.md", "attention.md", "attention-decode.md", "sampling.md", "layouts.md")
EXAMPLES = [example for name in NAMES for example in
            re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)
            if "import numpy" in example]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str) -> None:
    assert "assert " in example
    exec(example, {})


def test_there_are_examples() -> None:
    assert EXAMPLES
