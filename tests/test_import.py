"""Importing gpukit and asking the CLI for help or a list: light, and possible almost anywhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

CLI = "import sys; from gpukit_cli.main import main; sys.exit(main(sys.argv[1:]))"
BLOCK_CUPY = "import sys; sys.modules.update(cupy=None, cupy_backends=None);"
UNWRITABLE = {
    "home": {"HOME": "/proc/none"},
    "kernel cache": {"CUPY_CACHE_DIR": "/proc/none"},
    "both": {"HOME": "/proc/none", "CUPY_CACHE_DIR": "/proc/none"},
}
HAS_CUPY = importlib.util.find_spec("cupy") is not None


def python(code: str, *arguments: str, **environment: str) -> str:
    """Standard output of a fresh interpreter that succeeds."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True,
                          env=os.environ | environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str, watched: Sequence[str]) -> set[str]:
    """Which of the watched top-level packages some code imports."""
    report = "; import sys; print('\\n'.join({name.split('.')[0] for name in sys.modules}))"
    return set(python(code + report).split()) & set(watched)


def test_import_loads_no_third_party_package() -> None:
    heavy = ("cupy", "numpy", "ml_dtypes", "rich", "pandas", "click", "cuda", "torch",
             "matplotlib", "pynvml", "numba")
    assert loaded("import gpukit", heavy) == set()


def test_submodules_of_the_base_load_no_cuda() -> None:
    code = ("import gpukit.kernels, gpukit.sources, gpukit.devices.nvrtc, gpukit.ops.matmul,"
            "gpukit.ops.elementwise, gpukit.reference.matmul, gpukit.kernels.describe")
    assert loaded(code, ("cupy", "cuda", "rich", "pandas", "click", "torch")) == set()


def test_help_loads_no_heavy_package() -> None:
    code = "from gpukit_cli.main import main; assert main(['--help']) == 0"
    assert loaded(code, ("cupy", "numpy", "pandas", "torch", "matplotlib")) == set()


def test_every_public_name_resolves() -> None:
    python("import gpukit; [getattr(gpukit, name) for name in dir(gpukit)];"
           "from gpukit import *; assert callable(matmul) and callable(exp)")


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    import gpukit

    with pytest.raises(AttributeError, match="module 'gpukit' has no attribute 'matmull'"):
        _ = gpukit.matmull


COMMANDS = (["--help"], ["list"], ["--version"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_without_cupy(arguments: list[str]) -> None:
    assert python(BLOCK_CUPY + "import gpukit;" + CLI, *arguments)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("what", UNWRITABLE)
def test_where_nothing_can_be_written(what: str, arguments: list[str]) -> None:
    assert python("import gpukit;" + CLI, *arguments, **UNWRITABLE[what])


def test_list_names_every_kernel_without_cupy() -> None:
    from gpukit import kernels

    printed = python(BLOCK_CUPY + CLI, "list")
    assert all(name in printed for name in kernels.names())


def failure(code: str, **environment: str) -> str:
    """The class and message of the gpukit error some code raises."""
    wrapped = f"""
from gpukit.errors import GpukitError
try:
    {code}
except GpukitError as error:
    print(type(error).__name__, error)
"""
    return python(BLOCK_CUPY * ("CUPY_CACHE_DIR" not in environment) + wrapped, **environment)


def test_the_first_call_that_needs_cupy_names_the_extra() -> None:
    message = failure("from gpukit import devices; devices.get('cuda:0')")
    assert message.startswith("MissingDependencyError")
    assert "pip install 'gpukit[cuda13]'" in message


@pytest.mark.skipif(not HAS_CUPY, reason="CuPy is not installed")
def test_an_unwritable_kernel_cache_is_explained() -> None:
    message = failure("from gpukit import devices; devices.get('cuda:0')",
                      CUPY_CACHE_DIR="/proc/none")
    assert message.startswith("GpukitError CuPy cannot create its kernel cache")
    assert "set CUPY_CACHE_DIR" in message


def fastest(code: str, attempts: int = 5) -> float:
    """Seconds that some code takes in a fresh interpreter, start-up of Python itself excluded."""
    timed = f"import time; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
    return min(float(python(timed).split()[-1]) for _ in range(attempts))


def test_import_is_fast() -> None:
    assert fastest("import gpukit") < 0.2


def test_help_is_fast() -> None:
    assert fastest("from gpukit_cli.main import main; main(['--help'])") < 0.3
