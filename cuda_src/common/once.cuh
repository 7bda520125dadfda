// Loads of data that a kernel reads exactly once, as the weights of a matrix-vector product.
//
// Each has a condition and gives zeros where it does not hold: one predicated instruction, where
// the compiler would make a branch of an `if`, and a wait of a branch. They are ordinary loads, not
// read-only (.nc) ones, so that the assembler keeps them in front of a barrier that follows.
#pragma once

#include "common/vec.cuh"

// What the caches are told about a 16-byte load. Narrower loads, of which several share a sector, are
// always plain: their neighbours want the line.
enum class Hint {
    none,
    no_allocate,  // leave no line in L1
    fetch_256,    // no_allocate, and have L2 fetch 256 bytes around a miss
    evict_first,  // no_allocate, and the first to leave L2: what others reuse stays there
};

namespace once {

#define GPUKIT_LOAD_16(name, declare, hints, policy)                                              \
    __device__ __forceinline__ uint4 name(const uint4* p, bool inside) {                          \
        uint4 w;                                                                                  \
        asm volatile("{ .reg .pred inside;\n" declare                                             \
                     "setp.ne.u32 inside, %5, 0;\n"                                               \
                     "mov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"           \
                     "@inside ld.global" hints ".v4.u32 {%0, %1, %2, %3}, [%4]" policy "; }"      \
                     : "=&r"(w.x), "=&r"(w.y), "=&r"(w.z), "=&r"(w.w)                             \
                     : "l"(p), "r"(u32(inside)) : "memory");                                      \
        return w;                                                                                 \
    }

GPUKIT_LOAD_16(plain, "", "", "")
GPUKIT_LOAD_16(no_allocate, "", ".L1::no_allocate", "")
GPUKIT_LOAD_16(fetch_256, "", ".L1::no_allocate.L2::256B", "")
GPUKIT_LOAD_16(evict_first,
               ".reg .b64 first;\ncreatepolicy.fractional.L2::evict_first.b64 first, 1.0;\n",
               ".L1::no_allocate.L2::cache_hint", ", first")
#undef GPUKIT_LOAD_16

__device__ __forceinline__ uint2 plain(const uint2* p, bool inside) {
    uint2 w;
    asm volatile("{ .reg .pred inside;\nsetp.ne.u32 inside, %3, 0;\n"
                 "mov.u32 %0, 0;\nmov.u32 %1, 0;\n@inside ld.global.v2.u32 {%0, %1}, [%2]; }"
                 : "=&r"(w.x), "=&r"(w.y) : "l"(p), "r"(u32(inside)) : "memory");
    return w;
}

__device__ __forceinline__ u32 plain(const u32* p, bool inside) {
    u32 w;
    asm volatile("{ .reg .pred inside;\nsetp.ne.u32 inside, %2, 0;\n"
                 "mov.u32 %0, 0;\n@inside ld.global.u32 %0, [%1]; }"
                 : "=&r"(w) : "l"(p), "r"(u32(inside)) : "memory");
    return w;
}

__device__ __forceinline__ u16 plain(const u16* p, bool inside) {
    u16 w;
    asm volatile("{ .reg .pred inside;\nsetp.ne.u32 inside, %2, 0;\n"
                 "mov.u16 %0, 0;\n@inside ld.global.u16 %0, [%1]; }"
                 : "=&h"(w) : "l"(p), "r"(u32(inside)) : "memory");
    return w;
}

__device__ __forceinline__ u8 plain(const u8* p, bool inside) {
    u32 w;
    asm volatile("{ .reg .pred inside;\nsetp.ne.u32 inside, %2, 0;\n"
                 "mov.u32 %0, 0;\n@inside ld.global.u8 %0, [%1]; }"
                 : "=&r"(w) : "l"(p), "r"(u32(inside)) : "memory");
    return u8(w);
}

// The word at p, or zeros unless `inside`.
template <Hint HINT, class W> __device__ __forceinline__ W load_if(bool inside, const W* p) {
    if constexpr (sizeof(W) < 16 || HINT == Hint::none) return plain(p, inside);
    else if constexpr (HINT == Hint::no_allocate) return no_allocate(p, inside);
    else if constexpr (HINT == Hint::fetch_256) return fetch_256(p, inside);
    else return evict_first(p, inside);
}

}  // namespace once
