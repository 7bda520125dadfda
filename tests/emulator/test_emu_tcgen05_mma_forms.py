"""Forms of tcgen05.mma: the emulator takes and refuses what the assembler takes and refuses."""

from __future__ import annotations

import re

import pytest
from tcgen05_kernels import Form

from gpukit.emulator.api import load
from gpukit.emulator.errors import UnsupportedInstructionError
from gpukit.emulator.nvrtc import compile_ptx

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

UNSCALED = ("f16", "tf32", "f8f6f4", "i8")
SCALED = [("mxf8f6f4", v) for v in ("", "scale_vec::1X", "block32")]
SCALED += [("mxf4", v) for v in ("", "scale_vec::2X", "block32")]
SCALED += [("mxf4nvf4", v) for v in ("scale_vec::2X", "scale_vec::4X", "block16", "block32")]
BOTH = [(group, in_tensor) for group in (1, 2) for in_tensor in (False, True)]
FORMS = [
    *[Form(kind, group, a_in_tensor_memory=at, disabled=disabled)
      for kind in UNSCALED for group, at in BOTH for disabled in (False, True)],
    *[Form(kind, group, a_in_tensor_memory=at, input_shift=15)
      for kind in ("f16", "tf32") for group, at in BOTH],
    *[Form(kind, group, vector=v, a_in_tensor_memory=at) for kind, v in SCALED
      for group, at in BOTH],
    *[Form(kind, ws=True, a_in_tensor_memory=at, zeros=zeros, collector=collector)
      for kind in UNSCALED for at in (False, True) for zeros in (False, True)
      for collector in ("", "collector::b0::fill", "collector::b3::lastuse")],
    *[Form(kind, collector=f"collector::a::{use}", vector=v)
      for kind, v in (("f16", ""), ("mxf4", "block32"))
      for use in ("fill", "use", "lastuse", "discard")],
]  # fmt: skip
PLAIN = Form("f16").text
BAD = [
    Form("mxf4nvf4").text,
    Form("mxf8f6f4", vector="scale_vec::2X").text,
    Form("mxf4", vector="block16").text,
    Form("f8f6f4", input_shift=1).text,
    Form("f16", input_shift=16).text,
    Form("f16", 2, ws=True).text,
    Form("f16", ws=True, disabled=True).text,
    Form("mxf4", disabled=True).text,
    Form("f16", collector="collector::b0::fill").text,
    Form("f16", ws=True, collector="collector::a::fill").text,
    Form("f16", 2, disabled=True).text.replace("cta_group::2", "cta_group::1"),
    PLAIN.replace("kind::f16", "kind::f16.block_scale"),
    PLAIN.replace("kind::f16", "kind::bf16"),
    PLAIN.replace(", p;", ";"),
    PLAIN.replace("[%0]", "%0"),
]


def source(text, in_tensor_memory=False):
    """A kernel with one mma, which need not make sense to run."""
    a = '"r"(w[0])' if in_tensor_memory else '"l"(d[0])'
    words = ", ".join(f'"r"(w[{i}])' for i in range(1, 9))
    return f"""extern "C" __global__ void k(const unsigned* w, const unsigned long long* d) {{
  asm volatile("{{ .reg .pred p; setp.ne.u32 p, %4, 0; {text} }}" ::
    "r"(w[0]), {a}, "l"(d[1]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "l"(d[2]), {words}); }}
"""


def assembles(text):
    """Whether ptxas takes a source for sm_100a; and its log."""
    made = nvrtc.nvrtcCreateProgram(text.encode(), b"k.cu", 0, [], [])[1]
    try:
        status = nvrtc.nvrtcCompileProgram(made, 2, [b"-arch=sm_100a", b"-std=c++17"])[0]
        size = nvrtc.nvrtcGetProgramLogSize(made)[1]
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(made, log)
        return status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    finally:
        nvrtc.nvrtcDestroyProgram(made)


def decodes(text):
    """Whether the emulator takes it."""
    try:
        load(compile_ptx(text, arch="sm_100a"))
    except UnsupportedInstructionError:
        return False
    return True


def test_the_assembler_takes_every_form():
    """All in one module: ptxas checks the PTX of inline assembly, NVRTC's front end does not."""
    kernels = [source(form.text, form.a_in_tensor_memory).replace(" k(", f" k{i}(")
               for i, form in enumerate(FORMS)]  # fmt: skip
    good, log = assembles("\n".join(kernels))
    assert good, log


@pytest.mark.parametrize("first", range(0, len(FORMS), 20))
def test_the_emulator_takes_every_form(first):
    for form in FORMS[first : first + 20]:
        assert decodes(source(form.text, form.a_in_tensor_memory)), form.text


@pytest.mark.parametrize("text", BAD)
def test_both_refuse(text):
    assert re.match(r"tcgen05\.mma", text)
    assert not assembles(source(text))[0]
    assert not decodes(source(text))


def test_one_cta_group_for_a_kernel():
    both = f"{PLAIN} {Form('f16', 2).text}"
    with pytest.raises(UnsupportedInstructionError, match=r"uses \.cta_group::2, other .* ::1"):
        load(compile_ptx(source(both), arch="sm_100a"))
