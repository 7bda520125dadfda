// Philox4x32-10: random words as a pure function of a key and a counter.
//
// gpukit's contract: the key is the row's seed, the counter (position, block, domain). So a row draws
// the same numbers wherever it sits in a batch, on any GPU and in the emulator. Domains keep the uses
// of one position apart.
#pragma once

#include "common/math.cuh"

namespace philox {

enum class Domain : u32 { uniform, draw, gumbel, accept, residual };

__device__ __forceinline__ uint4 round(uint4 c, u32 k0, u32 k1) {
    const u64 a = ptx::product(0xD2511F53u, c.x), b = ptx::product(0xCD9E8D57u, c.z);
    return {u32(b >> 32) ^ c.y ^ k0, u32(b), u32(a >> 32) ^ c.w ^ k1, u32(a)};
}

__device__ __forceinline__ uint4 words(u64 seed, i64 position, u32 block, Domain domain) {
    uint4 c = {u32(position), u32(u64(position) >> 32), block, u32(domain)};
    u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
    for (int i = 0; i < 10; ++i) {
        c = round(c, k0, k1);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c;
}

__device__ __forceinline__ u64 wide(uint4 w) { return u64(w.x) << 32 | w.y; }

// Multiples of 2^-24 in [0, 1).
__device__ __forceinline__ f32 uniform(u32 word) { return f32(word >> 8) * 5.9604644775390625e-8f; }

}  // namespace philox
