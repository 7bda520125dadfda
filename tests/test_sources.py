"""The include closure, its digest, line numbers in errors, and the rules every `.cu` file keeps."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpukit import kernels, sources
from gpukit.devices import nvrtc
from gpukit.errors import CompileError
from gpukit.kernels import KernelSpec

ROOT = sources.root()
CU = sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.cu"))
DEVICE_FILES = CU + sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*.cuh"))
HOST_CODE = re.compile(r"<<<|\bint\s+main\s*\(|\bcuda(?:Malloc|Memcpy|Free|Launch|DeviceSync)"
                       r"|(?<!cuda::)\bstd::|\bmalloc\s*\(")
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

Tree = Callable[..., None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Writes files given as name=text (`__` for `/`, `_` for `.`) below a root of their own."""
    monkeypatch.setattr(sources, "root", lambda: tmp_path)

    def write(**files: str) -> None:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    return write


def test_a_diamond_is_visited_once_in_first_seen_order(tree: Tree) -> None:
    tree(a_cu='#include "b.cuh"\n#include "c.cuh"\n', b_cuh='  #  include "d.cuh"\n',
         c_cuh='#include "d.cuh"\n', d_cuh="")
    assert sources.include_closure("a.cu") == ("a.cu", "b.cuh", "d.cuh", "c.cuh")


def test_a_cycle_ends(tree: Tree) -> None:
    tree(a_cuh='#include "x/b.cuh"\n', x__b_cuh='#include "a.cuh"\n')
    assert sources.include_closure("a.cuh") == ("a.cuh", "x/b.cuh")


def test_system_includes_are_not_ours(tree: Tree) -> None:
    tree(a_cu='#include <cuda_fp16.h>\n// #include "gone.cuh"\n')
    assert sources.include_closure("a.cu") == ("a.cu",)


def test_a_missing_include_is_named(tree: Tree) -> None:
    tree(a_cu='#include "gone.cuh"\n')
    with pytest.raises(CompileError, match=r"cannot read cuda_src/gone\.cuh: No such file"):
        sources.digest("a.cu")


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable copy of `cuda_src/` in the place of the original."""
    copy = tmp_path / "cuda_src"
    shutil.copytree(ROOT, copy)
    monkeypatch.setattr(sources, "root", lambda: copy)
    return copy


def test_an_edited_header_changes_the_digest(copied: Path) -> None:
    before = sources.digest("elementwise/unary.cu"), sources.digest("matmul/k1_naive.cu")
    header = copied / "common/vec.cuh"
    header.write_text(header.read_text() + "\n// edited\n")
    after = sources.digest("elementwise/unary.cu"), sources.digest("matmul/k1_naive.cu")
    assert after[0] != before[0]
    assert after[1] == before[1], "k1 does not include vec.cuh"


def test_a_renamed_header_changes_the_digest(tree: Tree) -> None:
    tree(a_cu='#include "b.cuh"\n', b_cuh="same", c_cuh="same")
    before = sources.digest("a.cu")
    tree(a_cu='#include "c.cuh"\n')
    assert sources.digest("a.cu") != before


def test_the_digest_reaches_the_compiler() -> None:
    name = "matmul/k1_naive.cu"
    assert f"-DGPUKIT_SOURCE_DIGEST=0x{sources.digest(name)}ull" in sources.compile_options(name)


def compile_error(spec: KernelSpec, arch: str = "sm_90") -> str:
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_kernel(spec, {}, arch)
    return str(caught.value)


def test_compiler_errors_name_our_file_and_line(copied: Path) -> None:
    spec = kernels.get("matmul.k1")
    path = copied / spec.source
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "f32 sum" in line)
    lines[at] = "    f32 sum = undeclared;"
    path.write_text("\n".join(lines) + "\n")
    assert f"cuda_src/matmul/k1_naive.cu({at + 1}): error" in compile_error(spec)


def test_errors_in_headers_name_the_header(copied: Path) -> None:
    header = copied / "common/types.cuh"
    broken = [*header.read_text().splitlines(), "broken on purpose"]
    header.write_text("\n".join(broken) + "\n")
    message = compile_error(kernels.get("matmul.k1"))
    assert f"\ncuda_src/common/types.cuh({len(broken)}): error" in message


def test_header_comment_is_the_leading_block(tree: Tree) -> None:
    tree(a_cu="// First.\n//\n//  indented\ncode(); // not this\n// nor this\n", b_cu="int x;\n")
    assert sources.header_comment("a.cu") == "First.\n\n indented"
    assert sources.header_comment("b.cu") == ""


@pytest.mark.parametrize("name", CU)
def test_every_kernel_explains_itself(name: str) -> None:
    lines = sources.header_comment(name).splitlines()
    assert len(lines) >= 5, f"{name}: a header comment of at least five lines"
    assert len(lines[0].split()) >= 5 and lines[0].rstrip()[-1] in ".:;,", \
        f"{name}: the first line states what the kernel does"


@pytest.mark.parametrize("name", CU)
def test_every_kernel_file_is_registered(name: str) -> None:
    assert name in {spec.source for spec in kernels.registry().values()}


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_assembly_lives_in_common_only(name: str) -> None:
    if not name.startswith("common/"):
        assert not re.search(r"\b(?:asm|__asm__)\b", code_only(name)), f"{name} holds assembly"


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_there_is_no_host_code(name: str) -> None:
    found = HOST_CODE.search(code_only(name))
    assert found is None, f"{name} holds host code: {found and found.group()}"


@pytest.mark.parametrize("name", DEVICE_FILES)
def test_includes_are_ours_or_available_to_nvrtc(name: str) -> None:
    """NVRTC has no host headers; quoted includes are relative to cuda_src and must exist."""
    for system in re.findall(r"#\s*include\s*<([^>]+)>", code_only(name)):
        assert system.startswith(("cuda_", "cuda/", "cub/", "cooperative_groups")), system
    assert all((ROOT / part).is_file() for part in sources.include_closure(name))


def code_only(name: str) -> str:
    """A file's text without its comments."""
    return re.sub(r"//.*", "", BLOCK_COMMENT.sub("", sources.text(name)))
