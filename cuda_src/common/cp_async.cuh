// cp.async: copies from global to shared memory that pass through no register and that the thread
// need not wait for. A thread commits its copies in groups and waits for groups in order; others see
// the bytes only after a barrier that follows the wait.
#pragma once

#include "common/types.cuh"

namespace cp_async {

// Copies BYTES (4, 8 or 16), of which only the first `valid` are read; zeros fill the rest. Both
// addresses are aligned to BYTES. Copies of 16 bytes may bypass L1 (KEEP = false), which suits data
// that no other CTA of the SM wants, and then ask L2 for the whole 128-byte line.
template <int BYTES, bool KEEP = true>
__device__ __forceinline__ void copy(void* shared, const void* global, u32 valid = BYTES) {
    const u32 to = static_cast<u32>(__cvta_generic_to_shared(shared));
    if constexpr (KEEP) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(to), "l"(global), "n"(BYTES), "r"(valid) : "memory");
    } else {
        static_assert(BYTES == 16, "only copies of 16 bytes can bypass L1");
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(global), "r"(valid) : "memory");
    }
}

// Ends a group: the copies since the last one, possibly none.
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most the PENDING youngest groups of this thread are unfinished.
template <int PENDING> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}

// All copies of this thread so far have landed; others see them after a barrier.
__device__ __forceinline__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace cp_async
