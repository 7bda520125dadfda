// The threshold of a nucleus, from the tokens around it that all CTAs sent.
#pragma once

#include "sampling/bins.cuh"
#include "sampling/block_draw.cuh"
#include "sampling/mass.cuh"
#include "sampling/ruler.cuh"
#include "sampling/stream_held_range.cuh"

// What the CTAs tell each other, behind what they share otherwise.
template <int THREADS, int MOST> struct HeldBoard {
    static constexpr int PARTS = SampledRange::PARTS, CTAS = 8, LISTED = CTAS * 384, GROUP = THREADS;

    alignas(16) u32 count[PARTS];  // of samples, by parts
    u64 parts[CTAS][PARTS / 4];    // all CTAs' counts, of 16 bits
    u64 pair[MOST];                // each block's maximum and sum
    uint2 own[LISTED / 2], list[LISTED], sent[CTAS];  // tokens and keys
    u64 above[CTAS];               // what each CTA's blocks weigh above the listed tokens
    Bins<THREADS> bins;
    BlockDraw<THREADS, MOST> draw;
    u64 block[THREADS / 32], group_mass[GROUP];  // this CTA's blocks above the listed tokens
    u32 group_key[GROUP], grouped;  // of the part where the threshold lies
    mbarrier::Barrier told[3];
    u32 found, nan, low, high, limit;
    u64 all_above;

    // Sums of 64 bits by counters of 32: shared memory has no other.
    __device__ __forceinline__ static void add_up(u64& sum, u64 value) {
        u32* half = reinterpret_cast<u32*>(&sum);
        const u32 before = atomicAdd(half, u32(value));
        const u32 carry = u32(value >> 32) + (before + u32(value) < before);
        if (carry) atomicAdd(half + 1, carry);
    }
};

// By every CTA for itself: the largest key at which the mass reaches the need.
template <int THREADS, int CLUSTER, int MOST> struct HeldThreshold {
    using Board = HeldBoard<THREADS, MOST>;
    static constexpr int LANES = THREADS / CLUSTER, ROOM = Board::LISTED / CLUSTER;

    Board& board;
    const Weigh weigh;
    const u64 need;

    // This thread's tokens of the list.
    template <class Visit> __device__ __forceinline__ void each(Visit visit) const {
        const u32 from = threadIdx.x / LANES, n = board.sent[from].x;
#pragma unroll 1
        for (u32 i = threadIdx.x % LANES; i < n; i += LANES) visit(board.list[from * ROOM + i]);
    }
    __device__ __forceinline__ u64 mass(u32 key) const { return mass_of(weigh.near(key::value(key))); }

    __device__ __forceinline__ bool nan_seen() const {
        bool nan = false;
        for (int r = 0; r < CLUSTER; ++r) nan |= board.sent[r].y != 0;
        return nan;
    }

    // Whether the threshold is among the listed tokens. Leaves it, and what blocks weigh from there on.
    __device__ __forceinline__ bool found() const {
        bool whole = true;
        u64 above = 0;
#pragma unroll
        for (int r = 0; r < CLUSTER; ++r) whole &= board.sent[r].x <= ROOM, above += board.above[r];
        if (!whole || above >= need) return false;
        const Ruler ruler(board.low, board.high);
        auto part = [&](u32 key) { return ruler.part(key::value(key), key); };
        each([&](uint2 pair) { board.bins.add(part(pair.y), mass(pair.y)); });
        board.bins.find(need - above);
        if (above + board.bins.above + board.bins.inside < need) return false;
        each([&](uint2 pair) {
            if (part(pair.y) == board.bins.found) join_group(pair.y);
        });
        __syncthreads();
        if (board.grouped > Board::GROUP) return false;
        find_limit(above + board.bins.above);
        __syncthreads();
        each([&](uint2 pair) {
            if (pair.y >= board.limit) Board::add_up(board.draw.block[pair.x / ROUND], mass(pair.y));
        });
        __syncthreads();
        return true;
    }

    __device__ __forceinline__ void join_group(u32 key) const {
        const u32 at = atomicAdd(&board.grouped, 1u);
        if (at < Board::GROUP) board.group_key[at] = key, board.group_mass[at] = mass(key);
    }

    // Of the tokens of a part, few or equal: the largest key at which the mass, of which what is above the
    // part is given, reaches the need. Each is compared with each.
    __device__ __forceinline__ void find_limit(u64 upto) const {
        const u32 n = board.grouped;
        if (threadIdx.x >= n) return;
        const u32 mine = board.group_key[threadIdx.x];
#pragma unroll 1
        for (u32 j = 0; j < n; ++j)
            if (board.group_key[j] >= mine) upto += board.group_mass[j];
        if (upto >= need) atomicMax(&board.limit, mine);
    }
};
