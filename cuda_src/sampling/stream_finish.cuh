// How CTA 0 comes from what it knows of a row to its token.
#pragma once

#include "sampling/stream_edge.cuh"
#include "sampling/stream_few.cuh"
#include "sampling/stream_nucleus.cuh"

// Out of line, with all they need in shared memory: long ways must not cost the short ones registers.
template <class Ends> __device__ __noinline__ void finish_list() {
    Ends::resume([&](Ends& ends, const Task& task) {
        return ends.many(task.listed, task.bound, task.all);
    });
}
template <class Ends> __device__ __noinline__ void find_thresholds() { Ends::find_thresholds(); }
template <class Ends> __device__ __noinline__ void draw_from_row() {
    Ends::resume([&](Ends& ends, const Task& task) {
        return ends.from_blocks(task.mass, task.bound, false);
    });
}

// What a token adds to the running sum of a draw.
template <class Source> struct KeptMass {
    const Source& logits;
    const Weigh weigh;
    const u32 limit;
    const f32 min_p;

    __device__ __forceinline__ f32 read(u32 token) const { return logits.one(token); }
    __device__ __forceinline__ u64 operator()(f32 logit) const {
        const f32 x = key::clean(logit), e = weigh(x);
        return key::of(x) >= limit && e >= min_p ? mass_of(e) : 0;
    }
};

template <class T, int VEC, int THREADS, int CLUSTER, int MOST> struct Finish {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    static constexpr int WARPS = THREADS / 32;

    Row& row;
    typename Row::Shared& s;
    const Weigh weigh;
    const i32 k;       // 0: all
    const f32 top_p;
    const bool joint;

    // --- many on the list: three thresholds, of values, of mass and of the token ---

    __device__ __forceinline__ Drawn many(int n, u32 bound, u64 all) {
        u32 limit = bound;
        auto each = [&](auto visit) {
            for (int i = threadIdx.x; i < n; i += THREADS) visit(i);
        };
        if (k) limit = select<THREADS>(s.bins, {bound, row.top}, k, k, [&](auto add) {
            each([&](int i) { add(s.key[i], 1); });
        });
        u64 mass = listed_mass(n, limit);
        if (top_p < 1.0f) {
            const u64 need = fraction(top_p, joint ? all : mass);
            if (need <= mass)
                limit = select<THREADS>(s.bins, {limit, row.top}, need, need, [&](auto add) {
                    each([&](int i) { add(s.key[i], mass_at(i, limit)); });
                });
            mass = listed_mass(n, limit);
        }
        const u64 rest = row.random_below(mass);
        const u32 token = ~select<THREADS>(
            s.bins, {~u32(row.blocks.V - 1), ~0u}, rest + 1, 0, [&](auto add) {
                each([&](int i) { add(~s.token[i], mass_at(i, limit)); });
            });
        return {token, limit, mass};
    }

    // The mass of a listed token, zero below the limit; that of all.
    __device__ __forceinline__ u64 mass_at(int i, u32 limit) const {
        const f32 e = weigh(key::value(s.key[i]));
        return s.key[i] >= limit && e >= s.settings.min_p ? mass_of(e) : 0;
    }
    __device__ __forceinline__ u64 listed_mass(int n, u32 limit) {
        u64 sum = 0;
        for (int i = threadIdx.x; i < n; i += THREADS) sum += mass_at(i, limit);
        sum = team::cta_sum<WARPS>(sum, s.sums[0]);
        __syncthreads();
        return sum;
    }

    // --- rows whose kept tokens are not all on the list: further readings of the row ---

    // Leaves in the task the key that kept tokens reach, and what they weigh: first for k, then for
    // top-p, by one piece of code.
    __device__ __forceinline__ static void find_thresholds() {
        auto& s = here<typename Row::Shared>();
        Task& task = s.task;
        Narrowing<Row> wide = {s, s.search};
#pragma unroll 1
        for (int turn = task.k ? 0 : 1; turn < 2; ++turn) {
            const bool masses = turn == 1;
            if (masses) note(task, task.bound, task.whole ? task.all : wide.total(task.bound));
            if (masses && !(task.top_p < 1.0f)) break;
            const u64 need = masses ? fraction(task.top_p, task.joint ? task.all : task.mass) : task.k;
            if (masses && need > task.mass) break;
            const u32 limit = wide.narrow(range(masses, need));
            note(task, limit, masses ? wide.total(limit) : 0);
        }
    }

    // Where a threshold lies: for a mass above those keys whose tokens together weigh too little.
    __device__ __forceinline__ static Search range(bool masses, u64 need) {
        auto row = Row::again();
        const Task& task = row.s.task;
        u32 from = task.bound;
        const f32 spare = f32(task.mass - need) / (MASS_UNIT * f32(row.blocks.V));
        if (masses) from = max(from, of(row).key_of_weight(0.999f * spare));
        return {from, row.top, from, row.top, need, masses};
    }

    __device__ __forceinline__ static void note(Task& task, u32 limit, u64 mass) {
        __syncthreads();
        if (threadIdx.x == 0) task.bound = limit, task.mass = mass;
        __syncthreads();
    }

    // A key at or below those of all tokens that weigh e or more.
    __device__ __forceinline__ u32 key_of_weight(f32 e) const {
        if (!(e > 1e-37f)) return key::NOTHING + 1;
        const f32 most = key::value(row.top);
        const f32 heat = row.greedy() ? 1.0f : s.settings.temperature;
        const f32 far = heat * logf(fminf(e / weight_unit(row.blocks.V), 1.0f));
        const f32 rounding = 1e-5f * (fabsf(most) - far) + 1.2e-7f * heat;  // weights near 1 round to it
        return max(key::NOTHING + 1, key::of(key::clean(most + far - rounding - 1e-30f)));
    }

    // The draw from the blocks' masses, then from the block's tokens at `limit` or above. `sums`: the
    // blocks' masses are those of the first reading, f32 sums relative to each block's maximum.
    __device__ __forceinline__ Drawn from_blocks(u64 mass, u32 limit, bool sums) const {
        u64 rest = row.random_below(mass);
        const int block = s.draw.which_block(rest, row.blocks.count);
        const Weigh own = sums ? Weigh(s.block_max[block], s.settings.temperature) : row.weigher();
        const KeptMass<decltype(row.logits)> value = {row.logits, own, limit, s.settings.min_p};
        double share = 0.0;
        if (sums) share = double(rest) / double(s.draw.block[block]);
        if (sums && row.blocks.rounds > 1) {
            u64 sum = 0;
            for (int round = 0; round < row.blocks.rounds; ++round)
                sum += s.draw.sum_of(row.blocks.first(block, round), value);
            rest = min(sum - 1, u64(share * double(sum))), share = 0.0;
        }
        for (int round = 0; round < row.blocks.rounds; ++round)
            rest -= s.draw.walk(row.blocks.first(block, round), rest, share, value);
        return {s.draw.token, limit, mass};
    }

    // --- which way ---

    __device__ __forceinline__ Drawn decide() {
        const bool filtered = k || s.settings.min_p > 0.0f, nucleus = top_p < 1.0f;
        u64 all = 0;
        if (!row.greedy() && (!filtered || (nucleus && joint))) all = row.row_mass(weigh);
        if (!filtered && !nucleus) {
            row.dismiss();
            return from_blocks(all, key::NOTHING + 1, true);
        }
        Edge edge;
        if (!filtered) edge = find_edge<Row>(all - fraction(top_p, all));
        const u32 bound = !edge.high ? lower_bound(filtered) : edge.tokens <= LIST / 8 * 7 ? edge.low : 0;
        if (bound && gathered(bound, filtered, all)) {
            row.dismiss();
            const int n = s.listed;
            if (n <= FEW) return Few<Row>{row, s, weigh, k, top_p, joint}.draw(n, all);
            hand_on({all, bound, k, n, top_p, joint, false, 0, 0, 0});
            finish_list<Finish>();
        } else {
            const u32 least = filtered ? key_of_weight(s.settings.min_p) : key::NOTHING + 1;
            hand_on({all, max(key::NOTHING + 1, least), k, 0, top_p, joint, !filtered, edge.low, edge.high,
                     0});
            if (!edge.high || !find_nucleus<Row>()) ::find_thresholds<Finish>();
            row.dismiss();
            draw_from_row<Finish>();
        }
        __syncthreads();
        return s.drawn;
    }

    __device__ __forceinline__ void hand_on(const Task& task) {
        if (threadIdx.x == 0) s.task = task;
        __syncthreads();
        __syncwarp();
    }

    // Goes on with a task that was handed on.
    template <class Work> __device__ __forceinline__ static void resume(Work work) {
        auto& s = here<typename Row::Shared>();
        Row row = Row::again();
        Finish ends = of(row);
        const Drawn drawn = work(ends, s.task);
        __syncthreads();
        if (threadIdx.x == 0) s.drawn = drawn;
    }
    __device__ __forceinline__ static Finish of(Row& row) {
        const Task& task = row.s.task;
        return {row, row.s, row.weigher(), task.k, task.top_p, task.joint != 0};
    }

    // A key that all kept tokens reach, or a guess if none is known; 0: too many would reach it.
    __device__ __forceinline__ u32 lower_bound(bool filtered) const {
        const int groups = row.blocks.count * 32;
        if (row.blocks.V <= LIST) return key::NOTHING + 1;
        u32 bound = filtered ? key_of_weight(s.settings.min_p) : key::NOTHING + 1;
        const i32 need = k ? k : filtered ? 0 : min(groups / 2, FEW);
        if (!maxima_tell(need, row.blocks)) {
            __syncthreads();  // what was just found of the row is known to all
            if (k && s.shape.scale > 0.0f) bound = max(bound, find_reached<Row>(k));
            return k && bound <= key::NOTHING + 1 ? 0 : bound;
        }
        if (need)
            bound = max(bound, select<THREADS>(s.bins, {row.least, row.top}, need, need + need / 4,
                                               [&](auto add) {
                for (int i = threadIdx.x; i < groups; i += THREADS) add(s.maxima[i], 1);
            }));
        return bound <= key::NOTHING + 1 ? 0 : bound;
    }

    // Whether all that is kept is on the list.
    __device__ __forceinline__ bool gathered(u32 bound, bool filtered, u64 all) {
        if (!row.gather(bound)) return false;
        if (filtered) return s.listed >= u32(k) || bound <= key_of_weight(s.settings.min_p);
        return listed_mass(s.listed, bound) >= fraction(top_p, all);
    }
};
