"""Rows on disk: formats, round trips, and every refusal before the first launch."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpukit.bench.formats import CSV_COLUMNS, csv_line, from_csv, to_csv, to_markdown
from gpukit.bench.model import SCHEMA_VERSION, Case, Row
from gpukit.bench.session import DeviceInfo
from gpukit.bench.store import open_store, read_csv, read_document, read_rows
from gpukit.errors import ArgumentError

INFO = DeviceInfo("GPU", "sm_90", "env1", {"gpu": "GPU", "clocks": {"sm": 1980}})
NASTY = 'say "hi", or\nnot | \\ \t€'


def make_row(n: int = 1, **changes) -> Row:
    case = Case("fake", changes.pop("kernel", "scale"), "f32", {"n": n}, {"vec": 4, "ok": True})
    row = Row.of(case, changes.pop("device", "GPU"), "sm_90", "env1")
    row.status, row.time_us, row.samples_us = "ok", 1 / 3, [0.1, 0.2]
    row.peers = {"twin": {"time_us": 1.5, "ratio": 4.5}}
    for name, value in changes.items():
        setattr(row, name, value)
    return row


def write(path: Path, *rows: Row, resume: bool = False, again=(), complete: bool = True):
    store = open_store(path, resume=resume)
    store.begin(INFO, ["gpukit", "bench"], again)
    for row in rows:
        store.append(row)
    store.finish({"f32": {"gbs": 1.0}}, complete=complete)
    return store


def test_json_holds_everything(tmp_path):
    path = tmp_path / "r.json"
    rows = [make_row(1), make_row(2, message=NASTY, kernel=NASTY)]
    write(path, *rows)
    document = json.loads(path.read_text())
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["environments"] == {"env1": INFO.environment}
    assert document["rows"][0]["samples_us"] == [0.1, 0.2]
    assert document["runs"][0]["complete"] is True
    assert document["runs"][0]["command"] == ["gpukit", "bench"]
    assert read_rows(path) == rows
    assert [row["key"] for row in document["rows"]] == [row.key for row in rows]


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_every_append_is_on_disk_at_once_and_whole(tmp_path, suffix):
    path = tmp_path / f"r{suffix}"
    store = open_store(path)
    store.begin(INFO, [], ())
    lines = []
    for n in range(1, 4):
        store.append(make_row(n))
        lines.append(len(path.read_text().splitlines()))
        if suffix != ".md":
            assert [row.shape["n"] for row in read_rows(path)] == list(range(1, n + 1))
    assert lines[0] < lines[1] < lines[2]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]  # no temporary left


def test_csv_comes_back_with_csv_and_pandas(tmp_path):
    path = tmp_path / "r.csv"
    rows = [make_row(1, kernel=NASTY, message=NASTY), make_row(2, gbs=1e300, clocks={"sm": None})]
    write(path, *rows)
    with path.open(newline="") as file:
        records = list(csv.DictReader(file))
    assert [record["kernel"] for record in records] == [NASTY, "scale"]
    assert float(records[0]["time_us"]) == 1 / 3
    frame = pd.read_csv(path)
    assert list(frame.columns) == CSV_COLUMNS
    assert list(frame["kernel"]) == [NASTY, "scale"]
    assert list(frame["message"].fillna("")) == [NASTY, ""]
    assert [json.loads(shape)["n"] for shape in frame["shape"]] == [1, 2]
    assert frame["gbs"].iloc[1] == 1e300


def without_samples(row: Row) -> Row:
    return Row.from_dict({**row.to_dict(), "samples_us": []})


# Lone surrogates are no text that UTF-8 can hold; NUL is replaced, see below.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(kernel=texts, message=texts, device=texts, time_us=numbers, gbs=numbers)
def test_csv_round_trips_anything(kernel, message, device, time_us, gbs):
    row = make_row(kernel=kernel, message=message, device=device, time_us=time_us, gbs=gbs)
    text = to_csv([row, make_row(7)])
    back = from_csv(csv.DictReader(io.StringIO(text, newline="")))
    assert back == [without_samples(row), without_samples(make_row(7))]


def test_csv_of_older_versions_has_bursts_only(tmp_path):
    path = tmp_path / "r.csv"
    rows = [make_row(1), make_row(2)]
    records = csv.DictReader(io.StringIO(to_csv(rows), newline=""))
    names = [name for name in CSV_COLUMNS if name != "load"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(records)
    assert read_csv(path) == [without_samples(row) for row in rows]


def test_a_sustained_row_comes_back(tmp_path):
    row = make_row(1, load="sustained")
    for name in ("r.json", "r.csv"):
        write(tmp_path / name, row)
        assert [back.load for back in read_rows(tmp_path / name)] == ["sustained"]


def test_json_of_a_finished_run_holds_the_summary(tmp_path):
    path = tmp_path / "r.json"
    slow = make_row(2, peers={"twin": {"time_us": 1.0, "ratio": 0.5}, "absent": {"reason": "no"}})
    write(path, make_row(1), slow)
    (summary,) = json.loads(path.read_text())["summary"]
    assert (summary["peer"], summary["rows"], summary["below"]) == ("twin", 2, 1)
    assert (summary["worst"], summary["problem"]) == (0.5, "2 f32")
    assert summary["geomean"] == pytest.approx(1.5)
    assert read_rows(path)[1].peers["absent"] == {"reason": "no"}


def test_nul_is_replaced_because_csv_readers_stop_at_it():
    text = to_csv([make_row(message="a\0b", kernel="\0")])
    assert "\0" not in text
    (row,) = from_csv(csv.DictReader(io.StringIO(text, newline="")))
    assert (row.message, row.kernel) == ("a\N{REPLACEMENT CHARACTER}b", "\N{REPLACEMENT CHARACTER}")


def test_no_format_ever_says_nan(tmp_path):
    row = make_row(error=math.nan, spread=math.inf, gbs=-math.inf, clocks={"sm": math.nan})
    write(tmp_path / "r.json", row)
    texts = [(tmp_path / "r.json").read_text(), to_csv([row]), to_markdown([row])]
    document = json.loads(texts[0], parse_constant=lambda name: pytest.fail(name))
    assert document["rows"][0]["error"] is None
    assert document["rows"][0]["clocks"] == {"sm": None}
    for text in texts[:2]:
        assert "nan" not in text.lower()
        assert "infinity" not in text.lower()


def test_a_line_cut_short_is_passed_over(tmp_path):
    path = tmp_path / "r.csv"
    write(path, make_row(1), make_row(2))
    whole = path.read_text()
    for cut in range(2, len(csv_line(make_row(2))), 7):  # 1 takes the line's end alone
        path.write_text(whole[:-cut])
        assert [row.shape["n"] for row in read_csv(path)] == [1]
    write(path, make_row(2), resume=True)
    assert [row.shape["n"] for row in read_csv(path)] == [1, 2]


def test_resume_continues_and_drops_what_runs_again(tmp_path):
    path = tmp_path / "r.json"
    write(path, make_row(1), make_row(2, status="error"), complete=False)
    write(path, make_row(2), make_row(3), resume=True, again={make_row(2).key, make_row(3).key})
    document = json.loads(path.read_text())
    rows = [(row["shape"]["n"], row["status"]) for row in document["rows"]]
    assert rows == [(1, "ok"), (2, "ok"), (3, "ok")]
    assert [run["complete"] for run in document["runs"]] == [False, True]


def test_missing_folders_are_created(tmp_path):
    open_store(tmp_path / "new" / "dir" / "r.csv")
    assert (tmp_path / "new" / "dir").is_dir()
    assert not list((tmp_path / "new" / "dir").iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("r.txt", "must end in .json, .csv or .md"),
        ("r", "must end in .json"),
        ("folder.json", "is not a regular file"),
        ("file/r.json", "file is not a folder"),
        ("old.json", "exists; add --resume"),
    ],
)
def test_refusals_before_anything_runs(tmp_path, name, words):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "old.json").write_text("{}")
    with pytest.raises(ArgumentError) as caught:
        open_store(tmp_path / name)
    assert words in str(caught.value)


def test_places_nobody_can_write_are_refused():
    with pytest.raises(ArgumentError, match="cannot be written"):
        open_store(Path("/proc/gpukit/r.json"))
    with pytest.raises(ArgumentError, match="cannot be written"):
        open_store(Path("/proc/r.csv"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ArgumentError, match="Permission denied"):
        open_store(tmp_path / "r.json")


def test_force_replaces_only_when_the_sweep_begins(tmp_path):
    path = tmp_path / "r.json"
    write(path, make_row(1))
    before = path.read_text()
    store = open_store(path, force=True)
    assert path.read_text() == before
    assert store.rows == []
    store.begin(INFO, [], ())
    assert read_rows(path) == []


def test_an_empty_file_is_as_good_as_none(tmp_path):
    path = tmp_path / "r.json"
    path.touch()
    write(path, make_row(1))
    assert len(read_rows(path)) == 1


def test_a_link_stays_a_link(tmp_path):
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "real.json")
    write(link, make_row(1))
    assert link.is_symlink()
    assert len(read_rows(tmp_path / "real.json")) == 1


def test_resume_needs_a_file_that_can_be_continued(tmp_path):
    with pytest.raises(ArgumentError, match="--resume needs --out"):
        open_store(None, resume=True)
    with pytest.raises(ArgumentError, match="not Markdown"):
        open_store(tmp_path / "r.md", resume=True)
    (tmp_path / "r.json").write_text("{oops")
    with pytest.raises(ArgumentError, match="is not JSON"):
        open_store(tmp_path / "r.json", resume=True)
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ArgumentError, match="not a gpukit CSV"):
        open_store(tmp_path / "r.csv", resume=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"rows": [], "schema_version": 999}', "schema version 999"),
        ('{"a": 1}', "holds no benchmark rows"),
        ("3", "holds no benchmark rows"),
    ],
)
def test_foreign_documents_are_refused(tmp_path, text, words):
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ArgumentError, match=words):
        read_document(tmp_path / "r.json")


ROW = {**make_row(1).to_dict(), "counters": {"global_loads": {"sectors": 4, "requests": 1}}}
BAD_ROWS = [
    ({}, "rows[0] has no 'family'"),
    (1, "rows[0] is 1, not an object"),
    ({**ROW, "shape": [1]}, "rows[0].shape is [1], not an object"),
    ({**ROW, "shape": {"n": "1"}}, "rows[0].shape.n is '1', not an integer"),
    ({**ROW, "params": None}, "rows[0].params is None, not an object"),
    ({**ROW, "params": {"a": {}}}, "rows[0].params.a is {}, not a single value"),
    ({**ROW, "time_us": "x"}, "rows[0].time_us is 'x', not a finite number"),
    ({**ROW, "time_us": math.nan}, "rows[0].time_us is nan, not a finite number"),
    ({**ROW, "gbs": math.inf}, "rows[0].gbs is inf, not a finite number"),
    ({**ROW, "kernel": None}, "rows[0].kernel is None, not text"),
    ({**ROW, "status": 3}, "rows[0].status is 3, not text"),
    ({**ROW, "samples_us": [1, None]}, "rows[0].samples_us[1] is None, not a finite number"),
    ({**ROW, "peers": {"a": 1}}, "rows[0].peers.a is 1, not an object"),
    ({**ROW, "peers": {"a": {"ratio": "1"}}}, "rows[0].peers.a.ratio is '1', not a finite number"),
    ({**ROW, "peers": {"a": {"reason": 1}}}, "rows[0].peers.a.reason is 1, not text"),
    ({**ROW, "peers": {"a": {"facts": {}}}}, "rows[0].peers.a.facts is {}, not a single value"),
    ({**ROW, "load": 1}, "rows[0].load is 1, not text"),
    ({**ROW, "clocks": {"sm_mhz": 3}}, "rows[0].clocks.sm_mhz is 3, not an object"),
    ({**ROW, "counters": {"global_loads": 3}}, "counters.global_loads is 3, not an object"),
    ({**ROW, "counters": {"x": {"sectors": 3}}}, "counters.x has 'sectors' without 'requests'"),
    ({**ROW, "launch": {"a": json.loads("[" * 30 + "]" * 30)}}, "more than 20 deep"),
]


@pytest.mark.parametrize(("row", "words"), BAD_ROWS, ids=lambda value: str(value)[-40:])
def test_bad_rows_are_refused_with_their_place(tmp_path, row, words):
    path = tmp_path / "r.json"
    path.write_text(json.dumps([ROW]))
    assert len(read_rows(path)) == 1
    path.write_text(json.dumps([row]))
    with pytest.raises(ArgumentError) as caught:
        open_store(path, resume=True)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ('"rows": null', "rows is None, not a list"),
        ('"rows": [], "runs": null', "runs is None, not a list"),
        ('"rows": [], "runs": [1]', "runs[0] is 1, not an object"),
        ('"rows": [], "runs": [{"command": 3}]', "runs[0].command is 3, not a list"),
        ('"rows": [], "runs": [{"ceilings": {"f32": 3}}]', "ceilings.f32 is 3, not an object"),
        ('"rows": [], "environments": []', "environments is [], not an object"),
        ('"rows": [], "environments": {"a": 1}', "environments.a is 1, not an object"),
    ],
)
def test_bad_documents_are_refused_with_the_place(tmp_path, part, words):
    (tmp_path / "r.json").write_text(f'{{"schema_version": {SCHEMA_VERSION}, {part}}}')
    with pytest.raises(ArgumentError) as caught:
        read_document(tmp_path / "r.json")
    assert words in str(caught.value)


def test_bottomless_json_is_refused(tmp_path):
    (tmp_path / "r.json").write_text("[" * 200_000)
    with pytest.raises(ArgumentError, match=r"nested too deeply|is not JSON"):
        read_document(tmp_path / "r.json")


@pytest.mark.parametrize("text", ["remember the milk\n", "a,b\n1,2\n", '"' + "x" * 200_000 + '"'])
def test_resume_never_replaces_another_csv_file(tmp_path, text):
    path = tmp_path / "notes.csv"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="is not a gpukit CSV file"):
        open_store(path, resume=True)
    assert path.read_text() == text


@pytest.mark.parametrize("shape", ["[1]", "3", "{", "[" * 5000])
def test_bad_csv_cells_are_refused(tmp_path, shape):
    path = tmp_path / "r.csv"
    record = {**dict.fromkeys(CSV_COLUMNS, ""), "shape": shape, "params": "{}"}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS)
        writer.writeheader()
        writer.writerow(record)
    with pytest.raises(ArgumentError, match="is not a gpukit CSV file"):
        read_csv(path)


def test_a_bare_list_of_rows_reads_as_a_document(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps([make_row(1).to_dict()]))
    assert read_rows(tmp_path / "r.json") == [make_row(1)]


def test_rows_of_a_later_minor_version_still_read():
    values = {**make_row(1).to_dict(), "novelty": 1}
    assert Row.from_dict(values) == make_row(1)


def test_keys_tell_cases_apart_and_ignore_order():
    a = Case("f", "k", "f32", {"m": 1, "n": 2}, {"vec": 4})
    assert a.key == Case("f", "k", "f32", {"n": 2, "m": 1}, {"vec": 4}).key
    assert a.key == "f/k dtype=f32 m=1 n=2 vec=4 l2=flush method=events"
    assert Row.of(a, "GPU", "sm_90", "").case_key == a.key
    assert Row.of(a, "GPU", "sm_90", "").key == f"GPU {a.key}"


def test_markdown_survives_pipes_in_names():
    text = to_markdown([make_row(1, kernel="a|b"), make_row(2, message="x | y")])
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert "a\\|b" in text
    assert "x \\| y" in text
