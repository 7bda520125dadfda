"""Loops in machine code: found in either disassembler's text, and counted as published."""

from __future__ import annotations

import pytest

from gpukit.errors import ArgumentError, CompileError, MissingDependencyError
from gpukit.study import sass, turns

NVDISASM = """
.text.other:
        /*0000*/                   LDG.E R3, [R2.64] ;
.L_x_0:
        /*0010*/              @!P0 BRA `(.L_x_0) ;
.text.mine:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_2:
.L_x_5:
        /*0020*/                   LDG.E.128 R4, [R2.64] ;
        /*0030*/              @!P1 BRA `(.L_x_3) ;
        /*0040*/                   STG.E.128 [R8.64], R4 ;
.L_x_3:
        /*0050*/              @!P0 BRA `(.L_x_5) ;
        /*0060*/               @P2 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
.L_x_4:
        /*0080*/                   BRA `(.L_x_4);
        /*0090*/                   NOP;
"""
CUOBJDUMP = """
\t\tFunction : mine
\t.headerflags\t@"EF_CUDA_SM80"
        /*0000*/                   S2R R0, SR_TID.X ;   /* 0x0000000000007919 */
                                                        /* 0x000e220000002100 */
        /*0010*/                   LDG.E R3, [R2.64] ;  /* 0x0000000402037981 */
        /*0020*/                   STG.E [R4.64], R3 ;  /* 0x0000000304007986 */
        /*0030*/              @!P0 BRA 0x10 ;           /* 0xffffffd000008947 */
        /*0040*/                   EXIT ;               /* 0x000000000000794d */
        /*0050*/                   BRA 0x50;            /* 0xfffffff000007947 */
"""


def test_loops_lie_between_a_target_and_the_branch_back_to_it() -> None:
    inner, outer = sass.loops(NVDISASM, "mine")
    assert [one.name for one in inner.instructions] == ["LDG.E.128", "BRA", "STG.E.128", "BRA"]
    assert outer.count() == 6 and outer.count("LDG") == 1 and outer.count("L") == 0
    assert str(inner.instructions[-1]) == "@!P0 BRA `(.L_x_5)"


def test_branches_ahead_and_padding_are_no_loops() -> None:
    assert [loop.instructions[-1].address for loop in sass.loops(NVDISASM, "mine")] == [0x50, 0x60]


def test_the_main_loop_is_the_innermost_that_reads_and_writes() -> None:
    assert sass.main_loop(NVDISASM, "mine").count() == 4


def test_a_loop_of_another_function_does_not_count() -> None:
    with pytest.raises(CompileError, match="other has no loop that reads and writes"):
        sass.main_loop(NVDISASM, "other")


def test_the_toolkits_own_text_is_read_too() -> None:
    loop = sass.main_loop(CUOBJDUMP, "mine")
    assert [one.name for one in loop.instructions] == ["LDG.E", "STG.E", "BRA"]


def test_without_a_disassembler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "_of_wheel", lambda: None)
    monkeypatch.setattr(sass, "_of_toolkit", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"needs nvdisasm.*gpukit\[study\]"):
        sass.disassembler.__wrapped__()


@pytest.fixture(scope="module")
def counted() -> list[turns.Turn]:
    """Every turn on the published target and on Hopper."""
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        return turns.count_turns(("sm_80", "sm_90"))
    except MissingDependencyError as absent:
        pytest.skip(str(absent))


def test_the_textbooks_loop_costs_what_was_published(counted: list[turns.Turn]) -> None:
    """9 and 14 instructions on sm_80, whatever the width."""
    mine = {(t.vec, t.index): t for t in counted if (t.kernel, t.arch) == (turns.FORMS[0], "sm_80")}
    assert {key: turn.instructions for key, turn in mine.items()} == {
        (1, "u32"): 9, (4, "u32"): 9, (1, "u64"): 14, (4, "u64"): 14}
    assert {turns.published_turns(turn) for turn in mine.values()} == {9, 14}


def test_a_turn_has_one_load_one_store_and_what_it_lists(counted: list[turns.Turn]) -> None:
    for turn in counted:
        assert turn.parts["LDG"] == turn.parts["STG"] == 1
        assert turn.instructions == len(turn.listing) == sum(turn.parts.values())
        assert turn.bytes == 8 * turn.vec


def test_64_bits_cost_instructions_in_every_form(counted: list[turns.Turn]) -> None:
    by = {(t.kernel, t.arch, t.vec, t.index): t.instructions for t in counted}
    assert all(count < by[(*key[:3], "u64")] for key, count in by.items() if key[3] == "u32")


@pytest.mark.parametrize("arch", ["sm_70", "compute_90", "h100"])
def test_other_targets_are_refused(arch: str) -> None:
    with pytest.raises(ArgumentError, match=f"{arch}"):
        turns.count_turns((arch,))
