"""A kernel around tcgen05.mma: operands and accumulators in, any number of mmas, cells out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from async_kernels import WRAPPERS

from gpukit import emulator

_REGISTERS = ", ".join(f"%{i}" for i in range(1, 33))
_LOADED = ", ".join(f"%{i}" for i in range(32))
_MEMORY = rf"""
__device__ inline void alloc(u32* slot) {{
  asm volatile("tcgen05.alloc.cta_group::GROUP.sync.aligned.shared::cta.b32 [%0], 512;"
               :: "r"(smem(slot)) : "memory"); }}
__device__ inline void dealloc(u32 at) {{
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::GROUP.sync.aligned;"
               "tcgen05.dealloc.cta_group::GROUP.sync.aligned.b32 %0, 512;" :: "r"(at)); }}
__device__ inline void store32(u32 at, const u32* v) {{
  asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {{{_REGISTERS}}};" :: "r"(at),
    {", ".join(f'"r"(v[{i}])' for i in range(32))} : "memory"); }}
__device__ inline void load32(u32 at, u32* v) {{
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {{{_LOADED}}}, [%32];" :
    {", ".join(f'"=r"(v[{i}])' for i in range(32))} : "r"(at) : "memory"); }}
__device__ inline void before() {{
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }}
__device__ inline void after() {{
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }}
"""
_COMMIT = {
    1: "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];",
    2: "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
    " [%0], 3;",
}
_KERNEL = r"""
__device__ inline void mma(const u64* w, u32 base) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; ISSUE }" ::
    "r"((u32)w[0] + base), ADDRESS_OF_A, "l"(w[2]), "r"((u32)w[3]), "r"((u32)w[4]),
    "r"((u32)w[5] + base), "r"((u32)w[6] + base), "l"(w[7]), "r"((u32)w[8]), "r"((u32)w[9]),
    "r"((u32)w[10]), "r"((u32)w[11]), "r"((u32)w[12]), "r"((u32)w[13]), "r"((u32)w[14]),
    "r"((u32)w[15]) : "memory"); }
__device__ inline void sync() { if (GROUP == 2) cluster_sync(); else __syncthreads(); }
// One CTA, or a pair: image [cta][bytes], in and out [cta][lane][COLUMNS], calls [n][16].
extern "C" __global__ void __launch_bounds__(128)
k(const unsigned char* image, int bytes, const u32* in, u32* out, const u64* calls, int n) {
  extern __shared__ __align__(1024) unsigned char memory[];
  u64* done = (u64*)(memory + bytes);
  u32* slot = (u32*)(done + 1);
  const u32 t = threadIdx.x, rank = GROUP == 2 ? cluster_rank() : 0, lane = rank * 128 + t;
  for (int i = 16 * t; i < bytes; i += 16 * 128)
    *(uint4*)(memory + i) = *(const uint4*)(image + (u64)rank * bytes + i);
  fence_async();
  if (t == 0) { init(done, 1); fence_init(); }
  if (t < 32) alloc(slot);
  before(); sync(); after();
  const u32 base = *slot, own = base + (t / 32 << 21);
  u32 v[32];
  for (int c = 0; c < COLUMNS; c += 32) {
    for (int i = 0; i < 32; i++) v[i] = in[lane * COLUMNS + c + i];
    store32(own + c, v);
  }
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  before(); sync(); after();
  if (ISSUERS) {
    for (int i = 0; i < n; i++) mma(calls + 16 * i, base);
    asm volatile("COMMIT" :: "r"(smem(done)) : "memory");
  }
  wait(done, 0);
  after();
  for (int c = 0; c < COLUMNS; c += 32) {
    load32(own + c, v);
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    for (int i = 0; i < 32; i++) out[lane * COLUMNS + c + i] = v[i];
  }
  before(); sync(); after();
  if (t < 32) dealloc(base);
}
"""


@dataclass
class Call:
    """One mma. ``d``, ``a`` (if A is in tensor memory) and ``scales`` are addresses from 0 on."""

    d: int
    a: int
    b: int
    idesc: int
    add: bool = True
    scales: tuple[int, int] = (0, 0)
    zeros: int = 0
    disabled: tuple[int, ...] = ()

    def words(self):
        mask = (*self.disabled, *[0] * (8 - len(self.disabled)))
        return [self.d, self.a, self.b, self.idesc, int(self.add), *self.scales, self.zeros, *mask]


@dataclass(frozen=True)
class Form:
    """The opcode's qualifiers, and which optional operands there are."""

    kind: str
    group: int = 1
    ws: bool = False
    a_in_tensor_memory: bool = False
    vector: str = ""
    disabled: bool = False
    zeros: bool = False
    input_shift: int | None = None
    collector: str = ""

    @property
    def text(self):
        scaled = self.kind.startswith("mx")
        words = ["tcgen05.mma", *(["ws"] if self.ws else []), f"cta_group::{self.group}",
                 f"kind::{self.kind}"]  # fmt: skip
        words += ["block_scale"] * scaled + [self.vector] * bool(self.vector)
        words += [self.collector] * bool(self.collector)
        operands = ["[%0]", "[%1]" if self.a_in_tensor_memory else "%1", "%2", "%3"]
        operands += ["[%5]", "[%6]"] * scaled
        if self.disabled:
            operands.append("{" + ", ".join(f"%{8 + i}" for i in range(4 * self.group)) + "}")
        operands += ["p"] + ["%7"] * self.zeros
        operands += [] if self.input_shift is None else [str(self.input_shift)]
        return f"{'.'.join(words)} {', '.join(operands)};"


def source(form, columns, issue=None, issuers="lane == 0"):
    """CUDA source of the kernel for one form; ``lane`` counts the threads of both CTAs."""
    a = '"r"((u32)w[1] + base)' if form.a_in_tensor_memory else '"l"(w[1])'
    text = WRAPPERS + _MEMORY + _KERNEL
    text = text.replace(" ISSUE ", f" {issue or form.text} ").replace("ADDRESS_OF_A", a)
    text = text.replace("COMMIT", _COMMIT[form.group]).replace("GROUP", str(form.group))
    return text.replace("COLUMNS", str(columns)).replace("ISSUERS", issuers)


def run(form, calls, images, cells, issue=None, issuers="lane == 0", **options):
    """Run the mmas; returns tensor memory uint32 [cta, lane, column] and the counters.

    ``images`` are the CTAs' shared memories, ``cells`` [cta, lane, column] what tensor memory holds
    before; its columns must be a multiple of 32.
    """
    size = max(image.size for image in images)
    memory = np.stack([np.pad(image, (0, size - image.size)) for image in images])
    cells = np.ascontiguousarray(cells).view(np.uint32)
    words = np.array([call.words() for call in calls], np.uint64)
    out = np.zeros_like(cells)
    result = emulator.run(
        source(form, cells.shape[-1], issue, issuers), form.group, 128,
        [memory, np.int32(size), cells, out, words, np.int32(len(calls))], arch="sm_100a",
        shared_bytes=size + 16, cluster=form.group, **options,
    )  # fmt: skip
    return out, result.counters
