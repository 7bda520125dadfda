"""Kernels that break one rule of wgmma, the report each gets, and the good twin that gets none."""

from __future__ import annotations

import numpy as np
import pytest
from mma_kernels import (
    COMMIT,
    FENCE,
    LOAD_A,
    NUMPY,
    START,
    WAIT,
    Operand,
    issue,
    pack_a,
    registers,
    run_wgmma,
    shared_image,
)

from gpukit import emulator
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.errors import CollectiveError, DeadlockError
from gpukit.emulator.mma.descriptors import DescriptorError
from gpukit.emulator.mma.register_use import WgmmaRegisterError
from gpukit.emulator.policies import POLICIES

B = Operand(np.ones((8, 16), NUMPY["bf16"]))
A = pack_a(np.ones((64, 16), NUMPY["bf16"]))
ONE = issue("m64n8k16.f32.bf16.bf16", 4, registers("a", 4), hex(B.word), tail=", 1, 1, 0")
CLOSE = f"{COMMIT};\n{WAIT} 0;\n"
GOOD = f"{FENCE};\n{ONE}{CLOSE}"


def run(text, **options):
    zero = np.zeros((128, 4), np.float32)
    return run_wgmma(LOAD_A + text, shared_image(B), zero, A.copy(), **options)[0].view(np.float32)


# Registers


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("touch", [
    "add.u32 %t9, %d2, 1;",
    "mov.b64 %p9, {{%d2, %d3}};",
    "st.global.b32 [%p6], %d2;",
    "fma.rn.f32 %d2, %d2, %d2, %d2;",
    "mov.b32 %d2, 0;",  # overwrites what the wgmma has still to add to
    "mov.b32 %a2, %t1;",  # A is still being read
    "add.u32 %a0, %a0, 1;",
    "ld.shared.b32 %a1, [{at}];",
    "@%q1 add.u32 %t9, %d2, 1;",
])  # fmt: skip
def test_touching_a_register_in_flight(touch, policy):
    touch = touch.format(at=START) + "\n"
    with pytest.raises(WgmmaRegisterError, match="is touched while a wgmma in flight uses it"):
        run(f"setp.eq.u32 %q1, 0, 0;\n{FENCE};\n{ONE}{COMMIT};\n{touch}{WAIT} 0;\n", policy=policy)
    run(f"setp.eq.u32 %q1, 0, 0;\n{GOOD}{touch}")


def test_an_instruction_that_is_predicated_off_touches_nothing():
    assert (run(f"setp.ne.u32 %q1, 0, 0;\n{FENCE};\n{ONE}{COMMIT};\n"
                f"@%q1 add.u32 %d2, %d2, 1;\n{WAIT} 0;\n") == 16).all()  # fmt: skip


def test_the_uncommitted_wgmma_is_not_waited_for():
    with pytest.raises(WgmmaRegisterError, match="touched while"):
        run(f"{FENCE};\n{COMMIT};\n{ONE}{WAIT} 0;\n add.u32 %d0, %d0, 0;")


def test_wait_group_1_leaves_the_newest_pending():
    other = ONE.replace(registers("d", 4), "{%t10, %t11, %t12, %t13}")
    text = f"{FENCE};\n{ONE}{COMMIT};\n{other}{COMMIT};\n{WAIT} 1;\n"
    assert (run(f"{text} add.u32 %d0, %d0, 0;\n{WAIT} 0;") == 16).all()
    with pytest.raises(WgmmaRegisterError, match="%t10 is touched"):
        run(f"{text} add.u32 %t10, %t10, 0;\n{WAIT} 0;")


# Fences


def test_first_wgmma_without_fence():
    with pytest.raises(WgmmaRegisterError, match=r"first wgmma of a warp needs a wgmma\.fence"):
        run(f"{ONE}{CLOSE}")


@pytest.mark.parametrize("touch", ["add.f32 %d1, %d1, 0f3F800000;", "ld.shared.b32 %a3, [{at}];",
                                   "mul.f32 %t9, %d0, %d0;"])  # fmt: skip
def test_register_access_without_fence(touch):
    touch = touch.format(at=START) + "\n"
    with pytest.raises(WgmmaRegisterError, match=r"touched since the last wgmma\.fence"):
        run(f"{GOOD}{touch}{ONE}{CLOSE}")
    run(f"{GOOD}{touch}{FENCE};\n{ONE}{CLOSE}")


def test_moves_and_unrelated_registers_need_no_fence():
    text = f"{GOOD} mov.b32 %d1, %d0; mov.b32 %d2, 0; add.u32 %t9, %t9, 1;\n{ONE}{CLOSE}"
    got = run(text)
    assert (got == [32, 32, 16, 32]).all()


def test_a_move_carries_the_missing_fence_along():
    with pytest.raises(WgmmaRegisterError, match="%a1 was touched since"):
        run(f"{GOOD} add.u32 %t9, %a1, 0;\n mov.b32 %a1, %t9;\n{ONE}{CLOSE}")


def test_another_shape_on_the_same_accumulator_needs_a_fence():
    wide_b = Operand(np.ones((16, 16), NUMPY["f16"]))
    wider = issue("m64n16k16.f16.f16.f16", 4, registers("a", 4), hex(wide_b.word), tail=", 1, 1, 0")
    image, zero = shared_image(wide_b), np.zeros((128, 4), np.float32)
    with pytest.raises(WgmmaRegisterError, match="of another shape"):
        run_wgmma(f"{LOAD_A}{FENCE};\n{ONE}{wider}{CLOSE}", image, zero, A)
    run_wgmma(f"{LOAD_A}{FENCE};\n{ONE}{CLOSE}{FENCE};\n{wider}{CLOSE}", image, zero, A)


def test_a_fragment_that_is_an_accumulator_in_flight():
    chained = ONE.replace(registers("a", 4), registers("d", 4)).replace(
        f"bf16 {registers('d', 4)}", "bf16 {%t10, %t11, %t12, %t13}", 1
    )
    with pytest.raises(WgmmaRegisterError, match="is an accumulator of a wgmma in flight"):
        run(f"{FENCE};\n{ONE}{COMMIT};\n{chained}{CLOSE}")
    run(f"{GOOD}{chained}{CLOSE}")


# Warpgroups


def guarded(condition, text, other=""):
    text = f"mov.u32 %t0, %tid.x; {condition}\n@%q1 bra OTHER;\n{text}bra JOIN;\n"
    return f"{text}OTHER:\n{other}JOIN:\n"


def test_half_a_warp():
    with pytest.raises(CollectiveError, match="only lanes 0x0000ffff of the warp"):
        run(guarded("and.b32 %t0, %t0, 31; setp.ge.u32 %q1, %t0, 16;", GOOD, "ret;\n"))


def test_a_warp_that_exits_instead():
    with pytest.raises(CollectiveError, match="warp 3 has exited without executing"):
        run(guarded("setp.ge.u32 %q1, %t0, 96;", GOOD, "ret;\n"))


def test_a_warp_that_waits_elsewhere():
    with pytest.raises(DeadlockError, match="warp 3 of its warpgroup to execute the wgmma"):
        run(guarded("setp.ge.u32 %q1, %t0, 96;", f"{GOOD}bar.sync 1;\n", "bar.sync 1;\n"))


def test_different_instructions():
    with pytest.raises(CollectiveError, match="must execute the same wgmma"):
        run(guarded("setp.ge.u32 %q1, %t0, 64;", GOOD, GOOD))


def test_different_descriptors():
    text = f"mov.u32 %t0, %tid.x; shr.u32 %t0, %t0, 6; cvt.u64.u32 %desc0, %t0;\n" \
           f"add.u64 %desc0, %desc0, {B.word};\n"  # fmt: skip
    with pytest.raises(CollectiveError, match="the same descriptors and scale-d"):
        run(text + GOOD.replace(hex(B.word), "%desc0"))


def test_lanes_with_different_descriptors():
    text = f"mov.u32 %t0, %laneid; cvt.u64.u32 %desc0, %t0; add.u64 %desc0, %desc0, {B.word};\n"
    with pytest.raises(CollectiveError, match="the descriptor of B of wgmma differs"):
        run(text + GOOD.replace(hex(B.word), "%desc0"))


def test_different_scale_d():
    text = "mov.u32 %t0, %tid.x; setp.lt.u32 %q1, %t0, 32;\n"
    one = issue("m64n8k16.f32.bf16.bf16", 4, registers("a", 4), hex(B.word), "%q1", ", 1, 1, 0")
    with pytest.raises(CollectiveError, match="scale-d 0"):
        run(f"{text}{FENCE};\n{one}{CLOSE}")


def test_too_few_warps():
    with pytest.raises(CollectiveError, match="needs four warps; the CTA has only 2"):
        run(GOOD, threads=64)


def test_second_warpgroup_of_three_warps():
    assert run(GOOD, threads=128).all()
    skip = "mov.u32 %t0, %tid.x; setp.lt.u32 %q1, %t0, 128;\n@%q1 bra SKIP;\n"
    text = f".reg .b32 %e<4>; {FENCE};\n{skip}{ONE.replace('{%d', '{%e', 1)}{CLOSE}SKIP:\n"
    text = text.replace("{%e0, %d1, %d2, %d3}", "{%e0, %e1, %e2, %e3}")
    with pytest.raises(CollectiveError, match="only 3 from warp 4"):
        run_224(text)


def run_224(text):
    """Seven warps; only the first four load and store."""
    from mma_kernels import wgmma_kernel

    image = shared_image(B)
    c, a, d = (np.zeros((224, 4), np.uint32) for _ in range(3))
    kernel = wgmma_kernel(text, image.size, 4).replace(
        "add.u32 %t1, %t1, 2048", "add.u32 %t1, %t1, 3584"
    )
    emulator.run(kernel, 1, 224, [image, c, a, d], shared_bytes=image.size)


# Descriptors


def described(word, **options):
    return run(GOOD.replace(hex(B.word), hex(word)), **options)


@pytest.mark.parametrize(("change", "why"), [
    (lambda w: w | 1 << 46, r"reserved bits 0x400000000000 are set \(bit 46 belongs to tcgen05"),
    (lambda w: w | 1 << 14, "reserved bits 0x4000 are set"),
    (lambda w: w | 1 << 61, "reserved bits"),
    (lambda w: (w & ~(3 << 62)) | 1 << 49, "a base offset needs a swizzle"),
    (lambda w: w + 7, "32 bytes of K from byte 112 of a 128-byte swizzle row run over its end"),
    (lambda w: w + 0x1000, "the matrix takes offsets 0x10400 to 0x10"),
    (lambda w: w & ~0x3FFF, "the matrix takes offsets 0x0 to"),
])  # fmt: skip
def test_bad_descriptors(change, why):
    with pytest.raises(DescriptorError, match=why) as caught:
        described(change(B.word))
    assert "LBO" in str(caught.value)
    assert "kernel k" in str(caught.value) or "k, " in str(caught.value)


def test_reading_shared_memory_that_nothing_wrote():
    word = B.word + 0x40  # 1024 bytes further on
    with pytest.raises(DescriptorError, match="nothing has written the 16 bytes"):
        run_grown(word, checks=True)
    run_grown(word, checks=False)


def run_grown(word, checks):
    from mma_kernels import wgmma_kernel

    image = shared_image(B)
    c, d = np.zeros((128, 4), np.uint32), np.zeros((128, 4), np.uint32)
    kernel = wgmma_kernel(LOAD_A + GOOD.replace(hex(B.word), hex(word)), image.size, 4)
    emulator.run(kernel, 1, 128, [image, c, A, d], shared_bytes=4096, checks=checks)


def test_operands_are_read_late():
    """Shared memory overwritten before the wait gives another result under the late policy."""
    clobber = f"mov.u32 %t0, 0; st.shared.b32 [{START}], %t0; fence.proxy.async.shared::cta;\n"
    text = f"{FENCE};\n{ONE}{COMMIT};\n{clobber}{WAIT} 0;\n"
    assert (run(text, policy="late", checks=False)[::4, 0] == 14).all()
    assert (run(f"{GOOD}{clobber}", policy="late", checks=False) == 16).all()


# What checks hear


class Ears(Listener):
    def __init__(self):
        self.heard = []

    def async_issued(self, op):
        self.heard.append(("issued", op))

    def async_performed(self, op):
        self.heard.append(("performed", op))

    def group_waited(self, warp, mask, ops, reads_only):
        self.heard += [("waited", op) for op in ops]


def test_listeners_hear_each_warp():
    ears = Ears()
    a = Operand(np.ones((64, 16), NUMPY["bf16"]))
    b = Operand(np.ones((8, 16), NUMPY["bf16"]), start=START + 64 * 128)
    text = issue("m64n8k16.f32.bf16.bf16", 4, hex(a.word), hex(b.word))
    run_wgmma(f"{FENCE};\n{text}{CLOSE}", shared_image(a, b), np.zeros((128, 4), np.float32),
              listeners=[ears])  # fmt: skip
    # A wait covers the warpgroup's wgmma: each of the four warps observes all four parts.
    for what, times in (("issued", 1), ("performed", 1), ("waited", 4)):
        ops = [op for heard, op in ears.heard if heard == what]
        assert sorted(op.warp.index for op in ops) == sorted([0, 1, 2, 3] * times)
        assert {op.id for op in ops} == {0, 1, 2, 3}
    for op in ops:
        assert (op.kind, op.proxy, op.done) == ("wgmma", "async", True)
        of_b, of_a = op.reads
        assert set(of_b.starts) == set(b.at.ravel() // 16 * 16)
        own = a.at[16 * op.warp.index : 16 * op.warp.index + 16]
        assert set(of_a.starts) == set(own.ravel() // 16 * 16)
        assert (of_a.space, of_a.owner, of_a.size, of_a.start) == ("shared", 0, 16, own.min())
