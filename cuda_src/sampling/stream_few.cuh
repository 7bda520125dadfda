// The end of a row whose kept tokens are all on a list of up to 256.
//
// All threads put the list in order, by key and by token, comparing each with each. The rest is one warp's
// work and has no barriers: running sums by key tell where the nucleus ends, running sums by token what is
// drawn.
#pragma once

#include "sampling/stream_row.cuh"

template <class Row> struct Few {
    static constexpr int THREADS = Row::WARPS * 32;

    const Row& row;
    typename Row::Shared& s;
    const Weigh weigh;
    const i32 k;  // 0: all
    const f32 top_p;
    const bool joint;

    // For warp 0.
    __device__ __forceinline__ Drawn draw(int n, u64 all) const {
        if (const int i = threadIdx.x; i >= n && i < n + 3) s.key[i] = 0, s.token[i] = ~0u;
        __syncthreads();
        put_in_order(n);
        __syncthreads();
        if (threadIdx.x >= 32) return {};
        if (__builtin_expect(n <= 128, true)) return walk<4>(n, all);
        return walk<FEW / 32>(n, all);
    }

    __device__ __forceinline__ void put_in_order(int n) const {
        const int shift = min(3, __clz(n - 1) - __clz(THREADS - 1));
        const int lanes = 1 << shift;  // that share a token
        const int me = int(threadIdx.x) >> shift, part = int(threadIdx.x) & (lanes - 1);
        const u32 key = me < n ? s.key[me] : 0, token = me < n ? s.token[me] : 0;
        const uint4* keys = reinterpret_cast<const uint4*>(s.key);
        const uint4* tokens = reinterpret_cast<const uint4*>(s.token);
        u32 before = 0;  // how many come before this one by key, and << 16 by token
        auto compare = [&](u32 its_key, u32 its_token) {
            const bool earlier = its_token < token;
            before += (its_key > key) | ((its_key == key) & earlier) | (earlier ? 1u << 16 : 0);
        };
#pragma unroll 1
        for (int j = part; 4 * j < n; j += lanes) {
            const uint4 a = keys[j], b = tokens[j];
            compare(a.x, b.x), compare(a.y, b.y), compare(a.z, b.z), compare(a.w, b.w);
        }
#pragma unroll
        for (int i = 1; i < 8; i *= 2) {
            const u32 more = __shfl_xor_sync(0xffffffff, before, i);
            before += i < lanes ? more : 0;
        }
        const f32 e = weigh(key::value(key));
        const u64 mass = e >= s.settings.min_p ? mass_of(e) : 0;
        if (me >= n || part) return;
        s.few.by_key[before & 0xffff] = {key, before >> 16, u32(mass), u32(mass >> 32)};
        s.few.by_token[before >> 16] = token;
    }

    // Every lane has EACH neighbours of each order, which it reads anew: registers are few.
    template <int EACH, class Visit>
    __device__ __forceinline__ static void each(int n, Visit visit) {
#pragma unroll(EACH <= 4 ? EACH : 1)
        for (int i = 0; i < EACH; ++i)
            if (const int at = warp::lane() * EACH + i; at < n) visit(at);
    }
    __device__ __forceinline__ u64 mass(int place, u32 threshold) const {
        const uint4 at = s.few.by_key[place];
        return at.x >= threshold ? u64(at.w) << 32 | at.z : 0;
    }

    template <int EACH> __device__ __forceinline__ Drawn walk(int n, u64 all) const {
        u32 threshold = k && k <= n ? s.few.by_key[k - 1].x : 0;
        if (top_p < 1.0f) {
            u64 sum = 0;
            each<EACH>(n, [&](int i) { sum += mass(i, threshold); });
            const u64 upto = team::warp_scan(sum), total = __shfl_sync(0xffffffff, upto, 31);
            const u64 need = fraction(top_p, joint ? all : total);
            u64 above = upto - sum;
            u32 last = 0xffffffff;
            each<EACH>(n, [&](int i) {
                if (above < need) last = s.few.by_key[i].x;
                above += mass(i, threshold);
            });
            threshold = max(threshold, __reduce_min_sync(0xffffffff, last));
        }
        each<EACH>(n, [&](int i) { s.mass[s.few.by_key[i].y] = mass(i, threshold); });
        __syncwarp();
        return pick<EACH>(n, threshold);
    }

    template <int EACH> __device__ __forceinline__ Drawn pick(int n, u32 threshold) const {
        u64 sum = 0;
        each<EACH>(n, [&](int i) { sum += s.mass[i]; });
        const u64 upto = team::warp_scan(sum), total = __shfl_sync(0xffffffff, upto, 31);
        const u64 rest = row.random_below(total);
        u64 before = upto - sum;
        int at = -1;
        each<EACH>(n, [&](int i) {
            if (before <= rest && rest < before + s.mass[i]) at = i;
            before += s.mass[i];
        });
        const u32 lane = __ffs(__ballot_sync(0xffffffff, at >= 0)) - 1;
        return {s.few.by_token[__shfl_sync(0xffffffff, at, lane)], threshold, total};
    }
};
