"""Every error gpukit raises on purpose, one class per thing a caller can do about it.

Messages are one line: what was given, what is accepted, what to change.
"""

from __future__ import annotations

from collections.abc import Iterable


class GpukitError(Exception):
    """Base of all errors raised on purpose by gpukit."""


class ArgumentError(GpukitError, ValueError):
    """An argument has a value, shape, dtype or layout that the call does not accept."""


class UnknownKernelError(GpukitError, KeyError):
    """A kernel name that the registry does not hold."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name)
        self.message = f"unknown kernel {name!r}; known kernels: {', '.join(sorted(known))}"

    def __str__(self) -> str:  # KeyError would print the repr of its argument
        return self.message


class UnsupportedError(GpukitError):
    """The kernel exists, but not for this device, dtype or shape."""


class CompileError(GpukitError):
    """NVRTC or ptxas refused a kernel; the message carries their text."""


class LaunchError(GpukitError):
    """The driver refused or aborted a launch."""


class NoDeviceError(GpukitError):
    """No usable CUDA device."""


class MissingDependencyError(GpukitError, ImportError):
    """A call needs an optional dependency; the message names the extra that installs it."""


def missing(package: str, extra: str, purpose: str) -> MissingDependencyError:
    """The error for an absent optional dependency: what needs it and how to install it."""
    return MissingDependencyError(
        f"{purpose} needs {package}, which is not installed; run: pip install 'gpukit[{extra}]'"
    )
