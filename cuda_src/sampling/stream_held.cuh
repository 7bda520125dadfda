// The nucleus of a whole row that the shared memory of its cluster holds: one reading, three exchanges.
//
// The CTAs tell each other their blocks' maxima and sums, so that all know the row's mass; then how one
// token of eight is spread over parts of equal width, which tells about where the nucleus ends; then the
// tokens around there, and what their blocks weigh above them. Each CTA finds the threshold among these by
// itself, and the one whose block is drawn from draws the token. Exchanges are stores that an mbarrier
// counts. Where too many tokens lie around the threshold, or chance put it elsewhere, the row goes the way
// of longer ones.
//
// The code is short, and what can be is a loop: a row of 32000 tokens takes less time than as many
// instructions as it has need to come from memory.
#pragma once

#include "sampling/stream_finish.cuh"
#include "sampling/stream_held_list.cuh"

// A CTA's blocks of the row, one after the other.
template <class T> struct HeldLogits {
    const T* held;
    u32 first;  // the token that comes first

    __device__ __forceinline__ f32 one(u32 token) const { return to_f32(held[token - first]); }
};

template <class T, int VEC, int THREADS, int CLUSTER, int MOST> struct HeldNucleus {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    using Board = HeldBoard<THREADS, MOST>;
    using Piece = Vec<T, VEC>;
    static constexpr int WARPS = THREADS / 32, LANES = THREADS / CLUSTER, PIECES = 32 / VEC;
    static constexpr int ROOM = Board::LISTED / CLUSTER;  // tokens that a CTA may list
    static constexpr int WORDS = Board::PARTS / 4;

    Row& row;
    typename Row::Shared& s;
    Board& board;
    Piece pieces[PIECES];  // this warp's block as it comes
    u64 need = 0;
    f32 dropped = 0.0f, span = 0.0f;  // weight below the threshold; from the maximum down, over T

    __device__ __forceinline__ explicit HeldNucleus(Row& row)
        : row(row), s(row.s), board(*reinterpret_cast<Board*>(&s + 1)) {}

    __device__ __forceinline__ static bool suits(const Settings& settings, bool filtered,
                                                 const Row& row) {
        return !settings.greedy() && !filtered && settings.top_p < 1.0f && row.blocks.rounds == 1 &&
               row.share() <= WARPS;
    }

    // In all CTAs: whether the row ends this way. What was drawn, in the CTA that drew it; elsewhere nothing.
    __device__ __forceinline__ bool ends(const Settings& settings, Drawn& drawn) {
        fetch();
        start(settings);
        if (mine()) survey();
        __syncthreads();
        mbarrier::wait(&board.told[0], 0);
        if (!know_row()) return false;
        count_samples();
        mbarrier::wait(&board.told[1], 0);
        if (threadIdx.x < 32) find_range();
        __syncthreads();
        list();
        __syncthreads();
        send_list();
        mbarrier::wait(&board.told[2], 0);
        const HeldThreshold<THREADS, CLUSTER, MOST> threshold = {board, row.weigher(), need};
        if (!threshold.found()) return false;
        if (threadIdx.x == 0) s.nan = threshold.nan_seen();
        draw(board.limit, drawn);
        return true;
    }

    // --- the row ---

    __device__ __forceinline__ bool mine() const { return row.first() < row.last(); }
    __device__ __forceinline__ int first_block() const { return int(row.rank) * row.share(); }
    __device__ __forceinline__ HeldLogits<T> held() const {
        return {s.stage[0], row.blocks.first(first_block(), 0)};
    }
    __device__ __forceinline__ int tokens() const {
        return max(0, row.last() - first_block()) * ROUND;
    }

    __device__ __forceinline__ void fetch() {
        const u32 base = row.blocks.first(row.first(), 0);
        const i32 left = mine() ? row.blocks.V - i32(base) : 0;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const i32 at = Logits<T, VEC>::at(warp::lane(), p * VEC);
#pragma unroll
            for (int j = 0; j < VEC; ++j) pieces[p].lane[j] = from_f32<T>(-INF);
            if (at + VEC <= left)
                pieces[p] = load<Cache::normal>(
                    reinterpret_cast<const Piece*>(row.logits.row + base + at));
        }
    }

    // While the row is on its way.
    __device__ __forceinline__ void start(const Settings& settings) const {
        if (threadIdx.x == 0) {
            mbarrier::init(&board.told[0], 1);
            mbarrier::init(&board.told[1], 1);
            mbarrier::init(&board.told[2], CLUSTER);
            mbarrier::fence_init();
            mbarrier::arrive_and_expect(&board.told[0], sizeof(u64) * row.blocks.count);
            board.found = board.grouped = board.nan = board.limit = 0, board.all_above = 0;
            row.settle(settings);
        }
        if (threadIdx.x < WARPS) board.block[threadIdx.x] = 0;
        for (int i = threadIdx.x; i < Board::PARTS; i += THREADS) board.count[i] = 0;
        board.bins.clear();
        cluster::arrive_only();
        row.roll(settings, 1);
        cluster::wait();  // nobody writes into a CTA that has not started
    }

    // Leaves this warp's block in shared memory, and tells all CTAs its maximum and its sum.
    __device__ __forceinline__ void survey() const {
        const int block = row.first();
        f32 x[32];
        hold(x, row.blocks.first(block, 0));
        f32 most = -INF, sum = 0.0f;
        Row::add_up(x, most_of(x), Weigh(0.0f, s.settings.temperature), most, sum);
        sum = Row::added(sum);
        const u64 pair = u64(__float_as_uint(key::clean(most))) << 32 | __float_as_uint(sum);
        if (const u32 to = warp::lane(); to < CLUSTER)
            dsmem::store_async(dsmem::at(&board.pair[block], to), pair, dsmem::at(&board.told[0], to));
    }

    __device__ __forceinline__ void hold(f32 (&x)[32], u32 base) const {
        const Stage<T, VEC> stage = {s.stage[warp::index()], nullptr};
#pragma unroll
        for (int i = 0; i < 32; ++i) x[i] = to_f32(pieces[i / VEC].lane[i % VEC]);
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
            *reinterpret_cast<Piece*>(stage.to + Logits<T, VEC>::at(warp::lane(), p * VEC)) = pieces[p];
        if (row.blocks.V % VEC == 0 && !row.logits.mask) return;
        const u32 token = row.blocks.V / VEC * VEC + warp::lane();
        if (token < row.blocks.V && token - base < ROUND) stage.to[token - base] = row.logits.row[token];
        if (row.logits.mask) __syncwarp(), stage.forbid(row.logits, base);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 32; ++i) x[i] = to_f32(stage.to[Logits<T, VEC>::at(warp::lane(), i)]);
    }

    // Of this lane. A NaN, which is none, is noted.
    __device__ __forceinline__ f32 most_of(const f32 (&x)[32]) const {
        f32 most[4] = {x[0], x[1], x[2], x[3]};
#pragma unroll
        for (int i = 4; i < 32; ++i) most[i % 4] = ptx::max_or_nan(most[i % 4], x[i]);
        const f32 best = ptx::max_or_nan(ptx::max_or_nan(most[0], most[1]),
                                         ptx::max_or_nan(most[2], most[3]));
        if (!__any_sync(0xffffffff, best != best)) return best;
        if (warp::lane() == 0) atomicOr(&board.nan, 1u);
        return largest(x);
    }

    // By every warp: the row's maximum, its mass, and what of it is dropped. False: not a row for this way.
    __device__ __forceinline__ bool know_row() {
        f32 most = -INF;
        for (int b = warp::lane(); b < row.blocks.count; b += 32)
            most = fmaxf(most, __uint_as_float(u32(board.pair[b] >> 32)));
        most = warp_largest(most);
        row.top = key::of(most);
        if (row.top <= key::NOTHING || row.greedy()) return false;
        const Weigh weigh = row.weigher();
        u64 all = 0;
        for (int b = warp::lane(); b < row.blocks.count; b += 32) {
            const u64 pair = board.pair[b];
            all += Row::mass_of_sum(__uint_as_float(u32(pair >> 32)), __uint_as_float(u32(pair)), weigh);
        }
        all = team::warp_sum(all);
        need = fraction(s.settings.top_p, all);
        dropped = f32(all - need) / MASS_UNIT;
        // Tokens that weigh less than this share of it are less than a twentieth of it together.
        const f32 least = 0.05f * dropped / f32(row.blocks.V);
        span = -__logf(least);
        return least > 1e-30f;
    }

    // --- about where the nucleus ends ---

    __device__ __forceinline__ f32 width() const {  // of a part
        return span * s.settings.temperature / Board::PARTS;
    }
    __device__ __forceinline__ f32 from() const { return key::value(row.top) - Board::PARTS * width(); }

    __device__ __forceinline__ void count_samples() const {
        const T* x = s.stage[0];
        const f32 origin = from(), scale = 1.0f / width();
        if (threadIdx.x == 0)
            mbarrier::arrive_and_expect(&board.told[1], sizeof(u64) * WORDS * CLUSTER);
        for (int i = threadIdx.x; i < tokens() / 8; i += THREADS) {
            const f32 place = (to_f32(x[8 * i + i / 4 % 8]) - origin) * scale;
            if (place >= 0.0f) atomicAdd(&board.count[min(int(place), Board::PARTS - 1)], 1u);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < WORDS * CLUSTER; i += THREADS) {
            const u32 to = i / WORDS, word = i % WORDS;
            const uint4 n = reinterpret_cast<const uint4*>(board.count)[word];
            dsmem::store_async(dsmem::at(&board.parts[row.rank][word], to),
                               u64(n.z | n.w << 16) << 32 | (n.x | n.y << 16),
                               dsmem::at(&board.told[1], to));
        }
    }

    // Eight neighbouring parts of the whole row, in each lane of a warp.
    __device__ __forceinline__ void read_parts(f32 (&n)[8]) const {
        uint4 sum = {};
#pragma unroll
        for (int r = 0; r < CLUSTER; ++r) {
            const uint4 more = reinterpret_cast<const uint4*>(board.parts[r])[warp::lane()];
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        const u32 pairs[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) n[i] = f32(pairs[i / 2] >> 16 * (i % 2) & 0xffff);
    }

    // By one warp: between which keys the nucleus ends.
    __device__ __forceinline__ void find_range() const {
        f32 n[8];
        read_parts(n);
        const SampledRange range = SampledRange::of(n, dropped / 8.0f, span / Board::PARTS);
        if (warp::lane()) return;
        board.low = max(key::NOTHING + 1, key_at(fmaxf(range.low, 0.0f)));
        board.high = range.high < 0.0f ? row.top : max(board.low, min(row.top, key_at(range.high)));
    }
    __device__ __forceinline__ u32 key_at(f32 part) const {
        return key::of(key::clean(from() + width() * part));
    }

    // --- what lies there ---

    // This CTA's tokens of the range, and the mass of its blocks above.
    __device__ __forceinline__ void list() const {
        const T* x = s.stage[0];
        const Weigh weigh = row.weigher();
        const f32 least = key::least(board.low), most = key::most(board.high);
        const int end = tokens();
        u64 total = 0;
#pragma unroll 1
        for (int i = threadIdx.x * 4; i < end; i += THREADS * 4) {
            const Vec<T, 4> run = *reinterpret_cast<const Vec<T, 4>*>(x + i);
            Mass sum;
            u32 bits = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const f32 logit = to_f32(run.lane[j]);
                const bool above = logit > most;
                bits |= !above && logit >= least ? 1u << j : 0u;
                const f32 e = weigh.near(logit);
                sum.add(Mass::of(above ? e : 0.0f));
            }
            for (; bits; bits &= bits - 1) put(x, i + __ffs(bits) - 1);
            const Mass all = {__reduce_add_sync(0xffffffff, sum.high),
                              __reduce_add_sync(0xffffffff, sum.low)};
            if (warp::lane() == 0) Board::add_up(board.block[i / ROUND], all.total());
            total += all.total();
        }
        if (warp::lane() == 0 && total) Board::add_up(board.all_above, total);
    }
    __device__ __forceinline__ void put(const T* x, int i) const {
        const u32 at = atomicAdd(&board.found, 1u);
        if (at < ROOM) board.own[at] = {held().first + i, key::of(key::clean(to_f32(x[i])))};
    }

    // To all CTAs. Each destination has as many threads.
    __device__ __forceinline__ void send_list() const {
        const u32 to = threadIdx.x / LANES, lane = threadIdx.x % LANES;
        const u32 n = min(board.found, u32(ROOM)), blocks = tokens() / ROUND;
        const u32 told = dsmem::at(&board.told[2], to);
        if (lane == 0) {
            mbarrier::arrive_and_expect_remote(&board.told[2], to, (2 + n + blocks) * sizeof(u64));
            dsmem::store_async(dsmem::at(&board.sent[row.rank], to),
                               u64(board.nan) << 32 | board.found, told);
            dsmem::store_async(dsmem::at(&board.above[row.rank], to), board.all_above, told);
        }
        for (u32 i = lane; i < blocks; i += LANES)
            dsmem::store_async(dsmem::at(&board.draw.block[first_block() + i], to), board.block[i], told);
        for (u32 i = lane; i < n; i += LANES)
            dsmem::store_async(dsmem::at(&board.list[row.rank * ROOM + i], to),
                               u64(board.own[i].y) << 32 | board.own[i].x, told);
    }

    // --- the token ---

    __device__ __forceinline__ void draw(u32 limit, Drawn& drawn) {
        u64 mass = 0;
        for (int b = warp::lane(); b < row.blocks.count; b += 32) mass += board.draw.block[b];
        mass = team::warp_sum(mass);
        u64 rest = row.random_below(mass);
        const int block = board.draw.which_block(rest, row.blocks.count);
        if (block / row.share() != int(row.rank)) return;
        const KeptMass<HeldLogits<T>> value = {held(), row.weigher(), limit, 0.0f};
        board.draw.walk(row.blocks.first(block, 0), rest, 0.0, value);
        drawn = {board.draw.token, limit, mass};
    }
};
