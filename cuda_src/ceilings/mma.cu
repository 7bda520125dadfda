// How fast tensor cores are when a warp feeds them from its registers: mma.sync after mma.sync.
//
// Idea: what wgmma.cu does for a warpgroup, for single warps and the instruction that all GPUs since
// Ampere have. Operands stay in registers; a warp works on CHAINS accumulators in turn, as each MMA
// has to wait for the one before on the same accumulator. On Hopper this instruction does not reach
// the tensor cores' full rate however many warps ask: that takes wgmma.
//
// D is checked: A and -A take turns, so that any number of turns leaves one extra product A B, plus
// the number of the chain.
//
// `a` holds the fragments of A and -A, [2][32 lanes][4 words], `b` [32][2]. `laps` gets the clocks and
// nanoseconds of each CTA's turns (clock.cuh), `out` [CTA][warp][chain][4][32 lanes]. Grid: one CTA
// per SM; 32 WARPS threads.
#include "common/clock.cuh"
#include "common/mma.cuh"
#include "common/warp.cuh"

template <class T, int CHAINS, int WARPS>
__global__ void __launch_bounds__(32 * WARPS, 1)
mma_rate(const u32* a, const u32* b, i32 turns, i64* laps, f32* out) {
    u32 fragments[2][4], right[2];
#pragma unroll
    for (int i = 0; i < 8; i++) fragments[i / 4][i % 4] = a[(i / 4 * 32 + warp::lane()) * 4 + i % 4];
#pragma unroll
    for (int i = 0; i < 2; i++) right[i] = b[warp::lane() * 2 + i];
    f32 d[CHAINS][4];
#pragma unroll
    for (int i = 0; i < CHAINS * 4; i++) d[i / 4][i % 4] = f32(i / 4);  // all alike would become one
#pragma unroll
    for (int c = 0; c < CHAINS; c++) mma::m16n8k16<T>(d[c], fragments[0], right[0], right[1]);
    __syncthreads();

    const Lap start = begin_lap();
    for (int turn = 0; turn < turns; turn++) {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                mma::m16n8k16<T>(d[c], fragments[1 - i], right[0], right[1]);
    }
    __syncthreads();
    if (threadIdx.x == 0) end_lap(start, laps);
    f32* mine = out + (i64(blockIdx.x) * WARPS + warp::index()) * CHAINS * 128 + warp::lane();
#pragma unroll
    for (int i = 0; i < CHAINS * 4; i++) mine[i * 32] = d[i / 4][i % 4];
}
