"""GPU models the emulator can stand in for, and where their figures come from."""

from __future__ import annotations

from dataclasses import dataclass

from gpukit.devices.protocol import Properties

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Model:
    """One emulated GPU: its properties and the virtual architecture NVRTC compiles for it."""

    properties: Properties
    arch: str
    source: str


def _properties(name: str, capability: tuple[int, int], sm_count: int, l2_bytes: int,
                memory_bytes: int) -> Properties:
    # 227 KiB of shared memory per CTA and 2048 threads per SM hold for compute capability 9.0 and
    # 10.0 alike (CUDA C++ Programming Guide, technical specifications per compute capability).
    return Properties(name=f"emulated {name}", uuid="", capability=capability, sm_count=sm_count,
                      threads_per_sm=2048, shared_per_cta=227 * _KIB, l2_bytes=l2_bytes,
                      memory_bytes=memory_bytes)


MODELS = {
    "h100": Model(
        _properties("H100", (9, 0), 132, 50 * _MIB, 80 * _GIB), "sm_90a",
        "NVIDIA H100 Tensor Core GPU architecture whitepaper, H100 SXM5",
    ),
    "b200": Model(
        _properties("B200", (10, 0), 148, 126 * _MIB, 180 * _GIB), "sm_100a",
        "NVIDIA Blackwell architecture technical brief; L2 as the driver reports it",
    ),
}
DEFAULT = "h100"
