"""A page for each ladder, and one for each of its kernels: header, numbers, source.

The prose is the kernel's own header comment, so that a reader of the file and a reader of the book
read the same words. The figures come from the named results: without them there is no book.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from book.numbers import MissingNumberError
from gpukit import kernels
from gpukit.bench import embed
from gpukit.bench.ladder import rung
from gpukit.kernels import KernelSpec

_HEADER = re.compile(r"\A((?://.*\n)+)")
_TITLE = re.compile(r"\A(.*?)[.:;,]?\s*\n")


@dataclass(frozen=True)
class Numbers:
    """Where the figures of a ladder's kernels are, which rows, and which columns to show.

    Attributes:
        but: kernels that have none there.
    """

    caption: str
    results: str
    words: str
    but: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ladder:
    """Kernels in the order in which they are read.

    Attributes:
        folder: below `cuda_src/`; names the page.
        kernels: spec names; each page shows that spec's source file.
        numbers: each kernel has a row in every one of them.
    """

    title: str
    folder: str
    kernels: tuple[str, ...]
    numbers: tuple[Numbers, ...]


_CUBE = "m=4096 n=4096 k=4096"
_TIMED = "kernel time_us TFLOPS gain? xcublas"
_COUNTED = ("kernel warp_inst instructions.barrier? st_sect/req? extra.tma_boxes? "
            "extra.l2_to_shared_bytes? extra.multicast_saved_bytes? conflicts?")

LADDERS = (
    Ladder("Matmul on Hopper", "matmul/sm90",
           ("matmul.k1", *(f"matmul.sm90.k{i}" for i in range(2, 9))),
           (Numbers("Measured on an H200, 4096 x 4096 x 4096, bf16",
                    "results/h200/matmul_ladder.json", f"{_CUBE} load=burst {_TIMED}"),
            Numbers("Counted on the emulator", "results/emulated/matmul_ladder.json", _COUNTED))),
    Ladder("Matmul on Blackwell", "matmul/sm100",
           tuple(f"matmul.sm100.k{i}" for i in range(2, 9)),
           (Numbers("Counted on the emulator; no hardware of ours has run it",
                    "results/emulated/matmul_ladder_b200.json", f"{_COUNTED} published"),)),
    Ladder("Matmul on Ampere", "matmul/sm80",
           tuple(f"matmul.sm80.a{i}" for i in range(1, 4)),
           (Numbers("Measured on an H200", "results/h200/matmul_sm80.json", _TIMED),)),
    Ladder("Attention", "attention/sm90",
           ("attention.k1_scores", "attention.k2", *(f"attention.sm90.k{i}" for i in range(3, 6))),
           (Numbers("Measured on an H200, 16 heads of 128 columns, bf16, 16384 tokens",
                    "results/h200/attention_ladder.json",
                    "kernel s mask time_us TFLOPS gain? xcudnn xflash xfa3",
                    but=("attention.k1_scores",)),)),
    Ladder("Attention on Blackwell", "attention/sm100",
           ("attention.k2", "attention.sm100.k3", "attention.sm100.k4"), ()),
    Ladder("Decoding", "attention/decode", ("attention.decode.d6", "attention.decode.d7"), ()),
    Ladder("Sampling", "sampling/ladder", tuple(f"sampling.s{i}" for i in range(1, 6)), ()),
    Ladder("wgmma by hand", "wgmma", ("wgmma.multiply", "wgmma.probe", "wgmma.probe_registers"),
           ()),
    Ladder("Ceilings' kernels", "ceilings",
           tuple(f"ceilings.{part}" for part in ("wgmma", "mma", "shared", "stream", "tma",
                                                 "chase")), ()),
)


def write(root: Path, folder: Path) -> None:
    """Write all pages below `folder`, in place of those that are there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for ladder in LADDERS:
        _write(root, folder, ladder)


def _write(root: Path, folder: Path, ladder: Ladder) -> None:
    name = ladder.folder.replace("/", "-")
    specs = [kernels.get(kernel) for kernel in ladder.kernels]
    (folder / name).mkdir()
    (folder / f"{name}.md").write_text(_overview(root, ladder, specs, name), encoding="utf-8")
    for before, spec in zip([None, *specs], specs, strict=False):
        page = _page(root, ladder, [s for s in (before, spec) if s])
        (folder / name / f"{_stem(spec)}.md").write_text(page, encoding="utf-8")


def _stem(spec: KernelSpec) -> str:
    return Path(spec.source).stem


def _overview(root: Path, ladder: Ladder, specs: Sequence[KernelSpec], name: str) -> str:
    tables = _tables(root, ladder, specs)
    entries = [f"{name}/{_stem(spec)}" for spec in specs]
    return "\n".join([f"# {ladder.title}", "", *tables, "```{toctree}", ":maxdepth: 1", "",
                      *entries, "```", ""])


def _page(root: Path, ladder: Ladder, specs: Sequence[KernelSpec]) -> str:
    """The page of the last of `specs`, with the numbers of all."""
    file = specs[-1].source
    source = root / "cuda_src" / file
    title, prose = _header(source)
    tables = _tables(root, ladder, specs)
    numbers = ["## Numbers", "", *tables] if tables else []
    return "\n".join([f"# {title}", "", prose, "", *numbers, "## The source", "",
                      f"```{{literalinclude}} /../cuda_src/{file}", ":language: cuda", "```", ""])


def _tables(root: Path, ladder: Ladder, specs: Sequence[KernelSpec]) -> list[str]:
    return [line for numbers in ladder.numbers
            if (measured := [spec for spec in specs if spec.name not in numbers.but])
            for line in (f"{numbers.caption}:", "", *_rows(root, numbers, measured), "")]


def _header(source: Path) -> tuple[str, str]:
    """A kernel's header comment as a title and Markdown, indented lines as code."""
    found = _HEADER.match(source.read_text(encoding="utf-8"))
    if found is None:
        raise MissingNumberError(f"{source}: no header comment")
    text = re.sub(r"^// ?", "", found[1], flags=re.MULTILINE)
    title = _TITLE.match(text)
    assert title is not None
    return title[1], _escaped(text[title.end():])


def _escaped(text: str) -> str:
    """Comments are plain text: what Markdown would read as markup is not."""
    return re.sub(r"^(?! {4})(.*)$", lambda line: re.sub(r"([*_<>`\[\]|#])", r"\\\1", line[1]),
                  text, flags=re.MULTILINE)


def _rows(root: Path, numbers: Numbers, specs: Sequence[KernelSpec]) -> list[str]:
    """The rows of these kernels as a Markdown table.

    Raises:
        MissingNumberError: a kernel has no row there.
    """
    records = json.loads((root / numbers.results).read_text(encoding="utf-8"))["rows"]
    names = {rung(spec.name) or spec.name: spec.name for spec in specs}
    chosen = [record for record in records if _kernel(record) in names]
    if missing := {names[name] for name in names.keys() - set(map(_kernel, chosen))}:
        raise MissingNumberError(f"{numbers.results}: no row of {', '.join(sorted(missing))}")
    return embed.table(chosen, numbers.words.split())


def _kernel(record: dict[str, Any]) -> tuple[str, int] | str:
    """The rung of a record's kernel, or its name; families call rungs by number alone."""
    name = str(record["launch"].get("kernel", record["kernel"]))
    return rung(name) or name
