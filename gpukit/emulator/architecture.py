"""Names of architectures, and which PTX runs on which."""

from __future__ import annotations

import re

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import shown


def check_target(target: str, arch: str | None) -> None:
    """PTX for ``sm_90`` runs on later architectures, for ``sm_90a`` only there."""
    if arch is None or not target:
        return
    wanted, has = split_arch(arch), split_arch(target)
    exact = has[1] in ("a", "f")
    if wanted != has if exact else wanted[0] < has[0]:
        raise LaunchError(f"arch: the PTX is for {target} and does not run on {arch}")


def split_arch(arch: str) -> tuple[int, str]:
    """Its number and its suffix: a, f or none."""
    text = isinstance(arch, str)
    match = re.fullmatch(r"(?:sm_|compute_)([0-9]{1,4})([af]?)", arch) if text else None
    if match is None:
        raise LaunchError(f"arch: {shown(arch)} is not an architecture such as 'sm_90a'")
    return int(match[1]), match[2]
