"""Which targets have tcgen05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpukit.emulator.instructions import Unsupported

if TYPE_CHECKING:
    from gpukit.emulator.assembler import Assembler

TARGETS = ("sm_100a", "sm_100f")


def require_target(assembler: Assembler) -> None:
    """Refuse tcgen05 in PTX for other architectures."""
    if assembler.module.target not in TARGETS:
        raise Unsupported(
            f"tcgen05 needs .target {' or '.join(TARGETS)}, not {assembler.module.target}"
        )
