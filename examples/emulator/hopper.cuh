// Hopper's asynchronous copies and barriers as small functions: mbarrier, TMA, bulk groups.
#pragma once

using u32 = unsigned;
using u64 = unsigned long long;

struct alignas(64) TensorMap {
  char opaque[128];
};

__device__ inline u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// mbarrier: `init` needs `fence_init` before others may use it; `wait` is for the phase's parity.

__device__ inline void init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ inline void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :: "r"(shared_address(barrier)) : "memory");
}

__device__ inline void arrive_and_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ inline void wait(u64* barrier, u32 parity) {
  asm volatile(
      "{ .reg .pred over;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      "@!over bra again; }"
      :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// TMA: a box of a tensor at column `x` and row `y`, to and from shared memory.

__device__ inline void tma_load(void* to, const TensorMap& map, int x, int y, u64* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      :: "r"(shared_address(to)), "l"(&map), "r"(x), "r"(y), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void tma_store(const TensorMap& map, int x, int y, const void* from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(&map), "r"(x), "r"(y), "r"(shared_address(from)) : "memory");
}

__device__ inline void commit_store() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

__device__ inline void wait_store_read() {  // the stores' sources may be written again
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ inline void wait_store() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// What this thread wrote to shared memory becomes visible to TMA and wgmma.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Barrier `id` for the first `threads` threads that use it: not the whole CTA.
__device__ inline void named_barrier(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
