"""Links that lead to folders and tables on a code host lead to pages inside the book."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LINK = re.compile(r"\]\(\.\./(cuda_src/([\w/]+)|results/h200/([\w/-]+)\.md)\)")


def to_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Sphinx's `source-read`: let links into the repository lead to generated pages."""
    generated = Path(app.srcdir) / "generated"

    def target(found: re.Match[str]) -> str:
        name = (f"kernels/{found[2].replace('/', '-')}.md" if found[2]
                else f"results/{found[3]}.md")
        return f"](generated/{name})" if (generated / name).exists() else found[0]

    source[0] = _LINK.sub(target, source[0])
