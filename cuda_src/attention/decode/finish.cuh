// From the states of a CTA's warps to the output.
#pragma once

#include "attention/decode/combine.cuh"
#include "attention/decode/cut.cuh"

namespace decode {

// The result of an item: sinks join the sum, and what was summed is divided by it.
template <class S, class A>
__device__ __forceinline__ void finish(const A& x, const Work<S>& work, i32 item, State state) {
    using T = typename S::T;
    const i32 row = item / S::ITEMS, column = item % S::ITEMS * 4;
    const i32 token = work.token(x, row), head = work.query_head(x, row);
    if (x.rules.sinks) {
        const State both[2] = {state, {{}, x.rules.sinks[head] * LOG2_E, 1.0f}};
        state = State::of(both);
    }
    f32 share = state.sum > 0.0f ? 1.0f / state.sum : 0.0f;
    if constexpr (S::SCALED) share *= x.value_scale * x.v_scales.of(work) / S::Form::LIFT;
    const float4 v = state.values;
    uint2 packed = {pack_pair(T{}, v.x * share, v.y * share),
                    pack_pair(T{}, v.z * share, v.w * share)};
    T* to = x.out + work.sequence * x.out_strides.batch + token * x.out_strides.token +
            head * x.out_strides.head + column;
    *reinterpret_cast<uint2*>(to) = packed;
    if (x.lse && column == 0)
        x.lse[(i64(work.sequence) * x.heads + head) * x.tokens + token] =
            LN_2 * (state.top + ptx::lg2(state.sum));
}

// Where the parts of a unit meet.
template <class S, class A>
__device__ __forceinline__ auto meeting_of(const A& x, const Piece& piece) {
    return Parts<S::Form::ROWS * S::ITEMS>{x.values, x.statistics, x.arrived + piece.counter,
                                           piece.origin, piece.others, piece.parts};
}

// Of a grid cut: from the states of this CTA's warps to the result.
template <class S, class A>
__device__ __forceinline__ void combine(const A& x, const Work<S>& work,
                                        const typename S::States& board, u8* memory) {
    constexpr int THREADS = S::WARPS * warp::SIZE;
    const i32 items = work.rows * S::ITEMS;
    const i32 rank = S::CLUSTER > 1 ? i32(blockIdx.y % S::CLUSTER) : 0;
    const Exchange<S::CLUSTER> exchange{reinterpret_cast<float4*>(memory + S::States::BYTES)};
    if constexpr (S::CLUSTER > 1) {
        for (i32 i = threadIdx.x; i < items; i += THREADS) exchange.put(i, board.get(i));
        cluster::sync();
    }
    // This CTA's share of the items; they are numbered alike in all parts.
    const i32 from = items * rank / S::CLUSTER, to = items * (rank + 1) / S::CLUSTER;
    const auto meeting = meeting_of<S>(x, work);
    for (i32 i = from + threadIdx.x; i < to; i += THREADS) {
        State state;
        if constexpr (S::CLUSTER > 1) state = exchange.get(i);
        else state = board.get(i);
        if (work.parts > 1) meeting.put(work.part, i, state);
        else finish<S>(x, work, i, state);
    }
    if constexpr (S::CLUSTER > 1) cluster::arrive();
    if (work.parts > 1 && meeting.last(reinterpret_cast<u32*>(memory)))
#pragma unroll 1
        for (i32 i = from + threadIdx.x; i < to; i += THREADS)
            finish<S>(x, work, i, meeting.get(i));
    if constexpr (S::CLUSTER > 1) cluster::wait();  // nobody leaves while a peer still reads here
}

// Of an even cut: the pieces of this CTA that are parts of units, in shared memory. What they must
// wait for, others' arrival, they wait for together when all pieces are done.
template <class S> struct Open {
    static constexpr int THREADS = S::WARPS * warp::SIZE;

    Piece* pieces;
    i32 count = 0;

    __device__ __forceinline__ explicit Open(u8* base) : pieces(reinterpret_cast<Piece*>(base)) {}

    // From the states of this CTA's warps to the result, or to where parts meet.
    template <class A>
    __device__ __forceinline__ void deliver(const A& x, const Work<S>& work,
                                            const typename S::States& board) {
        const bool whole = work.parts == 1;
        const auto meeting = meeting_of<S>(x, work);
        for (i32 i = threadIdx.x; i < work.rows * S::ITEMS; i += THREADS) {
            if (whole) finish<S>(x, work, i, board.get(i));
            else meeting.put(work.part, i, board.get(i));
        }
        if (whole) return;
        if (threadIdx.x == 0) pieces[count] = work;
        count++;
    }
    // The last of a unit's parts to arrive puts it together.
    template <class A> __device__ __forceinline__ void close(const A& x) const {
        if (!count) return;
        u32* before = reinterpret_cast<u32*>(pieces + OPEN_PIECES);
        __syncthreads();
        if (i32(threadIdx.x) < count)
            before[threadIdx.x] = counter::increment(x.arrived + pieces[threadIdx.x].counter,
                                                     u32(pieces[threadIdx.x].parts - 1));
        __syncthreads();
#pragma unroll 1
        for (i32 n = 0; n < count; n++) {
            const Work<S> work(x, pieces[n]);
            if (before[n] != u32(work.parts - 1)) continue;
            const auto meeting = meeting_of<S>(x, work);
#pragma unroll 1
            for (i32 i = threadIdx.x; i < work.rows * S::ITEMS; i += THREADS)
                finish<S>(x, work, i, meeting.get(i));
        }
    }
};

}  // namespace decode
