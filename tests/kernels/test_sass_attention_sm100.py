"""The Blackwell attention kernel's machine code against the napkin in its header.

Nobody has run it on hardware; what ptxas makes of it can be counted all the same.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from sass import built, count, disassembled

from gpukit import kernels
from gpukit.devices import nvrtc
from gpukit.devices.nvrtc import Compiled
from gpukit.kernels.attention_sm100 import THREADS

REGISTERS = 65536  # of an SM
ROLES = (192, 192, 80, 48)  # registers of a thread of each warpgroup
D = N = ROWS = 128
POLY = 2  # of 8 pairs
PAIRS = N // 2 * POLY // 8  # of a row, by polynomial
MMA_FLOPS, EX2 = 8192, 16  # a clk and SM


@cache
def kernel() -> tuple[Compiled, Counter[str]]:
    return built(kernels.get("attention.sm100.k4"), "sm_100a", poly=POLY)


def of(name: str) -> int:
    return count(kernel()[1], name)


def test_nothing_spills_and_roles_share_all_registers() -> None:
    used = nvrtc.resources(kernel()[0])
    assert (used.spill_bytes, used.stack_bytes, used.static_shared_bytes) == (0, 0, 0)
    assert of("LDL") == of("STL") == 0
    assert used.registers * THREADS == REGISTERS == 128 * sum(ROLES)
    assert of("USETMAXREG") == 3  # two take, by the same instruction; two give


def test_each_role_keeps_to_its_registers() -> None:
    """Between one change of their number and the next no register beyond it stands."""
    text = disassembled(kernel()[0].image)
    _, *parts = re.split(r"USETMAXREG\S*\s+(?:UP\d, )?0x([0-9a-f]+)", text)
    limits = [int(number, 16) for number in parts[::2]]
    assert sorted(limits) == sorted(set(ROLES))
    for limit, code in zip(limits, parts[1::2], strict=True):
        assert 8 <= max(int(number) for number in re.findall(r"\bR(\d+)\b", code)) < limit


def test_products_of_a_step_stand_once() -> None:
    """16 of K each: two first scores; sums and the next scores of two tiles."""
    assert of("UTCHMMA") == 2 * (D // 16) + 2 * (N // 16 + D // 16)
    assert not any(of(older) for older in ("HMMA", "HGMMA"))


def test_a_row_costs_what_the_napkin_says() -> None:
    polynomial = {"FFMA2": 5 * PAIRS, "FADD2": 2 * PAIRS, "clamp": 2 * PAIRS, "shift": 2 * PAIRS}
    assert of("FFMA2") == N // 2 + polynomial["FFMA2"]
    assert of("FADD2") == N // 2 + N // 32 + polynomial["FADD2"]  # a sum of two chains a piece
    assert of("FMNMX3") == N // 2 - 1  # the maximum, three at a time
    exponentials = N - 2 * PAIRS
    assert exponentials <= of("MUFU.EX2") <= exponentials + 12  # and of factors and endings
    row = N // 2 + N // 2 + N // 2 + N // 32 + N // 2 + exponentials + sum(polynomial.values()) + 8
    assert row == 540


def test_the_tensor_core_is_the_limit() -> None:
    """Clk of a tile and a block; four schedulers have a warp of the tile each."""
    products = 2 * 2 * ROWS * N * D / MMA_FLOPS
    exponentials = ROWS * of("MUFU.EX2") / EX2
    issue = sum(of(name) for name in ("FFMA2", "FADD2", "FMNMX", "FMNMX3", "F2FP", "MUFU", "IMAD"))
    assert max(exponentials, issue) < products == 1024


def test_output_leaves_by_tma_and_work_comes_by_launch_control() -> None:
    assert of("UTMASTG") > 0
    assert of("UGETNEXTWORKID") == 1
    assert of("LDTM") > 0 and of("STTM") > 0
    assert of("MEMBAR.ALL.GPU") == 0
