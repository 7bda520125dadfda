"""``gpukit show matmul --shape``, ``gpukit tune matmul`` and second names, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import Done

Run = Callable[..., Done]


def test_the_choice_and_its_rivals(gpukit: Run, tmp_path: Path) -> None:
    done = gpukit("show", "matmul", "--shape", "512x256x128,16x4096x4096", "--device", "emu:h100",
                  GPUKIT_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err
    assert done.out.startswith("512x256x128 on emulated H100: gemm:bm=")
    assert "16x4096x4096 on emulated H100: narrow:rows=" in done.out
    assert done.out.count("the cost model's best") == 2
    starred = [line for line in done.out.splitlines() if line.startswith("*")]
    assert len(starred) == 2 and starred[1].split()[1].startswith("narrow:")


def test_the_choice_is_the_gpus_own(gpukit: Run) -> None:
    done = gpukit("show", "matmul", "--shape", "512x512x500", "--dtype", "e4m3", "--device",
                  "emu:b200")
    assert done.code == 0, done.err
    assert done.out.startswith("512x512x500 on emulated B200: tcgen05:bn=")
    assert "A and B packed first" in done.out


def test_factors_of_blocks_are_for_blackwell(gpukit: Run) -> None:
    command = ("show", "matmul", "--shape", "4096x4096x4096", "--device")
    tflops = []
    for dtype in ("mxfp8", "nvfp4"):
        done = gpukit(*command, "emu:b200", "--dtype", dtype)
        assert done.out.startswith("4096x4096x4096 on emulated B200: tcgen05:bn=")
        starred = next(line for line in done.out.splitlines() if line.startswith("*"))
        tflops.append(float(starred.split()[-1]))
        refused = gpukit(*command, "emu:h100", "--dtype", dtype)
        assert refused.code == 1 and "need sm_100a, this GPU is sm_90" in refused.err
    assert tflops[1] > 1.3 * tflops[0]  # twice the elements in as many bytes


def test_a_tuned_choice_says_so(gpukit: Run, tmp_path: Path) -> None:
    from gpukit.devices import emulated
    from gpukit.ops.matmul import Gemm, tuned
    from gpukit.ops.matmul.explain import dense

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUKIT_CACHE_DIR", str(tmp_path))
        tuned.store(dense(512, 256, 128), emulated.get("h100").properties, Gemm(128, 32, 5))
    command = ("show", "matmul", "--shape", "512x256x128", "--device", "emu:h100")
    done = gpukit(*command, GPUKIT_CACHE_DIR=str(tmp_path))
    assert "gemm:bm=128,bn=32,stages=5\nmeasured by `gpukit tune`" in done.out
    done = gpukit(*command, GPUKIT_CACHE_DIR=str(tmp_path), GPUKIT_TUNE="0")
    assert "the cost model's best" in done.out


def test_what_there_is_nothing_to_choose_for(gpukit: Run) -> None:
    done = gpukit("show", "matmul", "--shape", "8x512x64", "--dtype", "f32", "--device", "emu:h100")
    assert done.out == ("8x512x64 on emulated H100: vector\n"
                        "all there is for this problem\n\n")


def test_operands_that_are_packed_first(gpukit: Run) -> None:
    done = gpukit("show", "matmul", "--shape", "64x512x500", "--dtype", "e4m3", "--layout", "nn",
                  "--device", "emu:h100")
    assert "A and B packed first" in done.out


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("show", "matmul", "--shape", "8", "--dtype", "int8"), 2, "dtype is 'int8'; accepted: bf16"),
    (("show", "matmul", "--shape", "8", "--layout", "xy"), 2, "layout is 'xy'; accepted: nt, nn"),
    (("show", "matmul", "--shape", "8", "--out-dtype", "q"), 2, "dtype 'q' is unknown"),
    (("show", "matmul", "--shape", "0"), 2, "0"),
    (("show", "matmul", "--shape", "8", "--arch", "sm_90"), 2, "without --set and --arch"),
    (("show", "matmul"), 2, "matmul is a family: add --shape MxNxK"),
    (("show", "matmul.k1", "--shape", "8"), 2, "--shape goes with `show matmul`"),
    (("show", "matmul.k1", "--dtype", "f32"), 2, "--dtype goes with --shape"),
    (("tune", "matmul", "--shape", "8", "--device", "emu:h100"), 3, "emu:h100 has no clock"),
    (("tune", "matmul"), 2, "Missing option '--shape'"),
    (("tune", "softmax"), 2, "No such command 'softmax'"),
])
def test_refusals(gpukit: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = gpukit(*arguments)
    assert done.code == code
    assert message in " ".join(done.err.split())
    assert not done.out


def test_attention_decode_has_a_second_name(gpukit):
    small = "--batch", "1", "--length", "64", "--dry-run"
    own = gpukit("bench", "attention-decode", *small, "--page", "16")
    assert own.code == 0
    assert "page=16" in own.out
    assert gpukit("bench", "attention", "--decode", "--paged", *small).out == own.out
    assert gpukit("bench", "attention", "--paged").code == 2
