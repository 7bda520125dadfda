// How the keys of all sequences are cut into pieces for CTAs.
//
//   grid  Every unit (a block of query rows of a KV head of a sequence) is cut into as many parts,
//         a CTA each: (units, parts x CLUSTER, sequences).
//   even  The steps of all units stand in one line, and every CTA of a grid as large as the GPU
//         takes as many of them, whatever the lengths: it ends a unit, has whole ones, begins one.
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
        const auto all = Steps<S::STEP>::of(x, length);
        const i32 own = blockIdx.y, shares = gridDim.y;
        i32 share = all.count, rest = 0;
        if (shares > 1) share = all.count / shares, rest = all.count % shares;
        const i64 place = i64(sequence) * gridDim.x + unit;
        const i64 states = place * (shares / S::CLUSTER);
        return {sequence, unit, length, (all.begin + share * own + min(own, rest)) * S::STEP,
                share + (own < rest), own / S::CLUSTER, shares / S::CLUSTER, states, states,
                place * S::CLUSTER + own % S::CLUSTER};
    }
};

// The numbers below are the same in all threads.
template <class S> struct Pieces<S, Cut::even> {
    using Here = Steps<S::STEP>;

    i32 share, rest;     // CTA c takes share + (c < rest) steps
    i32 units;           // of a sequence
    i32 sequence, unit;  // where the CTA stands
    i32 length, step;    // the sequence's; of the unit
    i32 at, end;         // in the line of all steps: where it stands, and ends
    Here here;

    template <class A> __device__ __forceinline__ explicit Pieces(const A& x) {
        const i32 rows = x.tokens * x.group;
        units = x.heads / x.group * ((rows + S::Form::ROWS - 1) / S::Form::ROWS);
        const i32 all = total(x), ctas = gridDim.x, own = blockIdx.x;
        share = all / ctas, rest = all % ctas;
        at = own * share + min(own, rest);
        end = at + share + (own < rest);
        if (at < end) find(x);
    }
    __device__ __forceinline__ bool any() const { return at < end; }
    __device__ __forceinline__ bool more() const { return at < end; }

    template <class A>
    __device__ __forceinline__ i32 steps_of(const A& x, i32 sequence) const {
        return sequence < x.sequences ? Here::of(x, x.length(sequence)).count * units : 0;
    }
    template <class A> __device__ __forceinline__ i32 total(const A& x) const {
        if (!x.lengths) return steps_of(x, 0) * x.sequences;
        i32 sum = 0;
#pragma unroll 4
        for (i32 i = warp::lane(); i < x.sequences; i += warp::SIZE) sum += steps_of(x, i);
#pragma unroll
        for (int bit = 1; bit < warp::SIZE; bit *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bit);
        return sum;
    }
    // The sequence and unit of step `at`.
    template <class A> __device__ __forceinline__ void find(const A& x) {
        i32 left = at;
        if (!x.lengths) sequence = left / steps_of(x, 0), left %= steps_of(x, 0);
        else left = search(x, left);
        enter(x);
        unit = left / here.count, step = left % here.count;
    }
    template <class A> __device__ __forceinline__ i32 search(const A& x, i32 left) {
        for (i32 base = 0;; base += warp::SIZE) {
            const i32 own = steps_of(x, base + warp::lane());
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
                return left - __shfl_sync(ALL_LANES, upto - own, lane);
            }
            left -= __shfl_sync(ALL_LANES, upto, warp::SIZE - 1);
        }
    }
    template <class A> __device__ __forceinline__ void enter(const A& x) {
        length = x.length(sequence);
        here = Here::of(x, length);
    }
    // The CTA that has this step of the line.
    __device__ __forceinline__ i32 owner(i32 step) const {
        const i32 longer = rest * (share + 1);
        return step < longer ? step / (share + 1) : rest + (step - longer) / max(1, share);
    }
    // A CTA begins at most one unit that others go on with, and ends at most one: two states each.
    template <class A> __device__ __forceinline__ Piece take(const A& x) {
        const i32 steps = min(end - at, here.count - step), start = at - step;
        const i32 first = step ? owner(start) : i32(blockIdx.x);
        const i32 last = steps < here.count - step ? owner(start + here.count - 1)
                                                   : i32(blockIdx.x);
        const Piece piece{sequence, unit, length, (here.begin + step) * S::STEP, steps,
                          i32(blockIdx.x) - first, last - first + 1, i64(gridDim.x) + first, first,
                          first};
        at += steps, step += steps;
        if (step == here.count && at < end) turn(x);
        return piece;
    }
    // To the next unit.
    template <class A> __device__ __forceinline__ void turn(const A& x) {
        step = 0;
        if (++unit == units) unit = 0, sequence++, enter(x);
    }
};

}  // namespace decode
