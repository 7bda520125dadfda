// Which element lies where when A comes from registers: one wgmma on fragments that the host filled.
//
// Idea: as probe.cu, but every thread takes its four words of A from global memory instead of A being
// read through a descriptor. With the identity for B, D is A: fragments whose elements are numbered by
// thread, word and place in the word say for every (m, k) who has to hold it. For 16-bit types this is
// the layout of D in pieces of 16 columns, rounded and packed in pairs: what lets attention feed the
// result of one wgmma into the next without a detour through shared memory.
//
// The words of A belong to the wgmma from wgmma.fence to wait, as those of D do.
//
// `fragments` is [image][128 threads][4 words]; `b` is a descriptor whose address counts from the
// image's first byte. Grid: images; 128 threads; dynamic shared memory of at least `bytes`.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma_bits.cuh"

template <class T, class D, int N, Major B>
__global__ void __launch_bounds__(128)
probe_registers(const uint4* fragments, const uint4* images, i32 bytes, u64 b, u32* out) {
    extern __shared__ __align__(1024) uint4 image[];
    const int chunks = bytes / 16;
    for (int i = threadIdx.x; i < chunks; i += 128)
        image[i] = images[i64(blockIdx.x) * chunks + i];
    tma::fence_shared();
    __syncthreads();

    const uint4 word = fragments[i64(blockIdx.x) * 128 + threadIdx.x];
    u32 a[4] = {word.x, word.y, word.z, word.w};
    u32 d[wgmma::WORDS<D, N>] = {};
    wgmma::hold_bits(a);
    wgmma::fence();
    wgmma::mma_bits<T, D, N, B>(d, a, wgmma::advance(b, mbarrier::address(image)), 0);
    wgmma::commit();
    wgmma::wait<0>();
    wgmma::hold_bits(d);
    wgmma::hold_bits(a);
    u32* mine = out + (i64(blockIdx.x) * 128 + threadIdx.x) * wgmma::WORDS<D, N>;
#pragma unroll
    for (int i = 0; i < wgmma::WORDS<D, N>; i++) mine[i] = d[i];
}
