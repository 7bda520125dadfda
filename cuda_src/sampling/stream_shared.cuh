// What the CTAs that stream a row keep in shared memory, and what they tell each other there.
#pragma once

#include "common/mbarrier.cuh"
#include "sampling/bins.cuh"
#include "sampling/block_draw.cuh"
#include "sampling/ruler.cuh"
#include "sampling/settings.cuh"

// What the CTAs do next, all over their parts of the row: count the logits of keys from `low` to `high`
// by the parts of a ruler, or list them, and leave the masses of blocks above `high`, of weights of
// min_p or more.
enum class Sweep : u32 { done, count, list };
struct Order {
    Sweep what;
    u32 low, high;
};

// What the rarer ways of finishing a row are asked, by way of shared memory, in pieces of 16 bytes.
struct alignas(16) Task {
    u64 all;  // the row's mass, where it counts
    u32 bound;
    i32 k, listed;
    f32 top_p;
    u32 joint, whole, low, high;  // low, high: where a nucleus ends, if known
    u64 mass;                     // of what is kept
};

// A search for the least key of what `need` of the row's tokens, or of its mass, is made of: the range
// that it is in, of the one that it may be in; what is above it, counted or estimated, and above all,
// exactly; how many tokens it holds.
struct Search {
    u32 low, high, least, most;
    u64 need;
    bool masses;
    u64 above = 0, over = 0, inside = 0;
};

// What a sketch's parts hold: samples, the variance of their mass but for a factor, and their mass.
struct Upto {
    u32 count;
    f32 square;
    u64 mass;

    __device__ __forceinline__ void add(const Upto& x) {
        count += x.count, square += x.square, mass += x.mass;
    }
    __device__ __forceinline__ Upto below(int lanes) const {
        return {__shfl_up_sync(0xffffffff, count, lanes), __shfl_up_sync(0xffffffff, square, lanes),
                __shfl_up_sync(0xffffffff, mass, lanes)};
    }
};

// Where a sum of parts lies, and the parts around: what threads that find them tell the others.
template <int WARPS> struct Located {
    Upto warps[WARPS];
    u32 part, first, last, before, with;  // samples before the first, and with the last
    f32 spread;
};

// What was decided: probabilities are the weights of keys from `threshold`, over `mass`.
struct Drawn {
    u32 token = 0, threshold = 0;
    u64 mass = 0;
};

constexpr int LIST = 2048;  // tokens that CTA 0 has room for
constexpr int FEW = 256;    // of which each may be compared with each

// A short list in order: by key, with the place by token and the mass, and by token.
struct FewInOrder {
    uint4 by_key[FEW];
    u32 by_token[FEW];
};

// What the CTAs tell each other where a row ends with a small k: each warp's maximum; how many tokens each
// CTA sent, and whether it saw a NaN; in CTA 0 which tokens.
struct SmallBoard {
    static constexpr int UNITS = 256, ROOM = 192, CTAS = 8;

    alignas(16) u32 most[UNITS];  // keys
    uint2 sent[CTAS];
    uint2 list[CTAS][ROOM];  // token and key
    u32 bound, top, found, nan;
};

// What a CTA keeps: stages while the row is read for the first time, the rest afterwards. In CTA 0 all of
// it is used, in the others the stages, the bins and the orders.
template <class T, int THREADS, int MOST> struct alignas(16) StreamShared {
    union {
        u32 maxima[MOST * 32];  // of groups, as keys
        SmallBoard small;
    };
    f32 block_max[MOST], block_sum[MOST];
    u32 sketch[Sketch::PARTS];
    union {
        T stage[THREADS / 32][ROUND];
        struct {
            union {
                struct {
                    BlockDraw<THREADS, MOST> draw;
                    union {
                        Bins<THREADS> bins;
                        FewInOrder few;
                    };
                    u64 mass[FEW];
                    u16 group[LIST];
                };
                u64 sorted[LIST];
            };
            u32 key[LIST], token[LIST];  // the list
        };
    };
    mbarrier::Barrier full[THREADS / 32], told[2];
    u64 sums[2][THREADS / 32];
    Order order;
    i32 V;  // 16 bytes with the order: they are read as one
    Task task;
    Search search;
    Located<THREADS / 32> edge;
    Drawn drawn;
    u32 listed, grouped, nan;
    const T* logits;  // what the row is, for further readings, as all that follows
    const u32* mask;
    Settings settings;
    u64 random;  // what the draw is decided by
    Sketch shape;  // what `sketch` counts
    u32 rank;
    u32 top;  // the key of the row's maximum
    u32 writes;  // a distribution is asked for, by all CTAs
};

// All of the dynamic shared memory.
template <class Shared> __device__ __forceinline__ Shared& here() {
    extern __shared__ __align__(16) u8 memory[];
    return *reinterpret_cast<Shared*>(memory);
}
