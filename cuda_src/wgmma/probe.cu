// Which element lies where: one wgmma on shared memory that the host filled byte by byte.
//
// Idea: to see a layout, multiply numbers that name their own place. Every CTA copies one image of
// shared memory, issues a single wgmma on the two descriptors given, and stores the words of D just as
// the threads hold them: D[thread][word]. The host knows what it put at which byte, so
//  - with A[m, 0] = m and B[n, 0] = 1 each word of D says its row, with 1 and n its column;
//  - with the identity for B, D is A: an image of A whose elements are numbered in the order of memory
//    says for every (m, k) at which byte the tensor core read it; likewise for B.
// Numbers too large for the element type go in digits, one image and one CTA each.
//
// The order every wgmma needs: ordinary stores to shared memory are made visible to the tensor core
// (fence.proxy.async), everybody is past them (barrier), registers are handed over (wgmma.fence),
// then mma, commit, wait.
//
// `a` and `b` are descriptors whose addresses count from the image's first byte. Grid: images; 128
// threads; dynamic shared memory of at least `bytes`, a multiple of 16.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma_bits.cuh"

template <class T, class D, int N, Major A, Major B>
__global__ void __launch_bounds__(128)
probe(const uint4* images, i32 bytes, u64 a, u64 b, u32* out) {
    extern __shared__ __align__(1024) uint4 image[];
    const int chunks = bytes / 16;
    for (int i = threadIdx.x; i < chunks; i += 128)
        image[i] = images[i64(blockIdx.x) * chunks + i];
    tma::fence_shared();
    __syncthreads();

    const u32 start = mbarrier::address(image);
    u32 d[wgmma::WORDS<D, N>] = {};
    wgmma::fence();
    wgmma::mma_bits<T, D, N, A, B>(d, wgmma::advance(a, start), wgmma::advance(b, start), 0);
    wgmma::commit();
    wgmma::wait<0>();
    wgmma::hold_bits(d);
    u32* mine = out + (i64(blockIdx.x) * 128 + threadIdx.x) * wgmma::WORDS<D, N>;
#pragma unroll
    for (int i = 0; i < wgmma::WORDS<D, N>; i++) mine[i] = d[i];
}
