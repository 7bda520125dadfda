"""The seams for further instruction families: operations, waits, events and listeners."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import ptx_kernel

from gpukit import emulator
from gpukit.emulator import instructions
from gpukit.emulator.check.listener import Listener
from gpukit.emulator.errors import DeadlockError, KernelFault
from gpukit.emulator.events import EventQueue
from gpukit.emulator.instructions import Op
from gpukit.emulator.outcomes import Park
from gpukit.emulator.policies import POLICIES, EarlyPolicy, LatePolicy
from gpukit.emulator.ptx.types import TYPES
from gpukit.emulator.waits import WaitQueue


class Mailbox:
    """Per-CTA state of a toy family: letters arrive later, readers wait for them."""

    def __init__(self, cta):
        self.letters = {}
        self.queue = WaitQueue()


def build_post(instr, modifiers, assembler):
    """mail.post number, value: delivered asynchronously."""
    number, value = (assembler.src(operand, TYPES["u32"]) for operand in instr.operands)

    def run(warp, mask):
        box, lane = warp.cta.state(Mailbox), 0 if mask is None else int(mask.argmax())
        at, letter = int(warp.V[number][lane]), int(warp.V[value][lane])

        def deliver():
            box.letters[at] = letter
            box.queue.wake()

        warp.wave.scheduler.events.post(deliver, engine=(warp.cta, "mail"))
        warp.wave.launch.count("letters")

    return Op("mail", handler=run)


def build_read(instr, modifiers, assembler):
    """mail.read d, number: waits for the letter."""
    target, number = instr.operands
    d, n = assembler.dst(target, TYPES["u32"]), assembler.src(number, TYPES["u32"])

    def run(warp, mask):
        box, lane = warp.cta.state(Mailbox), 0 if mask is None else int(mask.argmax())
        at = int(warp.V[n][lane])
        if at not in box.letters:
            return Park(box.queue, lambda: f"letter {at} to arrive", retry=True)
        warp.V[d][slice(None) if mask is None else mask] = box.letters[at]
        return None

    return Op("mail", handler=run)


@pytest.fixture
def mail(monkeypatch):
    monkeypatch.setitem(instructions._OPS, "mail.post", build_post)
    monkeypatch.setitem(instructions._OPS, "mail.read", build_read)


def mail_kernel(last):
    """Warp 1 posts letters 0, 1, 2; warp 0 reads ``last`` in one half and 0 in the other."""
    return ptx_kernel(
        f""".reg .b32 %r<6>; .reg .b64 %a; .reg .pred %p; ld.param.u64 %a, [p0];
      mov.u32 %r0, %tid.x;
        mov.u32 %r4, 7; setp.ge.u32 %p, %r0, 32; @%p bra POST;
        setp.lt.u32 %p, %r0, 16; mov.u32 %r1, 0; @%p mov.u32 %r1, {last};
        @%p mail.read %r4, {last};
        @!%p mail.read %r4, 0;
        mad.wide.u32 %a, %r0, 4, %a; st.global.u32 [%a], %r4; ret;
        POST: mail.post 0, 100; mail.post 1, 101; mail.post 2, 102; ret;""",
        ".param .u64 p0",
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_family_can_wait_for_its_events(mail, policy):
    y = np.zeros(32, "u4")
    result = emulator.run(mail_kernel(2), 1, 64, [y], policy=policy)
    assert y.tolist() == [102] * 16 + [100] * 16
    assert result.counters.extra == {"letters": 3}
    assert result.counters.instructions["mail"] >= 5


def test_what_never_comes_is_a_deadlock(mail):
    with pytest.raises(DeadlockError) as caught:
        emulator.run(mail_kernel(9), 1, 64, [np.zeros(32, "u4")])
    assert "warp 0 (16 lanes) at PTX line 11 (@%p mail.read %r4, 9): letter 9 to arrive" in str(
        caught.value
    )


def test_events_of_one_engine_keep_their_order():
    done = []
    queue = EventQueue(POLICIES["random"](3))
    for i in range(50):
        queue.post(lambda i=i: done.append(i), engine="tma" if i % 2 else None)
    while queue.jump():
        pass
    assert [i for i in done if i % 2] == list(range(1, 50, 2))
    assert [i for i in done if not i % 2] != list(range(0, 50, 2))
    assert queue.now > 0


def test_early_and_late_completion():
    done = []
    early, late = EventQueue(EarlyPolicy(0)), EventQueue(LatePolicy(0))
    early.post(lambda: done.append("early"))
    late.post(lambda: done.append("late"))
    early.now = late.now = 10**9
    early.run_due()
    late.run_due()
    assert done == ["early"]
    assert late.jump()
    assert done == ["early", "late"]
    assert not late.jump()


class Recorder(Listener):
    """Notes what it hears, per warp."""

    def __init__(self):
        self.accesses, self.barriers, self.fences, self.ended = [], [], [], 0

    def accessed(self, lanes, access, kind, order):
        for lane, start in zip(access.active_lanes(lanes.width), access.bytes, strict=True):
            at = access.store.address_of(int(start))
            self.accesses.append((lanes.lo + int(lane), access.space, kind, order, at))

    def barrier_arrived(self, warp, mask, barrier, phase):
        self.barriers.append(("arrived", warp.index, phase))

    def barrier_passed(self, warp, mask, barrier, phase):
        self.barriers.append(("passed", warp.index, phase))

    def fenced(self, lanes, mask, kind):
        self.fences += [kind] * (lanes.width // 32)

    def lanes_ended(self, warp, mask):
        self.ended += 32 if mask is None else int(mask.sum())


HEARD = """extern "C" __global__ void k(int* y) { __shared__ int s[64]; int i = threadIdx.x;
  s[i] = i; __threadfence(); __syncthreads();
  if (i < 40) { atomicAdd(y, s[63 - i]); asm volatile("fence.proxy.async;"); } }"""


@pytest.mark.parametrize("policy", ["random", "starved"])
def test_listeners_hear_warps_and_gangs_alike(policy):
    heard = Recorder()
    y = np.zeros(1, "i4")
    emulator.run(HEARD, 1, 64, [y], listeners=[heard], policy=policy)
    assert y[0] == sum(range(24, 64))
    shared = [a for a in heard.accesses if a[1] == "shared"]
    assert sorted(a for a in shared if a[2] == "write") == [
        (i, "shared", "write", "weak", 1024 + 4 * i) for i in range(64)
    ]
    assert sorted(a for a in shared if a[2] == "read") == [
        (i, "shared", "read", "weak", 1024 + 4 * (63 - i)) for i in range(40)
    ]
    atomics = [a for a in heard.accesses if a[2] == "atomic"]
    assert len(atomics) == 40
    assert {a[3] for a in atomics} == {"relaxed.gpu"}
    assert sorted(heard.barriers) == [(e, w, 0) for e in ("arrived", "passed") for w in (0, 1)]
    assert sorted(heard.fences) == ["fence.proxy.async"] * 2 + ["membar.gl"] * 2
    assert heard.ended == 64


class Veto(Listener):
    """A check that complains about one address."""

    def accessed(self, lanes, access, kind, order):
        if access.space == "shared" and kind == "read":
            raise KernelFault("may not be read", lane=int(access.active_lanes(lanes.width)[5]))


def test_what_a_listener_raises_names_the_place():
    with pytest.raises(
        KernelFault, match=r"k, kernel.cu:3 .*CTA \(0, 0, 0\), warp 0, lane 5: may not"
    ):
        emulator.run(HEARD, 1, 64, [np.zeros(1, "i4")], listeners=[Veto()])
