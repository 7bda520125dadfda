"""Machine code of gpukit.matmul on Blackwell: each type by its own instruction, no spills.

Nobody has run these kernels on hardware; what ptxas makes of them can be looked at all the same.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from sass import built, count

from gpukit.devices import nvrtc
from gpukit.devices.nvrtc import Compiled
from gpukit.kernels.matmul_sm100_library import GEMM, THREADS
from gpukit.kernels.spec import Value

# Of the tensor core: 16-bit and tf32, 8 bits, 4 bits.
INSTRUCTION = {"bf16": "UTCHMMA", "tf32": "UTCHMMA", "e4m3": "UTCQMMA", "mxe4m3": "UTCQMMA",
               "nve2m1": "UTCOMMA"}
SINGLE = (("ctas", 1), ("cluster", 1), ("store", "columns"))
REGISTERS = 65536  # of an SM


@cache
def variant(dtype: str, *options: tuple[str, Value]) -> tuple[Compiled, Counter[str]]:
    return built(GEMM, "sm_100a", dtype=dtype, **dict(options))


@pytest.mark.parametrize("dtype", INSTRUCTION)
@pytest.mark.parametrize("options", [(), SINGLE], ids=["pair", "single"])
def test_the_tensor_core_does_all_products(dtype: str,
                                           options: tuple[tuple[str, Value], ...]) -> None:
    compiled, found = variant(dtype, *options)
    used, name = nvrtc.resources(compiled), INSTRUCTION[dtype]
    products = sum(number for code, number in found.items() if code.startswith("UTC")
                   and "MMA" in code)
    assert count(found, name) == products >= 4
    assert count(found, f"{name}.2CTA") == (0 if options else products)
    assert not any(count(found, older) for older in ("HMMA", "HGMMA", "QMMA", "FFMA"))
    assert (used.spill_bytes, used.stack_bytes) == (0, 0)
    assert used.registers <= 64 and used.registers * THREADS <= REGISTERS


@pytest.mark.parametrize(("dtype", "bn", "copies"), [
    ("bf16", 192, 0), ("mxe4m3", 128, 2), ("mxe4m3", 192, 3), ("nve2m1", 128, 8),
    ("nve2m1", 192, 12)])
def test_factors_are_copied_once_for_the_four_products_of_a_step(dtype: str, bn: int,
                                                                 copies: int) -> None:
    """512 bytes at a time: of A, and of each 128 columns; nvfp4 has four times as many."""
    found = variant(dtype, ("bn", bn), ("stages", 4))[1]
    assert 4 * count(found, "UTCCP.T.S.2CTA.4x32dp128bit") == (
        copies * count(found, f"{INSTRUCTION[dtype]}.2CTA"))


def test_how_c_leaves() -> None:
    rows, columns = variant("bf16")[1], variant("bf16", *SINGLE)[1]
    assert count(rows, "UTMASTG.3D") > 0 and count(rows, "STSM") > 0 and count(rows, "STG") == 0
    assert count(columns, "UTMASTG") == count(columns, "STSM") == 0 and count(columns, "STG") == 16


def test_clusters_share_b_and_steal_tiles() -> None:
    found = variant("bf16", ("cluster", 4))[1]
    assert 2 * count(found, "UTMALDG.3D.MULTICAST.2CTA") == count(found, "UTMALDG") > 0
    assert count(found, "UGETNEXTWORKID") == 1
    assert count(found, "MEMBAR.ALL.GPU") == 2  # to begin and to end, none in the loop
