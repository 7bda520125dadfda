"""GPU tests are skipped, with the reason, where there is no usable CUDA device.

With --require-gpu they fail there instead, and so does a run in which no GPU test passed: a machine
whose driver is broken must not look green.
"""

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true",
                     help="fail, rather than skip, where GPU tests cannot run or none does")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-gpu"):
        config.pluginmanager.register(RequireGpu())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (problem := gpu_problem()):
        if config.getoption("--require-gpu"):
            raise pytest.UsageError(f"--require-gpu: {problem}")
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=problem))


class RequireGpu:
    """Counts the GPU tests that passed and fails the run if there were none."""

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed and "gpu" in report.keywords

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.passed and session.exitstatus in (
                pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.passed:
            terminalreporter.write_line("--require-gpu: no GPU test passed", red=True)
