// D = A B by one warpgroup, every element put into its place by hand: wgmma with nothing around it.
//
// Idea: a matmul kernel hides the layouts behind TMA, which writes them, and behind loops. Here 128
// threads read A [64, K] and B [N, K] from global memory, put each element where the tensor core looks
// for it (place.cuh says where, for all four layouts), issue one MMA per 32 bytes of K and store D from
// the registers it comes back in. Read it next to `gpukit layout wgmma-b` and `gpukit layout wgmma-d`.
//
// The steps that are easy to leave out:
//  - fence.proxy.async: tensor cores read shared memory past the path that ordinary stores take;
//  - wgmma.fence: registers are handed over, D and, if it comes from there, A;
//  - commit and wait: an MMA runs on after the instruction; until the wait D and A belong to it.
//
// SPAN is the bytes of a row of the swizzle's pattern, 16 for none. K is one MMA's 16 without a swizzle,
// else SPAN bytes. With A_REGISTERS the threads load A straight into the registers where it belongs.
// bf16 or f16, sums in f32. Grid: 1; 128 threads; dynamic shared memory for both tiles.
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"
#include "common/wgmma_bits.cuh"
#include "wgmma/place.cuh"

constexpr int M = 64, THREADS = 128;

// Shared memory in bytes becomes the tile.
template <class TILE, class T>
__device__ __forceinline__ void place(u8* tile, const T* matrix, int rows, int width) {
    for (int i = threadIdx.x; i < rows * width; i += THREADS)
        *reinterpret_cast<T*>(tile + TILE::offset(i / width, i % width)) = matrix[i];
}

// The four words of A that this thread holds for one MMA: two rows, two pairs of columns.
template <class T> __device__ __forceinline__ void fetch(u32 (&a)[4], const T* A, int width, int k) {
    const int row = 16 * warp::index() + warp::lane() / 4, column = k + 2 * (warp::lane() % 4);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const T* pair = A + (row + 8 * (i % 2)) * width + column + 8 * (i / 2);
        a[i] = *reinterpret_cast<const u32*>(pair);
    }
    wgmma::hold_bits(a);
}

// Register i is one element: see wgmma.cuh.
template <int N> __device__ __forceinline__ void store(f32* D, const u32 (&d)[N / 2]) {
    const int row = 16 * warp::index() + warp::lane() / 4, column = 2 * (warp::lane() % 4);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        D[(row + 8 * (i / 2 % 2)) * N + column + 8 * (i / 4) + i % 2] = __uint_as_float(d[i]);
}

template <class T, int N, int SPAN, Major A_MAJOR, Major B_MAJOR, bool A_REGISTERS>
__global__ void __launch_bounds__(THREADS) multiply(const T* A, const T* B, f32* D) {
    constexpr int STEP = 32 / sizeof(T), K = SPAN < 32 ? STEP : SPAN / sizeof(T), STEPS = K / STEP;
    using TileA = Tile<T, M, K, SPAN, A_MAJOR>;
    using TileB = Tile<T, N, K, SPAN, B_MAJOR>;
    extern __shared__ __align__(1024) u8 shared[];
    u8* b_tile = shared + (TileA::BYTES + 1023) / 1024 * 1024;
    place<TileA>(shared, A, M, K);
    place<TileB>(b_tile, B, N, K);
    tma::fence_shared();
    __syncthreads();

    u32 a[STEPS][4], d[N / 2] = {};
    if constexpr (A_REGISTERS) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) fetch(a[s], A, K, s * STEP);
    }
    const u64 a_descriptor = TileA::descriptor(mbarrier::address(shared));
    const u64 b_descriptor = TileB::descriptor(mbarrier::address(b_tile));
    wgmma::fence();
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const u64 b = wgmma::advance(b_descriptor, s * TileB::STEP_K);
        if constexpr (A_REGISTERS)
            wgmma::mma_bits<T, f32, N, B_MAJOR>(d, a[s], b, s > 0);
        else
            wgmma::mma_bits<T, f32, N, A_MAJOR, B_MAJOR>(
                d, wgmma::advance(a_descriptor, s * TileA::STEP_K), b, s > 0);
    }
    wgmma::commit();
    wgmma::wait<0>();
    wgmma::hold_bits(d);
    store<N>(D, d);
}
