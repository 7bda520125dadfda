"""Rows on disk, written as they finish, so that whatever ends a sweep loses nothing.

`open_store` settles everything that can be settled before the first launch: the format, the
folder, the right to write, what is there already. A store then writes each row the moment it is
appended: CSV by appending a line, JSON and Markdown by replacing the file in one step.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Protocol

from gpukit.bench import claims, formats
from gpukit.bench.model import SCHEMA_VERSION, Row
from gpukit.bench.summary import standings
from gpukit.bench.validate import check_document
from gpukit.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from pathlib import Path

    from gpukit.bench.session import DeviceInfo


class Store(Protocol):
    """Where the rows of a sweep go. ``rows`` starts with what an earlier sweep left;
    ``resumable`` says whether a later one can start from these."""

    rows: list[Row]
    resumable: bool

    def begin(self, info: DeviceInfo, command: Sequence[str], again: Container[str]) -> None:
        """Start writing, without the rows whose keys are in ``again``: they will be replaced."""

    def append(self, row: Row) -> None:
        """Write one finished row."""

    def extend(self, rows: Sequence[Row]) -> None:
        """Write rows that finished together."""

    def finish(self, ceilings: dict[str, Any], *, complete: bool) -> None:
        """Note what the run measured besides rows, and whether it reached its end."""


class MemoryStore:
    """Keeps rows for this process alone."""

    resumable = False

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)

    def begin(self, info: DeviceInfo, command: Sequence[str], again: Container[str]) -> None:
        self.rows = [row for row in self.rows if row.key not in again]

    def append(self, row: Row) -> None:
        self.rows.append(row)

    def extend(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.append(row)

    def finish(self, ceilings: dict[str, Any], *, complete: bool) -> None:
        return None


class JsonStore(MemoryStore):
    """One JSON document: schema version, environments, runs, how each kernel stands against its
    peers once a run is over (``summary``), and rows with every sample."""

    resumable = True

    def __init__(self, path: Path, document: dict[str, Any] | None) -> None:
        document = document or {}
        super().__init__(Row.from_dict(row) for row in document.get("rows", ()))
        self._path = path
        self._environments: dict[str, Any] = document.get("environments", {})
        self._runs: list[dict[str, Any]] = document.get("runs", [])
        self._texts: list[str] = []
        self._summary: list[dict[str, Any]] = []

    def begin(self, info: DeviceInfo, command: Sequence[str], again: Container[str]) -> None:
        super().begin(info, command, again)
        self._texts = [json.dumps(row.to_dict()) for row in self.rows]
        self._environments[info.environment_id] = info.environment
        self._runs.append(
            {
                "command": list(command),
                "device": info.name,
                "environment": info.environment_id,
                "started": _now(),
                "finished": None,
                "complete": False,
                "ceilings": {},
            }
        )
        self._write()

    def append(self, row: Row) -> None:
        self.extend([row])

    def extend(self, rows: Sequence[Row]) -> None:
        self.rows += rows
        self._texts += [json.dumps(row.to_dict(), allow_nan=False) for row in rows]
        self._write()

    def finish(self, ceilings: dict[str, Any], *, complete: bool) -> None:
        self._runs[-1].update(finished=_now(), complete=complete, ceilings=ceilings)
        self._summary = [standing.to_dict() for standing in standings(self.rows)]
        self._write()

    def _write(self) -> None:
        # Rows are encoded once, one a line: rewriting the file is then only joining them.
        head = {
            "schema_version": SCHEMA_VERSION,
            "environments": self._environments,
            "runs": self._runs,
            **({"summary": self._summary} if self._summary else {}),
        }
        opening = json.dumps(head, indent=1, default=str).removesuffix("\n}")
        rows = ",\n  ".join(self._texts)
        replace_text(self._path, f'{opening},\n "rows": [\n  {rows}\n ]\n}}\n')


class CsvStore(MemoryStore):
    """A CSV file with the columns of `gpukit.bench.formats`, one line a row."""

    resumable = True

    def __init__(self, path: Path, rows: Iterable[Row] = ()) -> None:
        super().__init__(rows)
        self._path = path

    def begin(self, info: DeviceInfo, command: Sequence[str], again: Container[str]) -> None:
        super().begin(info, command, again)
        replace_text(self._path, formats.to_csv(self.rows))

    def append(self, row: Row) -> None:
        super().append(row)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            file.write(formats.csv_line(row))


class MarkdownStore(MemoryStore):
    """A Markdown table for people. Numbers are rounded, so a sweep cannot resume from it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def begin(self, info: DeviceInfo, command: Sequence[str], again: Container[str]) -> None:
        super().begin(info, command, again)
        self._write()

    def append(self, row: Row) -> None:
        super().append(row)
        self._write()

    def _write(self) -> None:
        replace_text(self._path, formats.to_markdown(self.rows))


def open_store(path: Path | None, *, resume: bool = False, force: bool = False) -> Store:
    """Return the store for ``--out``, having made sure that it can be written.

    The suffix chooses the format. Missing folders are created. A file that holds something is
    continued with ``resume``, replaced with ``force``, and otherwise left alone.

    Raises:
        ArgumentError: both, an unknown suffix, no right to write, a file in the way, or a file that
            ``resume`` cannot read, or that another run is writing.
    """
    if resume and force:
        raise ArgumentError("--resume and --force exclude each other: one continues the file of "
                            "--out, the other replaces it")
    if path is None:
        if resume:
            raise ArgumentError("--resume needs --out FILE, the file to continue")
        return MemoryStore()
    suffix = path.suffix.lower()
    if suffix not in (".json", ".csv", ".md"):
        raise ArgumentError(f"--out {path}: the name must end in .json, .csv or .md")
    if resume and suffix == ".md":
        raise ArgumentError(f"--out {path}: --resume needs a .json or .csv file, not Markdown")
    path = writable(path)
    claims.claim(path)
    exists = path.exists() and path.stat().st_size > 0
    if exists and not (resume or force):
        raise ArgumentError(f"--out {path} exists; add --resume to continue it or --force")
    if suffix == ".md":
        return MarkdownStore(path)
    if suffix == ".csv":
        return CsvStore(path, read_csv(path) if exists and resume else ())
    return JsonStore(path, read_document(path) if exists and resume else None)


def writable(path: Path) -> Path:
    """Create the folder, try to write there, and return the real file behind any link.

    Raises:
        ArgumentError: no right to write, or something else in the way.
    """
    try:
        path = path.resolve()
        if path.exists() and not path.is_file():
            raise ArgumentError(f"--out {path} is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.open("a").close()
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except FileExistsError as problem:
        raise ArgumentError(f"--out {path}: {problem.filename} is not a folder") from problem
    except OSError as problem:
        raise ArgumentError(f"--out {path} cannot be written: {problem.strerror}") from problem
    return path


def replace_text(path: Path, text: str) -> None:
    """Replace a file in one step: a reader sees the old text or the new, never a part.

    Raises OSError, which names the file itself.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(path)) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_document(path: Path) -> dict[str, Any]:
    """Read a result document: what `JsonStore` wrote, or a bare list of rows.

    Raises `ArgumentError` when it cannot be read, is neither, is newer than this version, or
    holds anything of the wrong form.
    """
    document = _parse(path)
    if isinstance(document, list):
        document = {"schema_version": SCHEMA_VERSION, "environments": {}, "rows": document}
    if not isinstance(document, dict) or "rows" not in document:
        raise ArgumentError(f"{path} holds no benchmark rows")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ArgumentError(
            f"{path} has schema version {document.get('schema_version')}; "
            f"this gpukit reads {SCHEMA_VERSION}"
        )
    try:
        check_document(document)
    except ValueError as problem:
        raise ArgumentError(f"{path}: {problem}") from problem
    return document


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ArgumentError(f"{path} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise ArgumentError(f"{path} is not JSON: {problem}") from problem
    except RecursionError as problem:
        raise ArgumentError(f"{path} is nested too deeply") from problem


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a ``.json`` or ``.csv`` result."""
    if _is_csv(path):
        return read_csv(path)
    return [Row.from_dict(row) for row in read_document(path)["rows"]]


def read_result(path: Path) -> dict[str, Any]:
    """Read a result as a document; one from a ``.csv`` file has rows only, without samples."""
    if not _is_csv(path):
        return read_document(path)
    rows = [row.to_dict() for row in read_csv(path)]
    return {"schema_version": SCHEMA_VERSION, "environments": {}, "runs": [], "rows": rows}


def read_samples(path: Path) -> dict[str, Any]:
    """Read a result document for what only the samples tell; a ``.csv`` file has none."""
    if _is_csv(path):
        raise ArgumentError(f"{path}: CSV holds no samples, which tell noise; give the .json")
    return read_document(path)


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def read_csv(path: Path) -> list[Row]:
    """Read the rows of a `CsvStore`; a last line cut short by a crash is passed over."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            known = {*(reader.fieldnames or ()), *formats.LATER_COLUMNS}
            missing = [n for n in formats.CSV_COLUMNS if n not in known]
            if missing:
                raise ValueError(f"it has no column {missing[0]!r}")
            return formats.from_csv(reader)
    except OSError as problem:
        raise ArgumentError(f"{path} cannot be read: {problem.strerror}") from problem
    except (ValueError, csv.Error, RecursionError) as problem:
        raise ArgumentError(f"{path} is not a gpukit CSV file: {problem}") from problem


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
