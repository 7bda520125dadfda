// tcgen05: the Blackwell tensor core. One thread starts an MMA; its sums stay in Tensor Memory.
//
// D[M, N] (+)= A[M, 16] B[16, N] of f16 or bf16, sums in f32. A and B are read from shared memory
// through descriptors. D lies in Tensor Memory (TMEM): 128 lanes x 512 columns of 32 bits in each
// CTA, address lane << 16 | column. `CTAS` 2 makes a CTA and its neighbour (ranks 2i and 2i + 1 of
// a cluster) one: each holds half of A's rows, half of B's columns (rows of B [N, K]) and half of
// D's rows, at the same addresses, and a thread of either starts the MMA of both. Every instruction
// of a kernel has the same `CTAS`.
//
// Where row m and column n of D are:
//   CTAS 1, M  64: lane 32 (m / 16) + m % 16, column n
//   CTAS 1, M 128: lane m, column n
//   CTAS 2, M 256: lane m % 128 of CTA m / 128, column n
//
// MMAs run behind the issuing thread's back, one after the other. `commit` arrives at an mbarrier
// once all earlier ones of this thread are over: shared memory and sums are free then. Loads of
// TMEM are asynchronous, too, until `wait_load`. Between threads, what a barrier of any kind orders
// otherwise takes a `fence_before` (before arriving; a commit has one built in) and a `fence_after`
// (after waiting).
//
// Needs -arch=sm_100a.
#pragma once

#include "common/mbarrier.cuh"
#include "common/types.cuh"

namespace tcgen05 {

using mbarrier::address;
using mbarrier::Barrier;

constexpr u32 COLUMNS = 512;  // of TMEM

// One statement for both values of CTAS, a part of the instruction's name.
#define GPUKIT_CTAS(before, after, ...)                                                           \
    if constexpr (CTAS == 1) asm volatile(before ".cta_group::1" after __VA_ARGS__);              \
    else asm volatile(before ".cta_group::2" after __VA_ARGS__)

// One warp, of each CTA if CTAS is 2, takes `columns` (a power of two, 32 to 512) and gets their
// address in shared memory. It waits while other CTAs on the SM hold too many.
template <int CTAS> __device__ __forceinline__ void alloc(u32* to, u32 columns) {
    GPUKIT_CTAS("tcgen05.alloc", ".sync.aligned.shared::cta.b32 [%0], %1;",
                :: "r"(address(to)), "r"(columns) : "memory");
}

// This CTA will not alloc again. One warp.
template <int CTAS> __device__ __forceinline__ void relinquish() {
    GPUKIT_CTAS("tcgen05.relinquish_alloc_permit", ".sync.aligned;", ::: "memory");
}

// What was taken must be given back. One warp, of each CTA if CTAS is 2, when nobody uses it any
// more.
template <int CTAS> __device__ __forceinline__ void dealloc(u32 tmem, u32 columns) {
    GPUKIT_CTAS("tcgen05.dealloc", ".sync.aligned.b32 %0, %1;",
                :: "r"(tmem), "r"(columns) : "memory");
}

__device__ __forceinline__ void fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// How a tile lies in shared memory, in the hardware's terms. `leading` and `stride` are byte
// distances between the 8 x 16-byte core matrices (or swizzle atoms); their meaning depends on the
// mode (PTX ISA, "shared memory descriptor").
enum class Swizzle : u32 { none = 0, b128 = 2, b64 = 4, b32 = 6 };

__device__ __forceinline__ u64 descriptor(u32 shared_address, u32 leading, u32 stride,
                                          Swizzle swizzle) {
    return u64((shared_address & 0x3FFFF) >> 4) | u64(leading >> 4) << 16 | u64(stride >> 4) << 32 |
           u64(1) << 46 | u64(swizzle) << 61;
}

// Advances a descriptor by bytes of shared memory.
__device__ __forceinline__ u64 advance(u64 descriptor, u32 bytes) {
    return descriptor + (bytes >> 4);
}

// The instruction descriptor: f32 sums, A and B of type T along K, M and N of the whole MMA.
template <class T> constexpr u32 TYPE = 0;  // f16
template <> constexpr u32 TYPE<bf16> = 1;
template <class T, int M, int N>
constexpr u32 SHAPE = 1 << 4 | TYPE<T> << 7 | TYPE<T> << 10 | N / 8 << 17 | M / 16 << 24;

// D (+)= A B for 16 columns of K; `add` false overwrites D. One thread.
template <int CTAS>
__device__ __forceinline__ void mma(u32 d, u64 a, u64 b, u32 shape, bool add) {
    GPUKIT_CTAS("{ .reg .pred add;\nsetp.ne.b32 add, %4, 0;\ntcgen05.mma",
                ".kind::f16 [%0], %1, %2, %3, add; }",
                :: "r"(d), "l"(a), "l"(b), "r"(shape), "r"(u32(add)) : "memory");
}

// One arrival at `barrier` when this thread's MMAs so far are over.
template <int CTAS> __device__ __forceinline__ void commit(Barrier* barrier) {
    GPUKIT_CTAS("tcgen05.commit", ".mbarrier::arrive::one.shared::cluster.b64 [%0];",
                :: "r"(address(barrier)) : "memory");
}

// One arrival at the barrier of that offset in every CTA whose bit is set in `mask`.
template <int CTAS> __device__ __forceinline__ void commit_multicast(Barrier* barrier, u16 mask) {
    GPUKIT_CTAS("tcgen05.commit",
                ".mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;",
                :: "r"(address(barrier)), "h"(mask) : "memory");
}
#undef GPUKIT_CTAS

// A warp loads 16 lanes x 32 columns: register i of thread t is row t / 4 + 8 ((i / 2) % 2), column
// 8 (i / 4) + 2 (t % 4) + i % 2, the fragment of wgmma and of stmatrix. Warp w of a warpgroup
// reaches lanes 32 w to 32 w + 31 only.
__device__ __forceinline__ void load(f32* d, u32 tmem) {
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15}, [%16];"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]),
                   "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]),
                   "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15])
                 : "r"(tmem) : "memory");
}
constexpr int LOAD_COLUMNS = 32;

// This thread's loads are over: the sums may be overwritten.
__device__ __forceinline__ void wait_load() {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

}  // namespace tcgen05
