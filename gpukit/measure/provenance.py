"""The set-up a measurement was taken on, as JSON-able facts; unknown ones are None.

Sources that are no git checkout (an exported tree, an installed copy) can be told their commit by
the environment variable GPUKIT_SOURCE_REVISION; a checkout knows better and ignores it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpukit.measure.nvml import driver_version, open_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Fact = TypeVar("_Fact")

SCHEMA = 1
# How a run was started does not change what was measured on.
NOT_IDENTIFYING = frozenset({"argv"})
# Whose code may run beside ours; told where installed.
OTHERS = ("torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13", "sgl-deep-gemm")
REVISION_VARIABLE = "GPUKIT_SOURCE_REVISION"


def environment(device_index: int = 0) -> dict[str, Any]:
    """Everything a row must carry about where it was measured. Works without a GPU.

    ``device_index`` is a CUDA index. Sizes in bytes, clocks in MHz. ``git_sha`` is that of the
    checkout, else GPUKIT_SOURCE_REVISION, whose ``git_dirty`` is None: nobody could check.
    """
    return {
        "schema": SCHEMA,
        **_device(device_index),
        **_software(),
        **_git(Path(__file__).resolve()),
        "os": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],  # not where it is installed
    }


def environment_id(env: Mapping[str, Any]) -> str:
    """A short hash of all fields but ``argv``: equal for equal devices, versions and sources."""
    identifying = {key: value for key, value in env.items() if key not in NOT_IDENTIFYING}
    text = json.dumps(identifying, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _device(index: int) -> dict[str, Any]:
    facts: dict[str, Any] = dict.fromkeys(
        ("gpu", "uuid", "compute_capability", "sms", "l2_bytes", "memory_bytes", "max_clocks_mhz")
    )
    properties = _or_none(lambda: _properties(index))
    if properties is None:
        return facts
    uuid = properties["uuid"]
    return facts | properties | {"max_clocks_mhz": _max_clocks(uuid)}


def _properties(index: int) -> dict[str, Any]:
    import cupy

    from gpukit.measure.cuda import device_uuid

    raw = cupy.cuda.runtime.getDeviceProperties(index)
    return {
        "gpu": raw["name"].decode(),
        "uuid": device_uuid(index),
        "compute_capability": f"{raw['major']}.{raw['minor']}",
        "sms": int(raw["multiProcessorCount"]),
        "l2_bytes": int(raw["l2CacheSize"]),
        "memory_bytes": int(raw["totalGlobalMem"]),
    }


def _max_clocks(uuid: str | None) -> dict[str, float | None] | None:
    device, _ = open_device(uuid)
    if device is None:
        return None
    try:
        return device.max_clocks_mhz()
    finally:
        device.close()


def _software() -> dict[str, Any]:
    return {
        "driver": driver_version(),
        "cuda_driver": _or_none(_cuda_driver),
        "cuda_runtime": _or_none(_cuda_runtime),
        "nvrtc": _or_none(_nvrtc),
        "cupy": _version("cupy-cuda13x") or _version("cupy-cuda12x") or _version("cupy"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "gpukit": _gpukit_version(),
        **{name: version for name in OTHERS if (version := _version(name)) is not None},
    }


def _cuda_driver() -> str | None:
    """The newest CUDA version the driver supports."""
    import cupy

    return _dotted(cupy.cuda.runtime.driverGetVersion())


def _cuda_runtime() -> str | None:
    import cupy

    return _dotted(cupy.cuda.runtime.runtimeGetVersion())


def _nvrtc() -> str:
    import cupy

    return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))


def _gpukit_version() -> str:
    from gpukit import __version__

    return __version__


def _dotted(version: int) -> str | None:
    """CUDA's 13020 as "13.2"; its 0 for "no driver" as None."""
    return f"{version // 1000}.{version % 1000 // 10}" if version else None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _git(source: Path) -> dict[str, Any]:
    """Commit and dirty flag of the checkout that tracks ``source``; outside of one what
    GPUKIT_SOURCE_REVISION says, or None.

    Being inside a repository is not enough: an installed copy may lie in somebody else's.
    """
    if _run_git(source, "ls-files", "--error-unmatch", source.name) is None:
        return {"git_sha": os.environ.get(REVISION_VARIABLE, "").strip() or None,
                "git_dirty": None}
    sha = _run_git(source, "rev-parse", "HEAD")
    changes = _run_git(source, "status", "--porcelain", "--untracked-files=no")
    return {"git_sha": sha, "git_dirty": None if changes is None else bool(changes)}


def _run_git(source: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(source.parent), *arguments],
            capture_output=True, text=True, timeout=10, check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str | None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _or_none(fact: Callable[[], _Fact]) -> _Fact | None:
    """A fact, or None where there is no CuPy, driver or device to tell it."""
    try:
        return fact()
    except Exception:
        return None
