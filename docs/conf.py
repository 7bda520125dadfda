"""How the book is built: `sphinx-build -W -b html docs docs/_build`.

Pages of the kernels are generated from their sources and from the tables in `results/`; a number
that a page needs and no table holds stops the build.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from book import figures, ladders, links, numbers, tables  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "gpukit"
extensions = ["myst_parser"]
source_suffix = [".md"]
exclude_patterns = ["_build", "book"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "gpukit"
html_copy_source = False


def setup(app: Sphinx) -> None:
    """Check the numbers and write the generated pages before Sphinx looks for its sources."""
    numbers.require_all(HERE.parent)
    ladders.write(HERE.parent, HERE / "generated" / "kernels")
    tables.write(HERE.parent, HERE / "generated" / "results")
    figures.write(HERE / "generated" / "layouts")
    app.connect("source-read", links.to_pages)
