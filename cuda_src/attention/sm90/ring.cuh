// A consumer warpgroup's way through the stages of keys, or of values.
#pragma once

#include "attention/sm90/shape.cuh"

namespace attention {

enum class Operand { keys, values };

// Thread i of a warpgroup tells CTA i of the cluster that a stage is free.
template <int CTAS> __device__ __forceinline__ void release(Barrier* empty) {
    const u32 thread = threadIdx.x % warp::GROUP;
    if constexpr (CTAS == 1) {
        if (thread == 0) mbarrier::arrive(empty);
    } else if (thread < CTAS) {
        mbarrier::arrive_remote(empty, thread);
    }
}

template <class S, Operand WHAT, int CTAS> struct Ring {
    const Shared<S>& shared;
    Cursor<S::STAGES> at;

    static constexpr bool KEYS = WHAT == Operand::keys;

    __device__ __forceinline__ u8* block() const {
        return KEYS ? shared.k(at.stage) : shared.v(at.stage);
    }
    __device__ __forceinline__ void await() const { mbarrier::wait(full(), at.parity); }
    // Whether the block is there, as a warp agrees.
    __device__ __forceinline__ bool here() const {
        return __all_sync(0xffffffff, mbarrier::over(full(), at.parity));
    }
    // The block is not needed any more; on to the next.
    __device__ __forceinline__ void release() {
        attention::release<CTAS>(KEYS ? shared.k_empty(at.stage) : shared.v_empty(at.stage));
        at.next();
    }
    // Lets go of blocks that this warpgroup does not need: they must have come, or the phase of the round
    // before might not be over. Only the warp that says so waits: a slow one would miss the phase.
    __device__ __forceinline__ void skip(i32 count) {
        const bool first = warp::uniform(threadIdx.x / warp::SIZE % 4) == 0;
#pragma unroll 1
        for (; count > 0; count--) {
            if (first) await();
            release();
        }
    }

private:
    __device__ __forceinline__ Barrier* full() const {
        return KEYS ? shared.k_full(at.stage) : shared.v_full(at.stage);
    }
};

}  // namespace attention
