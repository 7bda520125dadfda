// Vectors of 1 to 32 bytes that move in one memory instruction.
//
// A warp that moves 16 bytes per lane touches 512 contiguous bytes with one instruction: fewer
// instructions in flight for the same bytes. 32-byte accesses exist from sm_100 on.
#pragma once

#include "common/types.cuh"

template <class T, int N> struct alignas(sizeof(T) * N) Vec {
    T lane[N];
};

// How an access treats the caches. Streamed data is used once: `stream` marks it evict-first, which
// keeps it from pushing reusable lines out of L2. For accesses of up to 16 bytes.
enum class Cache { normal, stream };

// The machine word that carries a vector of the given size.
template <int BYTES> struct Word;
template <> struct Word<1> { using type = u8; };
template <> struct Word<2> { using type = u16; };
template <> struct Word<4> { using type = u32; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };
struct alignas(32) Word32 { uint4 low, high; };
template <> struct Word<32> { using type = Word32; };

#if __CUDA_ARCH__ >= 1000
__device__ __forceinline__ Word32 load_wide(const Word32* p) {
    Word32 w;
    asm volatile("ld.global.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(w.low.x), "=r"(w.low.y), "=r"(w.low.z), "=r"(w.low.w),
                   "=r"(w.high.x), "=r"(w.high.y), "=r"(w.high.z), "=r"(w.high.w)
                 : "l"(p) : "memory");
    return w;
}

__device__ __forceinline__ void store_wide(Word32* p, Word32 w) {
    asm volatile("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
                 :: "l"(p), "r"(w.low.x), "r"(w.low.y), "r"(w.low.z), "r"(w.low.w),
                    "r"(w.high.x), "r"(w.high.y), "r"(w.high.z), "r"(w.high.w) : "memory");
}
#endif

template <Cache CACHE, class W> __device__ __forceinline__ W load_word(const W* p) {
    if constexpr (sizeof(W) == 32) {
        static_assert(CACHE == Cache::normal, "32-byte accesses have one cache policy");
#if __CUDA_ARCH__ >= 1000
        return load_wide(p);
#else
        static_assert(sizeof(W) < 32, "32-byte accesses need sm_100 or newer");
#endif
    } else if constexpr (CACHE == Cache::stream) {
        return __ldcs(p);
    } else {
        return *p;
    }
}

template <Cache CACHE, class W> __device__ __forceinline__ void store_word(W* p, W w) {
    if constexpr (sizeof(W) == 32) {
#if __CUDA_ARCH__ >= 1000
        store_wide(p, w);
#endif
    } else if constexpr (CACHE == Cache::stream) {
        __stcs(p, w);
    } else {
        *p = w;
    }
}

template <Cache CACHE, class T, int N>
__device__ __forceinline__ Vec<T, N> load(const Vec<T, N>* p) {
    using W = typename Word<sizeof(Vec<T, N>)>::type;
    union { W word; Vec<T, N> vec; } u = {load_word<CACHE>(reinterpret_cast<const W*>(p))};
    return u.vec;
}

template <Cache CACHE, class T, int N>
__device__ __forceinline__ void store(Vec<T, N>* p, const Vec<T, N>& v) {
    using W = typename Word<sizeof(Vec<T, N>)>::type;
    W word;
    memcpy(&word, &v, sizeof(W));
    store_word<CACHE>(reinterpret_cast<W*>(p), word);
}
