"""What the microbenchmarks measure is what stands in their machine code, nothing left out."""

from __future__ import annotations

import re

import pytest
from sass import built, count, disassembled

from gpukit import kernels
from gpukit.devices import nvrtc

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.mark.parametrize(("dtype", "acc", "mnemonic"), [
    ("bf16", "f32", "HGMMA"), ("e4m3", "f16", "QGMMA"), ("s8", "i32", "IGMMA")])
@pytest.mark.parametrize("registers", ["false", "true"])
def test_one_extra_product_and_turns_of_four(dtype: str, acc: str, mnemonic: str,
                                             registers: str) -> None:
    compiled, code = built(kernels.get("ceilings.wgmma"), "sm_90a", dtype=dtype, acc=acc, n=64,
                           registers=registers)
    found = count(code, mnemonic)
    assert found > 1 and found % 4 == 1
    assert "serialized" not in compiled.log
    assert nvrtc.resources(compiled).spill_bytes == 0


def test_every_chain_is_fed_once_and_then_twice_a_turn() -> None:
    _, code = built(kernels.get("ceilings.mma"), "sm_90", chains=4)
    assert count(code, "HMMA") > 4 and (count(code, "HMMA") - 4) % 8 == 0


@pytest.mark.parametrize(("width", "load"), [(4, "LDS"), (8, "LDS.64"), (16, "LDS.128")])
def test_shared_memory_is_read_as_wide_as_asked(width: int, load: str) -> None:
    _, code = built(kernels.get("ceilings.shared"), "sm_90", width=width)
    assert code[load] >= 8
    assert count(code, "LDS") == code[load]


@pytest.mark.parametrize(("op", "loads", "stores"), [("read", True, False), ("write", False, True),
                                                     ("copy", True, True)])
def test_memory_is_accessed_in_turns_of_eight(op: str, loads: bool, stores: bool) -> None:
    _, code = built(kernels.get("ceilings.stream"), "sm_90", op=op)
    wide = {name: sum(n for found, n in code.items() if found.startswith(f"{name}.E.128"))
            for name in ("LDG", "STG")}
    assert wide["LDG"] % 8 == 0 and bool(wide["LDG"]) == loads
    assert (wide["STG"] - (op == "read")) % 8 == 0 and (wide["STG"] > 1) == stores


def test_a_hop_is_over_before_the_clock_is_read_again() -> None:
    """Clock, load, a store that waits for the loaded value, clock."""
    compiled = nvrtc.compile_kernel(kernels.get("ceilings.chase"), {"each": "true"}, "sm_90")
    text = " ".join(re.findall(r"(LDG|STS|CLOCKLO)\b", disassembled(compiled.image)))
    assert "CLOCKLO LDG STS CLOCKLO STS" in text
