"""A GPU run that tests nothing must fail: `--require-gpu` with a stand-in for CuPy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = "def test_cpu(): pass\n@pytest.mark.gpu\ndef test_gpu(): pass\n"
SKIPS = PASSES.replace("test_gpu(): pass", "test_gpu(): pytest.skip('wrong GPU')")


def run(folder: Path, tests: str, *options: str, gpu: bool) -> tuple[int, str]:
    """Exit code and output of pytest on these tests below our conftest.py."""
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "test_it.py").write_text(f"import pytest\n{tests}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    (folder / "cupy.py").write_text(
        f"class cuda:\n    is_available = staticmethod(lambda: {gpu})\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder],
        cwd=folder, capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""})
    return done.returncode, done.stdout + done.stderr


def test_without_a_gpu_the_tests_are_skipped(tmp_path: Path) -> None:
    code, output = run(tmp_path, PASSES, gpu=False)
    assert code == 0 and "1 passed, 1 skipped" in output


def test_a_missing_gpu_fails_the_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, PASSES, "--require-gpu", gpu=False)
    assert code != 0 and "--require-gpu: no usable CUDA device" in output


def test_a_working_gpu_passes(tmp_path: Path) -> None:
    code, output = run(tmp_path, PASSES, "--require-gpu", "-m", "gpu", gpu=True)
    assert code == 0 and "1 passed, 1 deselected" in output


@pytest.mark.parametrize("tests", [SKIPS, "def test_cpu(): pass\n", ""])
def test_a_run_in_which_no_gpu_test_passes_fails(tmp_path: Path, tests: str) -> None:
    code, output = run(tmp_path, tests, "--require-gpu", gpu=True)
    assert code != 0 and "--require-gpu: no GPU test passed" in output
