"""cp.async, bulk copies and reductions, and clusters of two CTAs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from .model import Argument, Array, Buffer, Case, output
from .ptx import kernel_case, pointer
from .values import columns, random_bits

THREADS = 128
FILLER = "0xEEEEEEEEEEEEEEEE"
SHARED = ".extern .shared .align 1024 .b8 smem[];"


def fill(size: int) -> str:
    """Set the first ``size`` bytes of shared memory; %r0 is its address."""
    text = f"mov.u32 %r0, smem; mov.b64 %x5, {FILLER}; mul.lo.u32 %r1, %t, 16;\n"
    text += f"FILL: setp.ge.u32 %q1, %r1, {size}; @%q1 bra FILLED;\n"
    text += "add.u32 %r2, %r1, %r0; st.shared.v2.b64 [%r2], {%x5, %x5};\n"
    return text + f"add.u32 %r1, %r1, {16 * THREADS}; bra FILL;\nFILLED:\n"


def dump(size: int, number: int, index: str = "0") -> str:
    """Write shared memory to a parameter's array; ``index`` picks a block of ``size`` bytes."""
    text = f"ld.param.u64 %x6, [p{number}]; mov.u32 %r1, {index};\n"
    text += f"mad.wide.u32 %x6, %r1, {size}, %x6; mul.lo.u32 %r1, %t, 16;\n"
    text += f"DUMP: setp.ge.u32 %q1, %r1, {size}; @%q1 bra DUMPED;\n"
    text += "add.u32 %r2, %r1, %r0; ld.shared.v2.b64 {%x7, %x8}, [%r2];\n"
    text += "cvt.u64.u32 %x9, %r1; add.u64 %x9, %x9, %x6; st.global.v2.b64 [%x9], {%x7, %x8};\n"
    return text + f"add.u32 %r1, %r1, {16 * THREADS}; bra DUMP;\nDUMPED:\n"


def wait(barrier: str = "%r3", parity: int = 0) -> str:
    """Poll a barrier, but not for ever."""
    return f"""mov.u32 %r4, 0;
WAIT: mbarrier.test_wait.parity.shared::cta.b64 %q2, [{barrier}], {parity}; @%q2 bra WAITED;
nanosleep.u32 100; add.u32 %r4, %r4, 1; setp.lt.u32 %q3, %r4, 20000; @%q3 bra WAIT;
WAITED:
"""


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _cp_async()
    yield from _bulk()
    yield from _bulk_reductions()
    yield from _clusters()


def _source(seed: str, size: int) -> Array:
    return random_bits(seed, size // 8).view(np.uint8)


def _cp_async() -> Iterator[Case]:
    """Each thread copies to a place of its own, some read less than they write."""
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        for what in ("whole", "src-size", "ignore-src"):
            extent = size * THREADS
            body = fill(extent) + "bar.sync 0;\n" + pointer("%x1", 0, size)
            body += f"xor.b32 %r5, %t, 5; mad.lo.u32 %r5, %r5, {size}, %r0;\n"
            body += f"rem.u32 %r6, %t, {size + 1}; setp.gt.u32 %q4, %r6, 2;\n"
            extra = {"whole": "", "src-size": ", %r6", "ignore-src": ", %q4"}[what]
            body += f"cp.async.{cache}.shared.global [%r5], [%x1], {size}{extra};\n"
            body += "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;\n" + dump(extent, 1)
            args: list[Argument] = [Buffer(_source("cp.async", extent)), output(extent, 1)]
            yield kernel_case(f"cp.async.{cache} {size} {what}", body, args, declarations=SHARED,
                              shared=extent)  # fmt: skip


def barrier(size: int, arrivals: int = 1) -> str:
    """Make the barrier behind ``size`` bytes of shared memory; %r3 is its address."""
    return (
        f"add.u32 %r3, %r0, {size}; setp.ne.u32 %q4, %t, 0; @%q4 bra MADE;\n"
        f"mbarrier.init.shared::cta.b64 [%r3], {arrivals}; fence.mbarrier_init.release.cluster;\n"
        "MADE: fence.proxy.async; bar.sync 0;\n"
    )


def _bulk() -> Iterator[Case]:
    for size, at in ((16, 0), (1024, 16), (2000, 48)):
        extent = 2048
        body = fill(extent) + barrier(extent) + "@%q4 bra ISSUED; ld.param.u64 %x1, [p0];\n"
        body += f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {size};\n"
        body += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        body += f"[%r0+{at}], [%x1+32], {size}, [%r3];\nISSUED:\n{wait()}" + dump(extent, 1)
        args: list[Argument] = [Buffer(_source("bulk", 2048)), output(extent, 1)]
        yield kernel_case(f"bulk load {size} at {at}", body, args, declarations=SHARED,
                          shared=extent + 16)  # fmt: skip
    body = _staged(2048) + "cp.async.bulk.global.shared::cta.bulk_group [%x2+16], [%r0+32], 1984;\n"
    args = [Buffer(_source("bulk", 2048)), output(2048, 1)]
    yield kernel_case("bulk store", body + _finish(), args, declarations=SHARED, shared=2048)


def _staged(size: int) -> str:
    """Bring ``size`` bytes of p0 to shared memory; one thread goes on, with %x2 for p1."""
    body = "mov.u32 %r0, smem; ld.param.u64 %x1, [p0]; ld.param.u64 %x2, [p1];\n"
    body += f"mul.lo.u32 %r1, %t, 16; LOAD: setp.ge.u32 %q1, %r1, {size}; @%q1 bra LOADED;\n"
    body += "cvt.u64.u32 %x3, %r1; add.u64 %x3, %x3, %x1; add.u32 %r2, %r1, %r0;\n"
    body += "ld.global.v2.b64 {%x4, %x5}, [%x3]; st.shared.v2.b64 [%r2], {%x4, %x5};\n"
    body += f"add.u32 %r1, %r1, {16 * THREADS}; bra LOAD;\nLOADED:\n"
    return body + "fence.proxy.async; bar.sync 0; setp.ne.u32 %q1, %t, 0; @%q1 exit;\n"


def _finish() -> str:
    return "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


REDUCTIONS = [(op, kind) for op, kinds in {
    "add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}.items() for kind in kinds]  # fmt: skip


def _bulk_reductions() -> Iterator[Case]:
    for op, kind in REDUCTIONS:
        plain = kind.removeprefix("noftz.")
        new, old = columns((plain, plain), f"bulk {op} {kind}", 256)
        size = new.nbytes
        body = _staged(size)
        body += f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} "
        body += f"[%x2], [%r0], {size};\n" + _finish()
        args: list[Argument] = [Buffer(new), Buffer(old, output=True)]
        yield kernel_case(f"bulk reduce {op}.{kind}", body, args, declarations=SHARED, shared=size)


# Clusters of two


MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
RANK = "mov.u32 %r8, %cluster_ctarank; xor.b32 %r9, %r8, 1;\n"


def _clusters() -> Iterator[Case]:
    yield from _distributed()
    yield from _between_ctas()


def _pair(name: str, body: str, args: list[Argument], size: int) -> Case:
    return kernel_case(name, RANK + body, args, declarations=SHARED, cluster=2, grid=4,
                       shared=size + 16)  # fmt: skip


def _distributed() -> Iterator[Case]:
    """Loads, stores and atomics on the other CTA's shared memory, and cluster registers."""
    size, args = 2048, [output(4 * 2048, 1)]
    whole = dump(size, 0, "%ctaid.x")
    mine = "mad.lo.u32 %r10, %t, 4, %r0; mapa.shared::cluster.u32 %r11, %r10, %r9;\n"
    tag = "mov.u32 %r13, %ctaid.x; mad.lo.u32 %r12, %r13, 1000, %t;\n"
    start = fill(size) + "bar.sync 0;\n" + MEET + mine + tag
    store = "st.shared::cluster.u32 [%r11+512], %r12;\n" + MEET + whole
    yield _pair("cluster store", start + store, list(args), size)
    load = "st.shared.u32 [%r10], %r12;\n" + MEET
    load += "ld.shared::cluster.u32 %r14, [%r11]; st.shared.u32 [%r10+1024], %r14;\n"
    load += "bar.sync 0;\n" + MEET + whole
    yield _pair("cluster load", start + load, list(args), size)
    add = "and.b32 %r14, %t, 3; mad.lo.u32 %r14, %r14, 4, %r0;\n"
    add += "mapa.shared::cluster.u32 %r14, %r14, %r9;\n"
    add += "atom.shared::cluster.add.u32 %r15, [%r14], %r12;\n" + MEET + whole
    yield _pair("cluster atomic", start + add, list(args), size)
    registers = ("cluster_ctarank", "cluster_nctarank", "clusterid.x", "nclusterid.x",
                 "cluster_ctaid.x", "cluster_nctaid.x")  # fmt: skip
    read = "setp.ge.u32 %q5, %t, 32; @%q5 bra READ;\n"
    for name in registers:
        read += f"mov.u32 %r14, %{name}; st.shared.u32 [%r10], %r14; add.u32 %r10, %r10, 256;\n"
    read += "getctarank.shared::cluster.u32 %r14, %r11; st.shared.u32 [%r10], %r14;\n"
    read += "READ: bar.sync 0;\n" + whole
    yield _pair("cluster registers", start + read, list(args), size)


def _between_ctas() -> Iterator[Case]:
    """Copies that signal the other CTA's barrier."""
    size, begin = 2048, barrier(2048) + MEET + "@%q4 bra ISSUED;\n"
    expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], BYTES;\n"
    remote = "mapa.shared::cluster.u32 %r11, %r3, %r9; mapa.shared::cluster.u32 %r12, %r0, %r9;\n"
    end = "\nISSUED:\n" + wait() + "bar.sync 0;\n" + MEET + dump(size, 1, "%ctaid.x")
    args: list[Argument] = [Buffer(_source("cluster", 8192)), output(4 * size, 1)]
    source = "mov.u32 %r13, %ctaid.x; ld.param.u64 %x1, [p0]; mad.wide.u32 %x1, %r13, 2048, %x1;\n"
    for mask, sender in product((1, 2, 3), (0, 1)):
        receives = " or ".join(str(i) for i in range(2) if mask >> i & 1)
        body = fill(size) + begin + f"shr.u32 %r14, {mask}, %r8; and.b32 %r14, %r14, 1;\n"
        body += "mul.lo.u32 %r14, %r14, 512;\n" + expect.replace("BYTES", "%r14") + source
        body += f"setp.ne.u32 %q5, %r8, {sender}; mov.b16 %h1, {mask}; @%q5 bra ISSUED;\n"
        body += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        body += ".multicast::cluster [%r0+256], [%x1], 512, [%r3], %h1;" + end
        yield _pair(f"bulk multicast from {sender} to {receives}", body, list(args), size)
    copy = remote + expect.replace("BYTES", "256")
    copy += "st.shared.u32 [%r0], %r13; st.shared.u32 [%r0+252], %r8; fence.proxy.async;\n"
    copy += "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    copy += "[%r12+512], [%r0], 256, [%r11];"
    yield _pair("bulk to the peer", fill(size) + begin + source + copy + end, list(args), size)
    store = remote + expect.replace("BYTES", "12") + "mov.u64 %x2, 0x0123456789ABCDEF;\n"
    form = "shared::cluster.mbarrier::complete_tx::bytes"
    store += f"st.async.weak.{form}.u64 [%r12+64], %x2, [%r11];\n"
    store += f"st.async.weak.{form}.u32 [%r12+128], %r13, [%r11];"
    yield _pair("st.async", fill(size) + begin + source + store + end, list(args), size)
    for op, kind in (("add", "u32"), ("min", "s32"), ("max", "u32"), ("inc", "u32"), ("dec", "u32"),
                     ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("add", "u64")):  # fmt: skip
        bits = kind[1:]
        value = "%x2" if bits == "64" else "%r15"
        red = remote + expect.replace("BYTES", str(int(bits) // 8))
        red += "mov.u64 %x2, 0x0123456789ABCDEF; mov.u32 %r15, VALUE;\n"
        red = red.replace("VALUE", "0xC0000005" if op == "min" else "0xF0000005")
        red += f"red.async.relaxed.cluster.{form}.{op}.{kind} [%r12+64], {value}, [%r11];"
        yield _pair(f"red.async.{op}.{kind}", fill(size) + begin + source + red + end, list(args),
                    size)  # fmt: skip
    yield _pair("remote arrive", _remote_arrive(size) + dump(size, 1, "%ctaid.x"), list(args), size)


def _remote_arrive(size: int) -> str:
    """All threads of a CTA arrive at the other's barrier."""
    body = fill(size) + barrier(size, 128) + MEET
    body += "mapa.shared::cluster.u32 %r11, %r3, %r9;\n"
    body += "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];\n" + wait()
    body += "selp.u32 %r14, 1, 0, %q2; mad.lo.u32 %r15, %t, 4, %r0; st.shared.u32 [%r15], %r14;\n"
    return body + "bar.sync 0;\n" + MEET
