"""What `gpukit tune` has measured on this machine, in a file below the user's cache folder.

GPUKIT_CACHE_DIR moves the folder, GPUKIT_TUNE=0 leaves the file unread.
"""

from __future__ import annotations

import json
import os
from dataclasses import astuple
from functools import cache, lru_cache
from pathlib import Path

from gpukit.devices.protocol import Properties
from gpukit.errors import ArgumentError
from gpukit.ops.matmul import limits
from gpukit.ops.matmul.configs import Config, parse
from gpukit.ops.matmul.problem import Problem


def path() -> Path:
    """Where the measured choices are kept."""
    folder = os.environ.get("GPUKIT_CACHE_DIR")
    if folder:
        return Path(folder) / "matmul.json"
    # Path.expanduser would raise for a user without a home, as in some containers
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(base) / "gpukit" / "matmul.json"


def lookup(problem: Problem, properties: Properties) -> Config | None:
    """The measured choice; None without one, or where it no longer applies."""
    entries = _entries()
    if not entries:
        return None
    text = entries.get(key(problem, properties))
    return None if text is None else _applicable(text, problem, properties)


@lru_cache(maxsize=4096)
def _applicable(text: str, problem: Problem, properties: Properties) -> Config | None:
    """The configuration, unless this version has no such kernel."""
    try:
        config = parse(text)
    except ArgumentError:
        return None
    return None if limits.refusal(config, problem, properties) else config


def key(problem: Problem, properties: Properties) -> str:
    """What a choice was measured for: GPU, gpukit's version, problem."""
    from gpukit import __version__

    parts = (properties.name, properties.arch, properties.sm_count, __version__,
             *astuple(problem))
    return "|".join(map(str, parts))


def store(problem: Problem, properties: Properties, config: Config) -> None:
    """Remember a choice, here and for later processes."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    entries = {**_read(target), key(problem, properties): str(config)}
    scratch = target.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(entries, indent=1, sort_keys=True), encoding="utf-8")
    scratch.replace(target)
    forget()


def forget() -> None:
    """Read the file again when it is next asked for."""
    _entries.cache_clear()


@cache
def _entries() -> dict[str, str]:
    return {} if os.environ.get("GPUKIT_TUNE") == "0" else _read(path())


def _read(target: Path) -> dict[str, str]:
    """The file's choices; none if it is missing or no longer readable."""
    try:
        found = json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: text for key, text in found.items() if isinstance(text, str)}
