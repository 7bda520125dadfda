"""GPU tests are skipped, with the reason, where there is no usable CUDA device."""

from __future__ import annotations

import functools

import pytest


@functools.cache
def gpu_problem() -> str:
    """Why GPU tests cannot run here; empty when they can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    return "" if cupy.cuda.is_available() else "no usable CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (problem := gpu_problem()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=problem))
