"""Whether grid, block, cluster and shared memory are within the limits of GPU and kernel."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from gpukit.emulator.errors import LaunchError
from gpukit.emulator.inputs import Dim3, shown
from gpukit.emulator.program import SHARED_START
from gpukit.emulator.residency import most_resident

if TYPE_CHECKING:
    from gpukit.emulator.launch import Launch

MAX_GRID, MAX_BLOCK, MAX_THREADS = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64), 1024
PORTABLE_CLUSTER, MAX_CLUSTER = 8, 16
MAX_SHARED = 227 * 1024
MAX_STACK = 512 * 1024  # local memory of a thread, the stack of recursive kernels included


def check_configuration(launch: Launch, nonportable_cluster: bool) -> None:
    """Raise ``LaunchError`` for what a GPU would not launch."""
    _check_axes("grid", launch.grid, MAX_GRID, "CTAs")
    _check_axes("block", launch.block, MAX_BLOCK, "threads")
    directives = launch.program.kernel.directives
    _check_block(launch, directives)
    _check_cluster(launch, directives, nonportable_cluster)
    used = launch.shared_end - SHARED_START
    if used > MAX_SHARED:
        raise LaunchError(
            f"shared_bytes: the CTA needs {used} bytes of shared memory, {MAX_SHARED} exist"
        )
    if launch.local_bytes > MAX_STACK:
        raise LaunchError(
            f"kernel: {launch.program.kernel.name} needs {launch.local_bytes} bytes of local "
            f"memory a thread (stack_bytes included), {MAX_STACK} exist"
        )
    if launch.cooperative:
        _check_residency(launch)


def three(values: tuple[int, ...] | None) -> Dim3 | None:
    """The sizes that a directive names, along all three axes."""
    if values is None:
        return None
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def _check_axes(what: str, size: Dim3, most: Dim3, unit: str) -> None:
    if any(given > limit for given, limit in zip(size, most, strict=True)):
        limits = " x ".join(map(str, most))
        raise LaunchError(f"{what}: {shown(size)} is too large; accepted: up to {limits} {unit}")


def _check_block(launch: Launch, directives: dict[str, tuple[int, ...]]) -> None:
    block, threads = launch.block, launch.threads
    if threads > MAX_THREADS:
        raise LaunchError(f"block: {block} must have 1 to {MAX_THREADS} threads")
    required, most = three(directives.get("reqntid")), directives.get("maxntid")
    if required and required != block:
        raise LaunchError(f"block: the kernel was compiled for {required}, not {block}")
    if most and threads > prod(most):
        raise LaunchError(
            f"block: {block} has more than the kernel's {prod(most)} threads (maxntid)"
        )


def _check_cluster(
    launch: Launch, directives: dict[str, tuple[int, ...]], nonportable: bool
) -> None:
    cluster, size = launch.cluster, launch.cluster_size
    required = three(directives.get("reqnctapercluster"))
    if required and required != cluster:
        raise LaunchError(f"cluster: the kernel was compiled for {required}, not {cluster}")
    if size > (MAX_CLUSTER if nonportable else PORTABLE_CLUSTER):
        raise LaunchError(
            f"cluster: {cluster} has {size} CTAs; accepted: up to {PORTABLE_CLUSTER}, or up to "
            f"{MAX_CLUSTER} with nonportable_cluster=True (--nonportable-cluster)"
        )
    (most,) = directives.get("maxclusterrank", (size,))
    if size > most:
        raise LaunchError(
            f"cluster: {cluster} has more than the kernel's {most} CTAs (maxclusterrank)"
        )
    if any(g % c for g, c in zip(launch.grid, cluster, strict=True)):
        raise LaunchError(f"grid: {launch.grid} is not a multiple of the cluster {cluster}")


def _check_residency(launch: Launch) -> None:
    target = launch.program.module.target
    most = most_resident(target, launch.threads, launch.shared_end)
    if prod(launch.grid) > most:
        raise LaunchError(
            f"grid: {launch.grid} is too large for a cooperative launch; of this kernel a GPU "
            f"of {target} holds at most {most} CTAs at once"
        )
