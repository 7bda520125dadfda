from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpukit.measure import environment, environment_id, provenance

if TYPE_CHECKING:
    from pathlib import Path

NO_DEVICE = 10_000  # a CUDA index that exists nowhere


@pytest.fixture(autouse=True)
def _no_revision_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUKIT_SOURCE_REVISION", raising=False)


def test_without_a_device_the_rest_is_still_told() -> None:
    env = environment(NO_DEVICE)
    assert json.loads(json.dumps(env)) == env
    for key in ("gpu", "uuid", "sms", "l2_bytes", "memory_bytes", "max_clocks_mhz"):
        assert env[key] is None
    assert env["python"].count(".") == 2
    assert env["os"] and env["argv"] and env["gpukit"] and env["numpy"]


def test_id_ignores_how_the_run_was_started() -> None:
    env = environment(NO_DEVICE)
    same = env | {"argv": ["another", "command"]}
    assert environment_id(same) == environment_id(env)
    assert len(environment_id(env)) == 12


@pytest.mark.parametrize("field", ["uuid", "driver", "nvrtc", "git_sha", "git_dirty", "cpu"])
def test_id_changes_with_the_set_up(field: str) -> None:
    env = environment(NO_DEVICE)
    assert environment_id(env | {field: "other"}) != environment_id(env)


def test_id_does_not_depend_on_key_order() -> None:
    env = environment(NO_DEVICE)
    assert environment_id(dict(reversed(env.items()))) == environment_id(env)


def _repository(path: Path) -> Path:
    source = path / "module.py"
    source.write_text("x = 1\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for arguments in (["init", "-q"], ["add", "module.py"], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(path), *arguments], check=True)
    return source


def test_git_tells_commit_and_dirt(tmp_path: Path) -> None:
    source = _repository(tmp_path)
    clean = provenance._git(source)
    assert len(clean["git_sha"]) == 40 and clean["git_dirty"] is False
    source.write_text("x = 2\n")
    assert provenance._git(source) == clean | {"git_dirty": True}


def test_a_copy_inside_somebody_elses_repository_has_no_commit(tmp_path: Path) -> None:
    _repository(tmp_path)
    installed = tmp_path / "site-packages" / "copy.py"
    installed.parent.mkdir()
    installed.write_text("")
    assert provenance._git(installed) == {"git_sha": None, "git_dirty": None}


def test_an_exported_tree_has_the_revision_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUKIT_SOURCE_REVISION", " 1234abc\n")
    assert provenance._git(tmp_path / "x.py") == {"git_sha": "1234abc", "git_dirty": None}
    monkeypatch.setenv("GPUKIT_SOURCE_REVISION", "")
    assert provenance._git(tmp_path / "x.py") == {"git_sha": None, "git_dirty": None}


def test_a_checkout_knows_better_than_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _repository(tmp_path)
    own = provenance._git(source)
    monkeypatch.setenv("GPUKIT_SOURCE_REVISION", "1234abc")
    assert provenance._git(source) == own and own["git_sha"] != "1234abc"


def test_no_git_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance._git(tmp_path / "x.py") == {"git_sha": None, "git_dirty": None}


def test_cuda_version_numbers() -> None:
    assert provenance._dotted(13020) == "13.2"
    assert provenance._dotted(12090) == "12.9"
    assert provenance._dotted(0) is None
