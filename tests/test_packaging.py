"""The built wheel and sdist: complete, and working away from the repository and inside it.

The wheel is built from the sdist, so a file missing from either shows. The fresh environment
borrows the dependencies of this one: nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# Where each source folder ships, and what of it.
SHIPPED = (("gpukit", "gpukit", ("*.py", "py.typed")), ("cli", "gpukit_cli", ("*.py", "py.typed")),
           ("cuda_src", "gpukit/cuda_src", ("*.py", "*.cu", "*.cuh")))


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that succeeds, without this process's import path."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True,
                          env=clean | environment, timeout=300)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def gpukit(self) -> Path:
        return self.root / "bin" / "gpukit"

    @classmethod
    def create(cls, root: Path) -> Environment:
        """Empty, but for the packages of this environment, which come last on its path."""
        venv.create(root, with_pip=False, symlinks=True)
        (site,) = root.glob("lib/python*/site-packages")
        ours = [path for path in sys.path if path.endswith("-packages")]
        (site / "borrowed.pth").write_text("\n".join(ours) + "\n")
        return cls(root)

    def install(self, *arguments: str | Path) -> None:
        run(sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps",
            "--no-index", "--disable-pip-version-check", *arguments, cwd=self.root)


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository: building inside it would leave, and reuse, stale files."""
    tree = tmp_path_factory.mktemp("source") / "gpukit"
    unwanted = shutil.ignore_patterns(".git", ".*cache", ".hypothesis", ".venv", "__pycache__",
                                      "build", "dist", "*.egg-info")
    shutil.copytree(REPOSITORY, tree, ignore=unwanted)
    return tree


@pytest.fixture(scope="module")
def built(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source_tree, cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment.create(tmp_path_factory.mktemp("wheel") / "env")
    environment.install(built[1])
    return environment


@pytest.fixture(scope="module")
def editable(source_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment.create(tmp_path_factory.mktemp("editable") / "env")
    environment.install("--no-build-isolation", "--editable", source_tree)
    return environment


def shipped_files() -> set[str]:
    """Every file of the repository that belongs into the wheel, by its name there."""
    return {f"{target}/{path.relative_to(REPOSITORY / source).as_posix()}"
            for source, target, patterns in SHIPPED for pattern in patterns
            for path in (REPOSITORY / source).rglob(pattern)}


def test_the_wheel_holds_every_source_file_and_nothing_else(built: tuple[Path, Path]) -> None:
    """A package folder that pyproject.toml does not list would be missing here."""
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == shipped_files()
    assert {"gpukit/py.typed", "gpukit_cli/py.typed", "gpukit/cuda_src/common/vec.cuh",
            "gpukit/cuda_src/matmul/k1_naive.cu"} <= names


def test_the_sdist_holds_sources_tests_and_licence(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.split("/", 1)[-1] for name in sdist.getnames()}
    wanted = {path.relative_to(REPOSITORY).as_posix()
              for folder in ("cuda_src", "tests", "cli", "gpukit")
              for pattern in ("*.py", "*.cu", "*.cuh")
              for path in (REPOSITORY / folder).rglob(pattern)}
    assert wanted | {"LICENSE", "README.md", "pyproject.toml", ".ci/run"} <= names


def registered() -> list[str]:
    from gpukit import kernels

    return list(kernels.names())


def listed(environment: Environment, cwd: Path) -> list[str]:
    """The kernels that `gpukit list` of an environment prints."""
    printed = run(environment.gpukit, "list", "--format", "json", cwd=cwd)
    return [kernel["name"] for kernel in json.loads(printed)]


WHERE = ("import gpukit, gpukit.ops.matmul, gpukit_cli.main; from gpukit import sources;"
         "print(gpukit.__file__, gpukit_cli.__file__, sources.root(),"
         "      len(sources.code('matmul/k1_naive.cu')), sep='\\n')")


def locations(environment: Environment, cwd: Path) -> list[Path]:
    *paths, size = run(environment.python, "-c", WHERE, cwd=cwd).split("\n", 3)
    assert int(size) > 100
    return [Path(path) for path in paths]


def test_the_wheel_works_elsewhere(installed: Environment, tmp_path: Path) -> None:
    assert listed(installed, tmp_path) == registered()
    assert all(path.is_relative_to(installed.root) for path in locations(installed, tmp_path))


def test_the_wheel_works_from_the_repository_root(installed: Environment) -> None:
    """There the repository's gpukit/ shadows the installed one, and finds its own cuda_src/."""
    assert listed(installed, REPOSITORY) == registered()
    package, cli, cuda_src = locations(installed, REPOSITORY)
    assert package == REPOSITORY / "gpukit/__init__.py"
    assert cli.is_relative_to(installed.root)
    assert cuda_src == REPOSITORY / "cuda_src"


def test_an_editable_install_works(editable: Environment, source_tree: Path,
                                   tmp_path: Path) -> None:
    assert listed(editable, tmp_path) == registered()
    assert locations(editable, tmp_path) == [
        source_tree / "gpukit/__init__.py", source_tree / "cli/__init__.py",
        source_tree / "cuda_src"]


def test_the_installed_package_needs_no_writable_folder(installed: Environment,
                                                        tmp_path: Path) -> None:
    """No cache, no home: a read-only installation lists its kernels."""
    nowhere = {"HOME": "/proc/none", "CUPY_CACHE_DIR": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}
    assert "matmul.k1" in run(installed.gpukit, "list", cwd=tmp_path, **nowhere)
