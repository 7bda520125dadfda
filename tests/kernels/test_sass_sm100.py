"""The Blackwell ladder's machine code: the instructions that each rung is about, and none too many.

Nobody has run these kernels on hardware; what ptxas makes of them can be looked at all the same.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from sass import built, count

from gpukit import kernels
from gpukit.devices import nvrtc
from gpukit.devices.nvrtc import Compiled
from gpukit.kernels.matmul_sm100 import threads
from gpukit.kernels.spec import Value

RUNGS, PAIRED = range(2, 9), range(5, 9)
REGISTERS = 65536  # of an SM
SHARED = 227 << 10  # of a CTA


@cache
def rung(number: int, cluster: int = 0) -> tuple[Compiled, Counter[str]]:
    options: dict[str, Value] = {"cluster": cluster} if cluster else {}
    return built(kernels.get(f"matmul.sm100.k{number}"), "sm_100a", **options)


def code(number: int, cluster: int = 0) -> Counter[str]:
    return rung(number, cluster)[1]


@pytest.mark.parametrize("number", RUNGS)
def test_nothing_lies_in_local_memory_and_the_cta_fits_an_sm(number: int) -> None:
    spec = kernels.get(f"matmul.sm100.k{number}")
    compiled, found = rung(number)
    used = nvrtc.resources(compiled)
    assert (used.spill_bytes, used.stack_bytes, used.static_shared_bytes) == (0, 0, 0)
    assert count(found, "LDL") == count(found, "STL") == 0
    assert used.registers * threads(number) <= REGISTERS
    assert spec.shared_bytes(spec.resolve({})) <= SHARED


@pytest.mark.parametrize("number", range(4, 9))
def test_sums_do_not_live_in_registers(number: int) -> None:
    """A piece of C at a time leaves Tensor Memory: 64 sums a thread where a warp has 32 rows."""
    assert nvrtc.resources(rung(number)[0]).registers <= 80


@pytest.mark.parametrize("number", RUNGS)
def test_the_tensor_core_of_this_generation_does_all_products(number: int) -> None:
    found = code(number)
    assert count(found, "UTCHMMA") >= 4
    assert not any(count(found, older) for older in ("HMMA", "HGMMA", "FFMA", "HFMA2"))
    assert count(found, "LDTM") > 0  # sums out of Tensor Memory
    assert count(found, "UTCATOMSWS") > 0  # its allocation


def test_rung_3_asks_for_an_eighth_of_the_boxes() -> None:
    assert count(code(2), "UTMALDG") == 8 * count(code(3), "UTMALDG") > 0
    assert count(code(2), "UTCHMMA") == count(code(3), "UTCHMMA")


def test_c_leaves_by_tma_from_rung_4_on() -> None:
    for number in (2, 3):
        assert count(code(number), "STG") >= 64  # element by element
        assert count(code(number), "UTMASTG") == count(code(number), "STSM") == 0
    for number in range(4, 9):
        assert count(code(number), "STG") == 0
        assert count(code(number), "UTMASTG") > 0 and count(code(number), "STSM") > 0


def test_two_sms_work_as_one_from_rung_5_on() -> None:
    for number in RUNGS:
        for name in ("UTCHMMA", "UTMALDG.2D", "UTCBAR", "UTCATOMSWS"):
            pairs = count(code(number), f"{name}.2CTA")
            if name == "UTCATOMSWS":
                assert (pairs > 0) == (number >= 5)
            else:
                assert pairs == (count(code(number), name) if number >= 5 else 0)


@pytest.mark.parametrize("number", PAIRED)
def test_pairs_that_share_b_multicast_it(number: int) -> None:
    """Of two loads a step, one goes to several CTAs; with one pair, none does."""
    assert count(code(number), "UTMALDG.2D.MULTICAST") == 0
    assert 2 * count(code(number, 4), "UTMALDG.2D.MULTICAST") == count(code(number, 4), "UTMALDG")
    assert count(code(number), "UTCBAR.2CTA.MULTICAST") > 0  # the end of an MMA, to both CTAs


def test_only_rung_8_asks_for_more_work() -> None:
    asked = {number: count(code(number), "UGETNEXTWORKID") for number in RUNGS}
    assert asked == {**dict.fromkeys(range(2, 8), 0), 8: 1}


@pytest.mark.parametrize("number", PAIRED)
def test_the_main_loop_orders_no_memory_of_the_whole_gpu(number: int) -> None:
    """A MEMBAR.ALL.GPU per step made clusters slow on Hopper: here only to begin and to end."""
    assert count(code(number), "MEMBAR.ALL.GPU") == 2
