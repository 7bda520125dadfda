// How the keys of all sequences are cut into pieces for CTAs.
//
//   grid  Every unit (a block of query rows of a KV head of a sequence) is cut into as many parts,
//         a CTA each: (units, parts x CLUSTER, sequences).
//   even  The tiles of all sequences stand in one line, cut into equal pieces whatever the lengths.
//         A gang of CTAs has a piece, one CTA for every unit: (units, gangs). It ends a sequence
//         that others began, has whole ones, begins one. The units of a gang read neighbouring
//         bytes at the same time, which memory likes.
//
// Either way all is computed from lengths on the device, so that a captured launch serves others.
#pragma once

#include "attention/decode/work.cuh"

namespace decode {

enum class Cut { grid, even };

template <class S, Cut CUT> struct Pieces;

template <class S> struct Pieces<S, Cut::grid> {
    template <class A> __device__ __forceinline__ explicit Pieces(const A&) {}

    // Whether there is one more: the first needs no asking.
    __device__ __forceinline__ bool any() const { return true; }
    __device__ __forceinline__ bool more() const { return false; }

    template <class A> __device__ __forceinline__ Piece take(const A& x) const {
        const i32 sequence = blockIdx.z, unit = blockIdx.x, length = x.length(sequence);
        const auto all = Tiles::of(x, length);
        const i32 own = blockIdx.y, shares = gridDim.y;
        i32 share = all.count, rest = 0;
        if (shares > 1) share = all.count / shares, rest = all.count % shares;
        const i64 place = i64(sequence) * gridDim.x + unit;
        const i64 states = place * (shares / S::CLUSTER);
        return {sequence, unit, length, (all.begin + share * own + min(own, rest)) * TILE,
                share + (own < rest), own / S::CLUSTER, shares / S::CLUSTER, states, states,
                place * S::CLUSTER + own % S::CLUSTER};
    }
};

// The numbers below are the same in all threads.
template <class S> struct Pieces<S, Cut::even> {
    using Here = Tiles;

    i32 share, rest;     // gang g takes share + (g < rest) tiles
    i32 sequence, tile;  // where it stands
    i32 length, next;    // of the sequence, and of the one after it
    i32 at, end;         // in the line of all tiles: where it stands, and ends
    Here here;

    template <class A> __device__ __forceinline__ explicit Pieces(const A& x) {
        const i32 all = total(x), gangs = gridDim.y, own = blockIdx.y;
        share = all / gangs, rest = all % gangs;
        at = own * share + min(own, rest);
        end = at + share + (own < rest);
        if (!any()) return;
        find(x);
        enter(x, x.length(sequence));
    }
    __device__ __forceinline__ bool any() const { return at < end; }
    __device__ __forceinline__ bool more() const { return at < end; }

    template <class A>
    __device__ __forceinline__ i32 tiles_of(const A& x, i32 sequence) const {
        return sequence < x.sequences ? Here::of(x, x.length(sequence)).count : 0;
    }
    template <class A> __device__ __forceinline__ i32 total(const A& x) const {
        if (!x.lengths) return tiles_of(x, 0) * x.sequences;
        i32 sum = 0;
#pragma unroll 4
        for (i32 i = warp::lane(); i < x.sequences; i += warp::SIZE) sum += tiles_of(x, i);
#pragma unroll
        for (int bit = 1; bit < warp::SIZE; bit *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bit);
        return sum;
    }
    // The sequence that has tile `at` of the line, and which tile of it that is.
    template <class A> __device__ __forceinline__ void find(const A& x) {
        if (x.lengths) return search(x);
        const i32 each = tiles_of(x, 0);
        sequence = at / each, tile = at % each;
    }
    template <class A> __device__ __forceinline__ void search(const A& x) {
        i32 left = at;
        for (i32 base = 0;; base += warp::SIZE) {
            const i32 own = tiles_of(x, base + warp::lane());
            i32 upto = own;
#pragma unroll
            for (int by = 1; by < warp::SIZE; by *= 2) {
                const i32 before = __shfl_up_sync(ALL_LANES, upto, by);
                if (warp::lane() >= by) upto += before;
            }
            const u32 beyond = __ballot_sync(ALL_LANES, left < upto);
            if (beyond) {
                const int lane = __ffs(beyond) - 1;
                sequence = base + lane;
                tile = left - __shfl_sync(ALL_LANES, upto - own, lane);
                return;
            }
            left -= __shfl_sync(ALL_LANES, upto, warp::SIZE - 1);
        }
    }
    template <class A> __device__ __forceinline__ void enter(const A& x, i32 known) {
        length = known;
        here = Here::of(x, length);
        next = x.length(min(sequence + 1, x.sequences - 1));  // on its way until it is needed
    }
    // The gang that has this tile of the line.
    __device__ __forceinline__ i32 owner(i32 tile) const {
        const i32 longer = rest * (share + 1);
        return tile < longer ? tile / (share + 1) : rest + (tile - longer) / max(1, share);
    }
    // A gang ends at most one sequence that others began, and begins at most one that others go on
    // with: two states for each of its CTAs.
    template <class A> __device__ __forceinline__ Piece take(const A& x) {
        const i32 tiles = min(end - at, here.count - tile), start = at - tile;
        const i32 own = blockIdx.y, gangs = gridDim.y, unit = blockIdx.x;
        const i32 first = tile ? owner(start) : own;
        const i32 last = tile + tiles < here.count ? owner(start + here.count - 1) : own;
        const i64 states = i64(unit) * gangs * 2 + first;
        const Piece piece{sequence, unit, length, (here.begin + tile) * TILE, tiles,
                          own - first, last - first + 1, states + gangs, states,
                          i64(unit) * gangs + first};
        at += tiles;
        if (any()) sequence++, tile = 0, enter(x, next);
        return piece;
    }
};

}  // namespace decode
