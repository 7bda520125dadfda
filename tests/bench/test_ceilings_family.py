"""`gpukit bench ceilings`: cases, checks, and bank conflicts as the layout algebra has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpukit.bench.emulated_target import EmulatedTarget
from gpukit.bench.families.ceilings import FAMILY, PARTS
from gpukit.bench.families.ceilings_wgmma import inputs, operands
from gpukit.bench.model import Case, Prepared, Row
from gpukit.bench.published import Published, published_column
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import UnsupportedError
from gpukit.layout import banks

pytest.importorskip("cuda.bindings.nvrtc")


def cases(**axes: tuple[Any, ...]) -> list[Case]:
    return select_cases(FAMILY, axes, emulated=True)


@pytest.fixture
def device() -> Any:
    return emulated.get("h100")


def ran(case: Case, device: Any) -> Prepared:
    prepared = FAMILY.prepare(case, device, ())
    prepared.poison()
    assert not prepared.check().ok, "poison passes"
    prepared.work.launch(0)
    return prepared


@pytest.mark.parametrize("case", [
    *cases(part=("wgmma",), dtype=("bf16",), n=(8,), warpgroups=(2,)),
    *cases(part=("wgmma",), dtype=("f16", "e4m3", "s8"), n=(16,), a=("registers",)),
    *cases(part=("wgmma",), dtype=("tf32",), n=(16,), a=("shared",)),
    *cases(part=("mma",), dtype=("bf16", "f16"), warps=(4,)),
    *cases(part=("shared",), width=(8,), ways=(2,)),
    *cases(part=("l2", "dram")), *cases(part=("tma",), inner=(16, 64)),
    *cases(part=("latency",), level=("l1", "dram"))],
    ids=lambda case: case.key)
def test_a_right_launch_passes_and_poison_does_not(case: Case, device: Any) -> None:
    prepared = ran(case, device)
    assert prepared.check().ok
    assert prepared.bytes_moved or prepared.flops or case.kernel == "ceilings.latency"


@pytest.mark.parametrize(("width", "ways"), [(4, 1), (4, 4), (8, 2), (16, 1), (16, 8)])
def test_conflicts_counted_are_those_of_the_algebra(device: Any, width: int, ways: int) -> None:
    """Loads of 8 turns of 8 by two CTAs of 32 warps; filling shared memory has no conflicts."""
    [case] = cases(part=("shared",), width=(width,), ways=(ways,))
    ran(case, device)
    counted = EmulatedTarget(device).counters()
    assert counted is not None
    cost = banks.access(np.arange(32) * width * ways, width)
    assert counted["shared_conflicts"] == 64 * 64 * (cost.wavefronts - cost.ideal)


@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "s8"])
def test_a_turn_of_products_cancels(dtype: str) -> None:
    """[A1 -A1 A1 -A1] times [B1 B1 B2 B2] is nothing, or D would not be known after it."""
    a, b = (x.astype(np.float64) for x in operands(dtype, "f32", 16, False))
    left = np.concatenate([a, -a, a, -a], axis=1)
    k = a.shape[1]
    right = np.concatenate([b[:, :k], b[:, :k], b[:, k:], b[:, k:]], axis=1)
    assert not (left @ right.T).any()
    assert (a @ b[:, :k].T).any()


def test_fragments_hold_both_signs() -> None:
    a, b = operands("bf16", "f32", 8, False)
    words = inputs(a, b)[1]
    assert words.shape == (2, 128, 4)
    assert (words[0] ^ words[1]).any() and not ((words[0] ^ words[1]) & 0x7FFF7FFF).any()


@pytest.mark.parametrize(("axes", "reason"), [
    ({"acc": ("f16",), "dtype": ("bf16",)}, "bf16 sums in f32"),
    ({"acc": ("f16",), "dtype": ("f16",), "n": (8,)}, "multiples of 16"),
    ({"dtype": ("bf16",), "n": (256,), "warpgroups": (4,)}, "do not fit the registers")])
def test_what_cannot_be_measured(axes: dict[str, Any], reason: str, device: Any) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        FAMILY.prepare(cases(part=("wgmma",), **axes)[0], device, ())


def test_a_set_smaller_than_a_turn_of_all_threads_is_refused(device: Any) -> None:
    with pytest.raises(UnsupportedError, match="from 16384 bytes"):
        FAMILY.prepare(cases(part=("l2",), set=(8192,))[0], device, ())


@pytest.mark.parametrize("part", ["l2", "dram", "tma", "latency"])
def test_a_set_that_would_take_hours_to_emulate_is_refused(part: str, device: Any) -> None:
    for case in cases(part=(part,), set=(4 << 30,)):
        with pytest.raises(UnsupportedError, match="too large to emulate"):
            FAMILY.prepare(case, device, ())


def test_published_rates_stand_beside_the_rows_they_belong_to() -> None:
    figures = [Published("ceilings", "wgmma", "GPU", "n=8 a=shared data=random", 157.6, "TFLOP/s",
                         "")]
    rows = [Row.of(case, "GPU", "sm_90", "")
            for case in cases(part=("wgmma",), dtype=("bf16", "e4m3"), n=(8, 16))]
    column = published_column(rows, figures)
    assert column is not None
    beside = {(row.dtype, row.shape["n"], row.params["a"]) for row in rows
              if column.cell(row) == "157.6 on GPU"}
    assert beside == {("bf16", 8, "shared")}


def test_there_is_one_set_of_buffers(device: Any) -> None:
    [case] = cases(part=("shared",), width=(4,), ways=(1,))
    with pytest.raises(UnsupportedError, match="flush or hot"):
        FAMILY.prepare(replace(case, l2="rotate"), device, ())


def test_parts_are_counted_by_their_own_axes() -> None:
    found = select_cases(FAMILY, {})
    full = {axis.name: axis.default for axis in FAMILY.axes}
    assert len(found) <= FAMILY.count(full) < 2 * len(found)
    assert {case.kernel for case in found} == {f"ceilings.{part}" for part in PARTS}
