"""PTX that is broken in ways no compiler would: an error of the emulator, never of Python."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from emulator_kernels import HEADER, ptx_kernel
from refusals import refused

from gpukit import emulator
from gpukit.emulator.errors import (
    EmulatorError,
    LaunchError,
    PtxSyntaxError,
    UnsupportedInstructionError,
)
from gpukit.emulator.nvrtc import compile_ptx


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        (".global .b32 g = 029;", "PTX line 4: unexpected character '0'"),
        (".global .b32 g = 1 / 0;", "PTX line 4: cannot be read: integer division"),
        (".global .b32 g = 1 << 99999999999;", "PTX line 4: cannot be read: shift by 99999999999"),
        (".global .b8 g[2] = {1, 2, 3};", "g: 3 initial values for 2 bytes"),
        (".global .b8 g = 1.5;", "g: the initial value 1.5 is no .b8"),
        (".global .b8 g[99999999999999999];", "g: no memory for a variable of 9999999999999999"),
        (".func f({.b32 a) { ret; }", "PTX line 4: expected .param or .reg, found '{'"),
    ],
)
def test_declarations(declarations, message):
    source = f"{HEADER}{declarations}\n.visible .entry k() {{ ret; }}\n"
    refused(message, lambda: emulator.run(source, 1, 1, []), (LaunchError, PtxSyntaxError))


def test_blocks_nested_beyond_all_reason():
    source = ptx_kernel("{" * 5000 + "}" * 5000)
    refused("cannot be read: maximum recursion", lambda: emulator.run(source, 1, 1, []),
            PtxSyntaxError)  # fmt: skip


def test_more_local_memory_than_a_thread_has():
    source = ptx_kernel(".local .b8 l[600000]; .reg .b64 %a; mov.u64 %a, l; ret;")
    refused("kernel: k needs 600000 bytes of local memory a thread (stack_bytes included), 5242",
            lambda: emulator.run(source, 1, 1, []))  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["bra", "mov.u32 %a", "mov.b64 {%a, %a, %a}, %d", "add.s128 %a, %a, %a", "mov.u32 %a, g",
     "mov.b64 %d, 0f3F800000", "setp.ltu.u32 %p, %a", "shfl.sync.bfly.b32 %a, %a, 1"],
)  # fmt: skip
def test_operands_that_do_not_fit(text):
    source = ptx_kernel(f".reg .b32 %a; .reg .b64 %d; .reg .pred %p; {text}; ret;",
                        declarations=".global .b32 g;")  # fmt: skip
    with pytest.raises(UnsupportedInstructionError) as caught:
        emulator.run(source, 1, 1, [])
    assert re.search(rf"PTX line 7: {re.escape(text)}: ", str(caught.value))


MIXED = """__constant__ int c[4] = {1, 2, 3, 4};
extern "C" __global__ void k(float* y, int n) {
  __shared__ float s[64]; int i = threadIdx.x; s[i] = y[i % n]; __syncthreads();
  if (n & 1) atomicAdd(y, s[0]); else y[1] = sinf(y[2]);
  y[i] = __shfl_xor_sync(~0u, s[i], 1) + c[n & 3]; }"""


@pytest.mark.parametrize("seed", range(60))
def test_instructions_with_parts_exchanged(seed):
    """One operand, opcode or modifier put where another was."""
    chosen, lines = random.Random(seed), compile_ptx(MIXED).split("\n")
    places = [i for i, line in enumerate(lines) if re.match(r"\s+[a-z@].*;$", line)]
    words = [word for i in places for word in re.findall(r"[\w%.]+|\[.*?\]", lines[i])]
    at = chosen.choice(places)
    old = chosen.choice(re.findall(r"[\w%.]+|\[.*?\]", lines[at]))
    lines[at] = lines[at].replace(old, chosen.choice(["", "0", "1.5", *words]), 1)
    try:
        emulator.run("\n".join(lines), 1, 64, [np.ones(64, "f4"), 3], budget=10_000)
    except EmulatorError as problem:
        assert str(problem)
