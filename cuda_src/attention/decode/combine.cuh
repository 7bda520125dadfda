// Putting the states of the warps of a CTA, of the CTAs of a cluster and of the clusters that share
// a KV head's keys together, in a fixed order: the same bits every run.
//
// A state over some keys is (top, sum, values): the largest score, the sum of weights 2^(score -
// top) and of weights times values. The unit of work is an item, four neighbouring dims of one
// query row. Warps meet in shared memory, CTAs of a cluster in each other's, clusters in global
// memory, where the last one to arrive does the rest: no second launch, and no counter to reset.
#pragma once

#include "attention/decode/softmax.cuh"
#include "common/cluster.cuh"
#include "common/counter.cuh"

namespace decode {

struct State {
    float4 values;
    f32 top, sum;

    __device__ __forceinline__ static State none() {
        return {{0.0f, 0.0f, 0.0f, 0.0f}, minus_infinity(), 0.0f};
    }
    // Of several states one: first the maximum of all, so that no weight waits for another.
    template <int N> __device__ __forceinline__ static State of(const State (&x)[N]) {
        State all = none();
#pragma unroll
        for (int i = 0; i < N; i++) all.top = fmaxf(all.top, x[i].top);
        const f32 shift = finite(all.top);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const f32 share = ptx::ex2(x[i].top - shift);
            all.values.x += x[i].values.x * share;
            all.values.y += x[i].values.y * share;
            all.values.z += x[i].values.z * share;
            all.values.w += x[i].values.w * share;
            all.sum += x[i].sum * share;
        }
        return all;
    }
};

// The states of a CTA's warps in shared memory, in the place of the rings. SHARED: the warps have
// one maximum and one array of values between them, each some of its dims, and sums of their own
// keys.
template <int ROWS, int DIM, int WARPS, bool SHARED> struct Board {
    static constexpr int PITCH = DIM + 4;  // f32 of a row
    static constexpr int ARRAYS = SHARED ? 1 : WARPS;
    static constexpr int STATISTICS = ARRAYS * ROWS * PITCH * 4;
    static constexpr int BYTES = STATISTICS + WARPS * ROWS * 8;

    f32* values;
    float2* statistics;

    __device__ __forceinline__ explicit Board(u8* base)
        : values(reinterpret_cast<f32*>(base)),
          statistics(reinterpret_cast<float2*>(base + STATISTICS)) {}

    template <class F>
    __device__ __forceinline__ void put(const F& f, const Softmax<F>& softmax, int warp,
                                        int rows) const {
#pragma unroll
        for (int n = 0; n < F::SUMS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = F::row(F::entry(n, e));
                const int dim = F::dim(n, e);  // MMAs may have more
                if (row < rows && (DIM % 64 == 0 || dim < DIM))
                    values[(warp % ARRAYS * ROWS + row) * PITCH + dim] = f.value(n, e);
            }
#pragma unroll
        for (int i = 0; i < F::ENTRIES; i++)
            statistics[warp * ROWS + F::row(i)] = {softmax.top[i], softmax.sum[i]};
    }

    __device__ __forceinline__ State get(int item) const {
        const int row = item / (DIM / 4), column = item % (DIM / 4) * 4;
        State states[ARRAYS];
#pragma unroll
        for (int w = 0; w < ARRAYS; w++) {
            float2 s = statistics[w * ROWS + row];
            if constexpr (SHARED)
                for (int other = 1; other < WARPS; other++) s.y += statistics[other * ROWS + row].y;
            states[w] = {
                *reinterpret_cast<const float4*>(values + (w * ROWS + row) * PITCH + column), s.x,
                s.y};
        }
        if constexpr (SHARED) return states[0];
        else return State::of(states);
    }
};

// The states of a CTA's items, for the cluster to read.
template <int CLUSTER> struct Exchange {
    float4* base;  // two for an item

    __device__ __forceinline__ void put(int item, const State& state) const {
        base[2 * item] = state.values;
        base[2 * item + 1] = {state.top, state.sum, 0.0f, 0.0f};
    }
    __device__ __forceinline__ State get(int item) const {
        const u32 at = static_cast<u32>(__cvta_generic_to_shared(base + 2 * item));
        State states[CLUSTER];
#pragma unroll
        for (int rank = 0; rank < CLUSTER; rank++) {
            const u32 there = cluster::map(at, rank);
            const float4 statistics = cluster::load4(there + 16);
            states[rank] = {cluster::load4(there), statistics.x, statistics.y};
        }
        return State::of(states);
    }
};

// The states of the parts of one unit, in global memory: SIZE items each.
template <int SIZE> struct Parts {
    static constexpr int TOGETHER = 16;

    float4* values;
    float2* statistics;
    u32* arrived;  // how many parts have; back to 0 after the last
    i64 origin, others;
    i32 parts;

    __device__ __forceinline__ i64 place(i32 part, i32 item) const {
        return (part ? others + part : origin) * SIZE + item;
    }
    __device__ __forceinline__ void put(i32 part, i32 item, const State& state) const {
        const i64 at = place(part, item);
        values[at] = state.values;
        statistics[at] = {state.top, state.sum};
    }
    __device__ __forceinline__ State read(i32 part, i32 item) const {
        if (part >= parts) return State::none();
        const i64 at = place(part, item);
        const float2 s = __ldcg(statistics + at);
        return {__ldcg(values + at), s.x, s.y};
    }
    // TOGETHER of them are on their way at a time: a read takes as long as a thousand additions.
    __device__ __forceinline__ State get(i32 item) const {
        State states[TOGETHER + 1];
        states[TOGETHER] = State::none();
        for (i32 part = 0; part < parts; part += TOGETHER) {
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) states[i] = read(part + i, item);
            states[TOGETHER] = State::of(states);
        }
        return states[TOGETHER];
    }

    // Whether this CTA is the last one here: then all others' states are there to be read.
    __device__ __forceinline__ bool last(u32* word) const {
        __syncthreads();
        if (threadIdx.x == 0) *word = counter::increment(arrived, u32(parts - 1));
        __syncthreads();
        return *word == u32(parts - 1);
    }
};

}  // namespace decode
