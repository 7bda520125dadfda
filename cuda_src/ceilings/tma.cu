// How fast TMA brings boxes into shared memory: one thread per SM asks, nobody uses what arrives.
//
// Idea: the loads of a matmul without the matmul. A ring of STAGES boxes is always in flight; as soon
// as one has landed, its place is asked for the next. Two limits show: bytes, as far as L2 or DRAM
// gives them to all SMs at once, and rows: TMA asks for a box row by row, so a narrow box (INNER
// bytes) of the same size takes longer.
//
// The boxes left in the ring at the end are added up and checked.
//
// CTA c takes boxes c, c + CTAs, c + 2 CTAs, ... of a matrix that is one box wide, and begins again at
// its end. `steps`: boxes per CTA, at least STAGES. `laps` gets clocks and nanoseconds (clock.cuh).
// Grid: one CTA per SM; 128 threads; dynamic shared memory for the ring and 8 bytes per stage.
#include "common/clock.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"

using mbarrier::Barrier;

template <int INNER, int ROWS, int STAGES>
__global__ void __launch_bounds__(128)
tma_rate(const __grid_constant__ TensorMap map, i32 boxes, i32 steps, i64* laps, u32* out) {
    constexpr int BYTES = INNER * ROWS;
    extern __shared__ __align__(1024) u8 shared[];
    Barrier* full = reinterpret_cast<Barrier*>(shared + STAGES * BYTES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier::init(full + i, 1);
        mbarrier::fence_init();
    }
    __syncthreads();

    const Lap start = begin_lap();
    if (threadIdx.x == 0) {
        const int stride = gridDim.x % boxes;
        int box = blockIdx.x % boxes;
        for (int step = 0; step < steps + STAGES; step++) {
            const int stage = step % STAGES;
            if (step >= STAGES) mbarrier::wait(full + stage, (step / STAGES - 1) % 2);
            if (step < steps) {
                mbarrier::arrive_and_expect(full + stage, BYTES);
                tma::load(shared + stage * BYTES, map, full + stage, 0, box * ROWS);
                box += box + stride < boxes ? stride : stride - boxes;
            }
        }
        end_lap(start, laps);
    }
    __syncthreads();
    // Every thread sees for itself that the last boxes are there.
    for (int i = 0; i < STAGES; i++) mbarrier::wait(full + i, ((steps - 1 - i) / STAGES) % 2);
    u32 sum = 0;
    for (int i = threadIdx.x; i < STAGES * BYTES / 4; i += 128)
        sum += reinterpret_cast<const u32*>(shared)[i];
    out[blockIdx.x * 128 + threadIdx.x] = sum;
}
