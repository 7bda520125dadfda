"""The measured tables as pages, as the tool wrote them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path


def write(root: Path, folder: Path) -> None:
    """Copy `results/h200/*.md` below `folder`, each under its own name as the title, and the
    reports of studies with their figures."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in sorted((root / "results" / "h200").glob("*.md")):
        text = re.sub(r"\A# .*", f"# {file.stem}", file.read_text(encoding="utf-8"))
        (folder / file.name).write_text(text, encoding="utf-8")
    reports = sorted((root / "results" / "h200").glob("*/report.md"))
    for report in reports:
        shutil.copytree(report.parent, folder / report.parent.name,
                        ignore=shutil.ignore_patterns("*.json", "*.csv"))
    index = ["# Measured tables", "", "```{toctree}", ":glob:", "", "*",
             *(f"{report.parent.name}/report" for report in reports), "```", ""]
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")
