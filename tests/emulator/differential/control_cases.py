"""Control flow, calls, named barriers, address windows and hints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .copy_cases import SHARED, barrier, dump, fill
from .model import Argument, Array, Buffer, Case, output
from .ptx import kernel_case, pointer
from .values import random_bits

THREADS = 128


def _words(seed: str, count: int = THREADS) -> Array:
    return random_bits(seed, count).astype(np.uint32)


def _case(name: str, body: str, declarations: str = "") -> Case:
    """``body`` turns %r1, a random word, into %r2."""
    text = pointer("%x1", 0, 4) + "ld.global.b32 %r1, [%x1];\n" + body
    text += "\n" + pointer("%x2", 1, 4) + "st.global.b32 [%x2], %r2;"
    args: list[Argument] = [Buffer(_words(name)), output(THREADS)]
    return kernel_case(name, text, args, declarations=declarations)


def cases() -> Iterator[Case]:
    """All of them."""
    yield _case("loops of different lengths", COLLATZ)
    yield _case("nested divergence", NESTED)
    yield _case("indexed branch", INDEXED)
    yield _case("call", CALL, FUNCTION)
    yield _case("address windows", WINDOWS, ".shared .align 4 .b8 cell[4];")
    yield _case("named barriers", NAMED, ".shared .align 4 .b8 words[512];")
    yield _case("barrier reductions", REDUCING)
    yield _case("hints", HINTS)
    yield from _tracked_copies()


COLLATZ = """and.b32 %r1, %r1, 1023; add.u32 %r1, %r1, 1; mov.u32 %r2, 0;
STEP: setp.eq.u32 %q1, %r1, 1; @%q1 bra END; add.u32 %r2, %r2, 1; and.b32 %r3, %r1, 1;
setp.eq.u32 %q2, %r3, 0; @%q2 bra HALVE; mad.lo.u32 %r1, %r1, 3, 1; bra STEP;
HALVE: shr.u32 %r1, %r1, 1; bra STEP;
END:"""

NESTED = """mov.u32 %r2, %t; and.b32 %r3, %t, 1; setp.eq.u32 %q1, %r3, 0; and.b32 %r4, %t, 6;
@%q1 bra A; setp.eq.u32 %q2, %r4, 2; @%q2 bra B; mad.lo.u32 %r2, %r2, 7, %r1; bra J;
B: xor.b32 %r2, %r2, %r1; @!%q1 bra J;
A: setp.gt.u32 %q3, %r4, 2; @%q3 bra C; add.u32 %r2, %r2, 1000; bra J;
C: sub.u32 %r2, %r2, %r1; bar.warp.sync 0x50505050;
J: bar.warp.sync -1; shfl.sync.bfly.b32 %r2, %r2, 1, 0x1f, -1;"""

INDEXED = """and.b32 %r3, %r1, 3;
TARGETS: .branchtargets L0, L1, L2, L3; brx.idx %r3, TARGETS;
L0: add.u32 %r2, %r1, 5; bra OUT;
L1: mul.lo.u32 %r2, %r1, 5; bra OUT;
L2: not.b32 %r2, %r1; bra OUT;
L3: shr.u32 %r2, %r1, 5;
OUT:"""

FUNCTION = """.func (.param .b32 out) mix (.param .b32 a, .param .b32 b)
{
.reg .b32 %u<4>; .reg .pred %v;
ld.param.b32 %u0, [a]; ld.param.b32 %u1, [b];
setp.gt.s32 %v, %u0, 0; @%v bra POSITIVE; xor.b32 %u0, %u0, %u1; bra STORE;
POSITIVE: mad.lo.u32 %u0, %u0, 31, %u1;
STORE: st.param.b32 [out], %u0; ret;
}"""
CALL = """and.b32 %r3, %t, 3; setp.eq.u32 %q1, %r3, 1; mov.u32 %r2, 9; @%q1 bra SKIP;
{ .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], %r1; st.param.b32 [y], %t;
call.uni (z), mix, (x, y); ld.param.b32 %r2, [z]; }
SKIP:"""

WINDOWS = """.local .align 4 .b8 own[4]; mov.u32 %r2, 0; mov.u64 %x3, own; cvta.local.u64 %x3, %x3;
mov.u64 %x4, cell; cvta.shared.u64 %x4, %x4; and.b32 %r3, %t, 3;
setp.eq.u32 %q1, %r3, 0; selp.b64 %x5, %x3, %x1, %q1;
setp.eq.u32 %q1, %r3, 1; selp.b64 %x5, %x4, %x5, %q1;
isspacep.global %q2, %x5; @%q2 add.u32 %r2, %r2, 1; isspacep.shared %q2, %x5;
@%q2 add.u32 %r2, %r2, 2; isspacep.local %q2, %x5; @%q2 add.u32 %r2, %r2, 4;
isspacep.shared::cta %q2, %x5; @%q2 add.u32 %r2, %r2, 8;"""

# Warps 0 and 1 hand words to warps 2 and 3 through barrier 3, and meet again at barrier 5.
NAMED = """mov.u32 %r5, words; and.b32 %r6, %t, 63; mad.lo.u32 %r7, %r6, 4, %r5;
setp.ge.u32 %q1, %t, 64; @%q1 bra TAKE; st.shared.b32 [%r7], %r1; barrier.cta.arrive 3, 128;
barrier.sync 5, 128; ld.shared.b32 %r2, [%r7+256]; bra MET;
TAKE: bar.sync 3, 128; ld.shared.b32 %r2, [%r7]; mul.lo.u32 %r2, %r2, 3;
st.shared.b32 [%r7+256], %r2; bar.arrive 5, 128;
MET: membar.cta; bar.cta.sync 0; barrier.cta.sync 1;
setp.lt.u32 %q2, %t, 32; @%q2 barrier.arrive 2, 64; setp.ge.u32 %q3, %t, 96;
@%q3 bar.cta.sync 2, 64; setp.eq.u32 %q4, %t, %t; @%q2 bar.cta.arrive 4, 64;
@%q3 barrier.cta.sync 4, 64; bar.sync 0;"""

REDUCING = """and.b32 %r3, %r1, 3; setp.eq.u32 %q1, %r3, 0;
bar.cta.red.popc.u32 %r2, 0, %q1; barrier.red.popc.u32 %r4, 1, 128, %q1;
bar.red.or.pred %q2, 2, %q1; selp.u32 %r5, 512, 0, %q2;
barrier.cta.red.and.pred %q3, 3, !%q1; selp.u32 %r6, 1024, 0, %q3;
mad.lo.u32 %r2, %r2, 3, %r4; add.u32 %r2, %r2, %r5; add.u32 %r2, %r2, %r6;"""

HINTS = """createpolicy.fractional.L2::evict_first.b64 %x5, 0.5; prefetch.global.L2 [%x1];
prefetchu.L1 [%x1]; ldu.global.b32 %r3, [%x1]; ld.param.u64 %x6, [p0]; griddepcontrol.wait;
ld.global.L2::cache_hint.b32 %r2, [%x1], %x5; applypriority.global.L2::evict_normal [%x6], 128;
griddepcontrol.launch_dependents; pmevent 3; add.u32 %r2, %r2, %r3; membar.gl; membar.sys;
cp.async.bulk.prefetch.L2.global [%x6], 128;"""


def _tracked_copies() -> Iterator[Case]:
    """cp.async whose completion an mbarrier sees, waited for by try_wait."""
    extent = 4 * THREADS
    for noinc in ("", ".noinc"):
        body = fill(extent) + barrier(extent, THREADS * (2 if noinc else 1))
        body += pointer("%x1", 0, 4) + "xor.b32 %r5, %t, 9; mad.lo.u32 %r5, %r5, 4, %r0;\n"
        body += "cp.async.ca.shared.global [%r5], [%x1], 4;\n"
        body += f"cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [%r3];\n"
        body += "mbarrier.arrive.shared::cta.b64 _, [%r3];\n"
        body += "POLL: mbarrier.try_wait.parity.shared::cta.b64 %q2, [%r3], 0; @!%q2 bra POLL;\n"
        args: list[Argument] = [Buffer(_words("tracked")), output(extent, 1)]
        yield kernel_case(f"cp.async.mbarrier.arrive{noinc}", body + dump(extent, 1), args,
                          declarations=SHARED, shared=extent + 16)  # fmt: skip
    body = fill(extent) + "bar.sync 0;\n" + pointer("%x1", 0, 4)
    body += "mad.lo.u32 %r5, %t, 4, %r0; cp.async.ca.shared.global [%r5], [%x1], 4;\n"
    body += "cp.async.wait_all; bar.sync 0;\n" + dump(extent, 1)
    args = [Buffer(_words("tracked")), output(extent, 1)]
    yield kernel_case("cp.async.wait_all", body, args, declarations=SHARED, shared=extent)
