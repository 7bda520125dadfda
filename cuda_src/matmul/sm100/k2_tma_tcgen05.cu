// Matmul kernel 2, Blackwell: TMA fetches, the tensor core multiplies into its own memory.
//
// Idea: one thread does it all. It asks the tensor memory accelerator (TMA) for a tile of A and one
// of B, waits at an mbarrier until their bytes are in shared memory, and starts four MMAs of
// 64 x BN x 16 products. On Hopper all four warps had to issue wgmma and hold the sums in their
// registers; tcgen05.mma is issued by one thread, and the sums lie in Tensor Memory (TMEM), which
// nobody but the tensor core touches until the tile is done. A commit makes an mbarrier tell when
// the MMAs are over and the tiles may be overwritten. The other 127 threads wait for the end, read
// the sums from TMEM, in fragments like wgmma's, and store them.
//
// Layout: the MMA reads core matrices of 8 rows x 16 bytes, each 128 contiguous bytes, and a
// descriptor says how far apart they are. A box of 8 columns of K is a column of core matrices, so
// a tile of 64 columns takes 8 boxes. Eight rows of 16 bytes, one after the other, lie on all 32
// banks: no conflicts, neither as TMA writes nor as the MMA reads. What this layout costs is
// requests: every row of a box is one of 16 bytes, half of the 32-byte sector that L2 delivers.
//
// Why it is faster: an element of A is read from L2 once per 256 columns of C and one of B once per
// 64 rows, not once per product; an SM multiplies 4096 bf16 pairs per clock, not 128.
//
// Napkin (4096^3, 148 SMs at 1.85 GHz, 64 x 256 tiles): a step of 64 columns of K is 2560 requests
// of 16 bytes. On Hopper TMA takes some two clocks for each (sm90/k2): 5100 clk, against 512 of MMA
// (64 rows use half of the tensor core: 128 clk each). 1024 tiles are 7 waves of 64 steps: 1.2 ms,
// 110 TFLOPS instead of 5.
// Published for 4096^3 (results/published.csv):
// 155 TFLOP/s on B200.
//
// Limits: one buffer, so a CTA either loads or multiplies. 64 rows leave half of the tensor core
// idle. A CTA takes all 512 columns of TMEM, so no other one on its SM can begin (`columns` 256
// lets two overlap by chance). C leaves element by element.
//
// State: emulator-verified, not hardware-verified.
//
// Any M, N, K > 0; rows of A [M, K] and B [N, K] start at multiples of 16 bytes. Edges cost
// nothing: TMA fills what is outside with zeros. Grid: (tiles of M, tiles of N); 128 threads.
#include "common/mbarrier.cuh"
#include "common/tcgen05.cuh"
#include "common/tma.cuh"
#include "common/warp.cuh"

using mbarrier::Barrier;

constexpr int BM = 64, BK = 64;  // rows of A and columns of K in a tile
constexpr int BOX = 8;           // columns of K in a box: 16 bytes

template <class T, int ROWS>
__device__ __forceinline__ void load_tile(T* tile, const TensorMap& map, Barrier* full, int k,
                                          int row) {
#pragma unroll
    for (int i = 0; i < BK / BOX; i++)
        tma::load(tile + i * ROWS * BOX, map, full, k + i * BOX, row);
}

// The next 8 columns of K are a box further, the next 8 rows a core matrix.
template <int ROWS> __device__ __forceinline__ u64 operand(const void* tile) {
    return tcgen05::descriptor(mbarrier::address(tile), ROWS * 16, 128, tcgen05::Swizzle::none);
}

// One thread adds up A B over all of K.
template <class T, int BN>
__device__ __forceinline__ void multiply(u32 sums, T* a, T* b, Barrier* full, Barrier* done,
                                         const TensorMap& map_a, const TensorMap& map_b, int m0,
                                         int n0, int K) {
    u32 parity = 0;
    for (int k = 0; k < K; k += BK, parity ^= 1) {
        mbarrier::arrive_and_expect(full, (BM + BN) * BK * sizeof(T));
        load_tile<T, BM>(a, map_a, full, k, m0);
        load_tile<T, BN>(b, map_b, full, k, n0);
        mbarrier::wait(full, parity);

        tcgen05::fence_after();
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++)  // 16 columns of K are two boxes
            tcgen05::mma<1>(sums, tcgen05::advance(operand<BM>(a), kk * 2 * BM * 16),
                            tcgen05::advance(operand<BN>(b), kk * 2 * BN * 16),
                            tcgen05::SHAPE<T, BM, BN>, (k | kk) != 0);
        tcgen05::commit<1>(done);
        mbarrier::wait(done, parity);  // the next load may overwrite the tiles
    }
}

// A warp stores its 16 rows, each thread the elements it holds; tcgen05.cuh says which.
template <class OUT, int BN>
__device__ __forceinline__ void store_tile(OUT* C, u32 sums, int m0, int n0, int M, int N) {
    const int m = m0 + warp::index() * 16 + warp::lane() / 4, n = n0 + warp::lane() % 4 * 2;
    OUT* c = C + i64(m) * N + n;
    f32 d[BN / 2];
#pragma unroll
    for (int i = 0; i < BN; i += tcgen05::LOAD_COLUMNS)
        tcgen05::load(d + i / 2, sums + (warp::index() * 32 << 16) + i);
    tcgen05::wait_load();
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        const int dm = i / 2 % 2 * 8, dn = i / 4 * 8 + i % 2;
        if (m + dm < M && n + dn < N) c[i64(dm) * N + dn] = from_f32<OUT>(d[i]);
    }
}

template <class T, class OUT, int BN, int COLUMNS>
__global__ void __launch_bounds__(128)
k2_tma_tcgen05(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
               OUT* C, i32 M, i32 N, i32 K) {
    extern __shared__ __align__(1024) u8 shared[];
    T* a = reinterpret_cast<T*>(shared);
    T* b = a + BM * BK;
    Barrier *full = reinterpret_cast<Barrier*>(b + BN * BK), *done = full + 1;
    u32* tmem = reinterpret_cast<u32*>(done + 1);
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;

    if (warp::index() == 0) {
        tcgen05::alloc<1>(tmem, COLUMNS);
        tcgen05::relinquish<1>();
    }
    if (threadIdx.x == 0) {
        mbarrier::init(full, 1);
        mbarrier::init(done, 1);
        mbarrier::fence_init();
    }
    __syncthreads();
    const u32 sums = *tmem;

    if (threadIdx.x == 0) multiply<T, BN>(sums, a, b, full, done, map_a, map_b, m0, n0, K);
    __syncthreads();
    tcgen05::fence_after();
    store_tile<OUT, BN>(C, sums, m0, n0, M, N);

    tcgen05::fence_before();
    __syncthreads();  // all warps have read their sums
    if (warp::index() == 0) tcgen05::dealloc<1>(sums, COLUMNS);
}
