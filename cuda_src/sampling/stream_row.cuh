// A row read once by the CTAs of a cluster: what CTA 0 knows of it, and how it finds out more.
#pragma once

#include "common/dsmem.cuh"
#include "sampling/mass.cuh"
#include "sampling/philox.cuh"
#include "sampling/stream_shared.cuh"

template <class Row> __device__ __noinline__ void carry_out();  // stream_sweep.cuh

template <class T, int VEC, int THREADS, int CLUSTER, int MOST> struct StreamRow {
    using Shared = StreamShared<T, THREADS, MOST>;
    static constexpr int WARPS = THREADS / 32, CTAS = CLUSTER;

    Shared& s;
    const Logits<T, VEC> logits;
    const Blocks blocks;
    const u32 rank;
    u32 top = 0, least = 0;  // keys of the row's maximum and of the least of its groups' maxima
    bool alone = CLUSTER == 1;  // the other CTAs have been sent away

    // From what is in shared memory, where code is out of line.
    __device__ __forceinline__ static StreamRow again() {
        auto& s = here<Shared>();
        return {s, {s.logits, s.mask, u32(s.V)}, Blocks(s.V), s.rank, s.top};
    }

    __device__ __forceinline__ static void meet() {
        if constexpr (CLUSTER > 1) cluster::sync();
        else __syncthreads();
    }

    // This warp's blocks: every WARPS-th from `first` to `last`.
    __device__ __forceinline__ int first() const { return int(rank) * share() + warp::index(); }
    __device__ __forceinline__ int last() const {
        return min(blocks.count, int(rank + 1) * share());
    }
    __device__ __forceinline__ int share() const { return (blocks.count + CLUSTER - 1) / CLUSTER; }

    template <class Visit> __device__ __forceinline__ void each_block(Visit visit) const {
        for (int b = first(); b < last(); b += WARPS) visit(b);
    }

    // --- the first reading ---

    // Leaves in shared memory what is needed later; the first block sets out at once.
    __device__ __forceinline__ Stage<T, VEC> start(const Settings& settings, bool writes) {
        Stage<T, VEC> stage = {s.stage[warp::index()], &s.full[warp::index()]};
        stage.start();
        if (first() < last()) stage.fetch(logits, blocks.first(first(), 0));
        if (threadIdx.x == 0) {
            settle(settings);
            s.logits = logits.row, s.mask = logits.mask, s.V = blocks.V, s.rank = rank;
            s.writes = writes, s.shape = {};
        }
        roll(settings, 1);
        for (int i = threadIdx.x; i < Sketch::PARTS; i += THREADS) s.sketch[i] = 0;
        if constexpr (CLUSTER > 1) cluster::arrive();
        __syncthreads();
        return stage;
    }

    __device__ __forceinline__ void settle(const Settings& settings) const {
        s.listed = s.grouped = s.nan = 0, s.drawn.threshold = 0xffffffff;
        s.settings = settings, s.settings.min_p *= weight_unit(blocks.V);
    }

    // Leaves the number that decides the draw, by one thread of that warp while others do other things.
    __device__ __forceinline__ void roll(const Settings& settings, int warp) const {
        if (threadIdx.x != warp * 32) return;
        s.random = philox::wide(
            philox::words(settings.seed, settings.position, 0, philox::Domain::draw));
    }

    // Of the same tokens in all CTAs.
    __device__ __forceinline__ Sketch sketch() {
        const u32 token = u32(u64(threadIdx.x) * u32(blocks.V) / THREADS);
        const f32 best = warp_largest(key::clean(logits.one(token)));
        if (warp::lane() == 0) s.sums[0][threadIdx.x / 32] = __float_as_uint(best);
        __syncthreads();
        f32 sample = -INF;
        for (int w = 0; w < WARPS; ++w) sample = fmaxf(sample, __uint_as_float(u32(s.sums[0][w])));
        const Sketch sketch = Sketch::around(sample, s.settings.temperature);
        if (threadIdx.x == 0) s.shape = sketch;
        return sketch;
    }

    // Leaves in CTA 0 the maxima of groups and blocks; if asked for the blocks' sums of
    // e^((x - maximum) / T), and the counts of a sketch's parts.
    __device__ __forceinline__ void survey(Stage<T, VEC> stage, bool sums, const Weigh& at,
                                           const Sketch& sketch) {
        bool nan = false;
        const u32 maxima = dsmem::at(s.maxima, 0);
        f32 best = -INF, most = -INF, sum = 0.0f;
        int round = 0;
        bool met = CLUSTER == 1;  // nobody writes into a CTA that has not started
        for (int b = first(), end = last(); b < end;) {
            const u32 base = blocks.first(b, round);
            f32 x[32];
            stage.take(logits, base, x);
            if (!met) cluster::wait(), met = true;
            const bool over = ++round == blocks.rounds;
            const int next = over ? b + WARPS : b;
            if (over) round = 0;
            if (next < end) stage.fetch(logits, blocks.first(next, round));
#pragma unroll
            for (int i = 0; i < 32; ++i) nan |= x[i] != x[i];
            best = fmaxf(best, largest(x));
            if (sums) add_up(x, best, at, most, sum);
            if (sketch.scale > 0.0f) count(x, sketch);
            if (over) {
                dsmem::store(maxima + 4 * (b * 32 + warp::lane()), key::of(key::clean(best)));
                if (sums) leave_sum(b, most, sum);
                best = -INF, most = -INF, sum = 0.0f;
            }
            b = next;
        }
        if (!met) cluster::wait();
        nan = __any_sync(0xffffffff, nan);
        if (nan && warp::lane() == 0) dsmem::add(dsmem::at(&s.nan, 0), 1);
        if (sketch.scale > 0.0f) {
            __syncthreads();
            if (rank) hand_over(s.sketch);
        }
        meet();
        if (rank == 0) find_extremes();
    }

    __device__ __forceinline__ void count(const f32 (&x)[32], const Sketch& sketch) {
#pragma unroll
        for (int i = 0; i < 32; i += Sketch::OF + 1)  // of runs of 4 and 8 tokens not always the same one
            if (const i32 part = sketch.part(x[i]); part >= 0) atomicAdd(&s.sketch[part], 1u);
    }

    // Adds this CTA's counts to those of CTA 0.
    __device__ __forceinline__ static void hand_over(u32 (&counts)[Sketch::PARTS]) {
        for (int i = threadIdx.x; i < Sketch::PARTS; i += THREADS)
            if (const u32 n = counts[i]) dsmem::add(dsmem::at(&counts[i], 0), n);
    }

    // The same sum in the same order wherever the block is read.
    __device__ __forceinline__ static void add_up(const f32 (&x)[32], f32 best, const Weigh& at,
                                                  f32& most, f32& sum) {
        const f32 now = warp_largest(best), from = now == -INF ? 0.0f : now;
        sum = __fmul_rn(sum, about(fmaxf(most, -LARGEST) - from, at));
        most = now;
        f32 part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 32; ++i)
            part[i % 4] = __fadd_rn(part[i % 4], about(__fadd_rn(fmaxf(x[i], -LARGEST), -from), at));
        sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(part[0], part[1]), __fadd_rn(part[2], part[3])));
    }

    // A weight but for its exponent's rounding, which a sum evens out.
    __device__ __forceinline__ static f32 about(f32 distance, const Weigh& at) {
        return ptx::ex2(__fmaf_rn(distance, at.scale, __fmul_rn(distance, at.low)));
    }

    __device__ __forceinline__ void leave_sum(int b, f32 most, f32 sum) {
        sum = added(sum);
        if (warp::lane() == 0) {
            dsmem::store(dsmem::at(&s.block_max[b], 0), __float_as_uint(key::clean(most)));
            dsmem::store(dsmem::at(&s.block_sum[b], 0), __float_as_uint(sum));
        }
    }
    __device__ __forceinline__ static f32 added(f32 sum) {
#pragma unroll
        for (int i = 16; i; i /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffff, sum, i));
        return sum;
    }

    __device__ __forceinline__ void find_extremes() {
        u32 high = 0, low = 0xffffffff;
        for (int i = threadIdx.x; i < blocks.count * 32; i += THREADS)
            high = max(high, s.maxima[i]), low = min(low, s.maxima[i]);
        high = __reduce_max_sync(0xffffffff, high), low = __reduce_min_sync(0xffffffff, low);
        if (warp::lane() == 0) s.sums[0][threadIdx.x / 32] = u64(high) << 32 | low;
        __syncthreads();
        top = 0, least = 0xffffffff;
        for (int w = 0; w < WARPS; ++w) {
            top = max(top, u32(s.sums[0][w] >> 32));
            least = min(least, u32(s.sums[0][w]));
        }
        if (threadIdx.x == 0) s.top = top;
    }

    __device__ __forceinline__ bool greedy() const {
        return s.settings.greedy() || top == key::of(LARGEST);
    }
    __device__ __forceinline__ u8 status() const {
        return u8((top > key::NOTHING) | (s.nan ? 2 : 0));
    }
    __device__ __forceinline__ u64 random_below(u64 mass) const {
        return greedy() ? 0 : __umul64hi(s.random, mass);
    }

    // Turns the blocks' sums into masses relative to the row's maximum; what they add up to.
    __device__ __forceinline__ u64 row_mass(const Weigh& weigh) {
        u64 mine = 0;
        for (int b = threadIdx.x; b < blocks.count; b += THREADS)
            mine += s.draw.block[b] = mass_of_sum(s.block_max[b], s.block_sum[b], weigh);
        const u64 sum = team::cta_sum<WARPS>(mine, s.sums[1]);
        __syncthreads();
        return sum;
    }

    // A block's sum, relative to its maximum, as mass.
    __device__ __forceinline__ static u64 mass_of_sum(f32 most, f32 sum, const Weigh& weigh) {
        if (most == -INF) return 0;
        return u64(double(sum) * double(weigh(most)) * double(MASS_UNIT));
    }

    // --- the list ---

    // Puts CTA 0's groups that reach `bound`, and their tokens that do, on the list. False: too many.
    __device__ __forceinline__ bool gather(u32 bound) {
        for (int i = threadIdx.x; i < blocks.count * 32; i += THREADS)
            if (s.maxima[i] >= bound)
                if (const u32 at = atomicAdd(&s.grouped, 1u); at < LIST) s.group[at] = u16(i);
        __syncthreads();
        const int groups = s.grouped;
        if (groups > LIST) return false;
        constexpr int AHEAD = 8;
        for (int g = warp::index(); g < groups; g += WARPS * AHEAD)
            for (int round = 0; round < blocks.rounds; ++round) {
                f32 x[AHEAD];
                u32 token[AHEAD], bits = 0;
#pragma unroll
                for (int a = 0; a < AHEAD; ++a) {
                    const int group = g + a * WARPS < groups ? s.group[g + a * WARPS] : -1;
                    token[a] = group < 0 ? 0xffffffff
                                         : blocks.first(group / 32, round) +
                                               Logits<T, VEC>::at(group % 32, warp::lane());
                    x[a] = logits.one(token[a]);
                }
#pragma unroll
                for (int a = 0; a < AHEAD; ++a)
                    bits |= (key::of(key::clean(x[a])) >= bound ? 1u : 0u) << a;
                list(bits, x, [&](int a) { return token[a]; });
            }
        __syncthreads();
        return s.listed <= LIST;
    }

    // Lists those of a lane's logits that have a bit set: a place for each, by one count per warp.
    template <int N, class Token>
    __device__ __forceinline__ void list(u32 bits, const f32 (&x)[N], Token token) {
        if (!__any_sync(0xffffffff, bits)) return;
        const u32 mine = __popc(bits), upto = u32(team::warp_scan(mine));
        u32 at = 0;
        if (warp::lane() == 31) at = take_places(upto);
        at = __shfl_sync(0xffffffff, at, 31) + upto - mine;
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (bits >> i & 1) put(at++, key::of(key::clean(x[i])), token(i));
    }

    __device__ __forceinline__ u32 take_places(u32 n) { return atomicAdd(&s.listed, n); }

    __device__ __forceinline__ void put(u32 at, u32 key, u32 token) {
        if (at < LIST) s.key[at] = key, s.token[at] = token;
    }

    // --- further readings, by all CTAs ---

    // CTA 0 says what; the others obey until all is done.
    __device__ __forceinline__ void tell(const Order& order) {
        say(order);
        meet();
    }
    __device__ __forceinline__ void say(const Order& order, u32 from = 0) {
        if constexpr (CLUSTER > 1) {
            if (threadIdx.x < from || threadIdx.x >= CLUSTER) return;
            dsmem::store(dsmem::at(&s.order.what, threadIdx.x), u32(order.what));
            dsmem::store(dsmem::at(&s.order.low, threadIdx.x), order.low);
            dsmem::store(dsmem::at(&s.order.high, threadIdx.x), order.high);
            dsmem::store(dsmem::at(&s.top, threadIdx.x), top);
        } else if (threadIdx.x == 0) {
            s.order = order;
        }
    }

    __device__ __forceinline__ void obey() {
        for (;;) {
            meet();
            const Order order = s.order;
            top = s.top;
            if (order.what == Sweep::done) return;
            carry_out<StreamRow>();
            meet();
        }
    }
    __device__ __forceinline__ Weigh weigher() const {
        return Weigh(key::value(top), greedy() ? 1.0f : s.settings.temperature, weight_unit(blocks.V));
    }

    // Sends the others away while this CTA goes on, unless they are needed for a distribution.
    __device__ __forceinline__ void dismiss() {
        if (alone || s.writes) return;
        say({Sweep::done, 0, 0}, 1);
        cluster::arrive();
        alone = true;
    }

    // Ends with all others, which learn what they need to write a distribution.
    __device__ __forceinline__ void end(const Drawn& drawn) {
        if (CLUSTER > 1 && alone) return cluster::wait();
        __syncthreads();
        if (threadIdx.x < CLUSTER) {
            dsmem::store(dsmem::at(&s.drawn.token, threadIdx.x), drawn.token);
            dsmem::store(dsmem::at(&s.drawn.threshold, threadIdx.x), drawn.threshold);
            dsmem::store(dsmem::at(&s.drawn.mass, threadIdx.x), drawn.mass);
        }
        tell({Sweep::done, 0, 0});
    }
    __device__ __forceinline__ Drawn ended() const { return s.drawn; }

    // Everything that was told is in shared memory: it outlives the call's registers.
    __device__ __forceinline__ void order(Sweep what, u32 low, u32 high) {
        __syncthreads();  // whoever looked at the list has gone on
        if (threadIdx.x == 0) s.listed = 0;
        if (what == Sweep::count) s.bins.clear();
        const Order order = {what, low, high};
        tell(order);
        carry_out<StreamRow>();
        meet();
    }
};
