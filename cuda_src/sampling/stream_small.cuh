// A small k over a row that the registers of its cluster hold: one reading, two exchanges.
//
// Every warp takes tokens from all over the row, so that places where many are likely are shared out. At
// least k tokens reach the k-th largest of the warps' maxima, and not many more do: about 64 for a k of 50
// and 128 warps. Each CTA finds that bound by itself, from maxima that were sent to all, and puts what
// reaches it on the list of CTA 0. Both are stores that an mbarrier counts: no fence, and no barrier of the
// cluster but the first, which waits while the row is on its way.
#pragma once

#include "sampling/stream_few.cuh"

template <class T, int VEC, int THREADS, int CLUSTER, int MOST> struct SmallK {
    using Row = StreamRow<T, VEC, THREADS, CLUSTER, MOST>;
    using Piece = Vec<T, VEC>;
    static constexpr int WARPS = THREADS / 32, UNITS = CLUSTER * WARPS;
    static constexpr int PER = (MOST + UNITS - 1) / UNITS, COUNT = 32 * PER, PIECES = COUNT / VEC;
    static constexpr int STEP = UNITS * 32 * VEC;  // tokens from a lane's piece to its next
    static constexpr bool FITS = CLUSTER > 1 && PER <= 2 && UNITS <= SmallBoard::UNITS;
    static constexpr int LANES = 32 / CLUSTER;  // that share the comparisons of a warp's maximum

    Row& row;
    typename Row::Shared& s;
    SmallBoard& board;
    const u32 unit;  // this warp in the cluster
    const i32 first;   // this lane's first token
    Piece pieces[PIECES];  // its logits as they come
    f32 x[COUNT];
    f32 rest = -INF;   // and one of those that are left of whole pieces
    f32 best = -INF;

    __device__ __forceinline__ explicit SmallK(Row& row)
        : row(row), s(row.s), board(row.s.small), unit(row.rank * WARPS + threadIdx.x / 32),
          first((unit * 32 + warp::lane()) * VEC) {}

    __device__ __forceinline__ static int wanted(const Settings& settings) {
        return settings.greedy() ? 1 : settings.top_k;
    }
    // Whether the bound is likely to be good, and the whole row's mass does not count.
    __device__ __forceinline__ static bool suits(const Settings& settings, i32 V, bool joint) {
        const int k = wanted(settings);
        return k > 0 && k <= UNITS / 8 * 7 && k < V && V <= STEP * PIECES &&
               !(joint && settings.top_p < 1.0f);
    }

    // In all CTAs: whether the row ends this way. What was drawn, in CTA 0's first warp. `complete` finds
    // the settings that do not matter before the row has set out.
    template <class Complete>
    __device__ __forceinline__ bool ends(Settings& settings, Complete complete, Drawn& drawn) {
        fetch();
        complete();
        start(settings);
        unpack();
        const u32 most = largest();
        if (const u32 to = warp::lane(); to < CLUSTER)
            dsmem::store_async(dsmem::at(&board.most[unit], to), most, dsmem::at(&s.told[0], to));
        mbarrier::wait(&s.told[0], 0);
        const u32 bound = find_bound(wanted(settings));
        if (bound <= key::NOTHING) return false;
        send(key::value(bound));
        const bool greedy = row.greedy();
        const Few<Row> few = {row, s, row.weigher(), greedy ? 1 : settings.top_k,
                              greedy ? 1.0f : settings.top_p, false};
        mbarrier::wait(&s.told[1], 0);
        int n = 0;
        if (!receive(n)) return false;
        if (row.rank == 0) drawn = few.draw(n, 0);
        return true;
    }

    // --- the row ---

    __device__ __forceinline__ void fetch() {
        const i32 V = row.blocks.V;
        if (V >= STEP * (PIECES - 1)) fetch_pieces<PIECES - 1>();
        else fetch_pieces<0>();
    }
    // The first SURE pieces of every lane lie in the row.
    template <int SURE> __device__ __forceinline__ void fetch_pieces() {
        const i32 left = row.blocks.V - first;
        const T* from = row.logits.row + first;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) pieces[p].lane[j] = from_f32<T>(-INF);
            if (p < SURE || p * STEP + VEC <= left)
                pieces[p] = load<Cache::normal>(reinterpret_cast<const Piece*>(from + p * STEP));
        }
    }
    __device__ __forceinline__ void unpack() {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = to_f32(pieces[i / VEC].lane[i % VEC]);
        if (row.blocks.V % VEC) rest = row.logits.one(last());
        if (row.logits.mask) forbid();
    }
    // A token of those that no piece has; V where there is none for this lane.
    __device__ __forceinline__ u32 last() const {
        const u32 V = row.blocks.V, token = V / VEC * VEC + warp::lane();
        return unit == 0 && token < V ? token : V;
    }
    __device__ __forceinline__ void forbid() {
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            const u32 token = first + p * STEP;
            const u32 bits = token < row.logits.V ? row.logits.mask[token / 32] >> token % 32 : 0;
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if (!(bits >> j & 1)) x[p * VEC + j] = -INF;
        }
    }

    // While the row is on its way.
    __device__ __forceinline__ void start(const Settings& settings) const {
        if (threadIdx.x == 0) {
            mbarrier::init(&s.told[0], 1);
            mbarrier::init(&s.told[1], CLUSTER);
            mbarrier::fence_init();
            mbarrier::arrive_and_expect(&s.told[0], sizeof(u32) * UNITS);
            board.bound = 0xffffffff, board.top = board.found = board.nan = 0;
            row.settle(settings);
        }
        __syncthreads();
        cluster::arrive_only();
        if (row.rank == 0) row.roll(settings, 1);
        cluster::wait();  // nobody writes into a CTA that has not started
    }

    // The key of this warp's maximum. A NaN, which is none, is noted.
    __device__ __forceinline__ u32 largest() {
        best = folded([](f32 a, f32 b) { return ptx::max_or_nan(a, b); });
        if (__any_sync(0xffffffff, best != best)) {
            best = folded([](f32 a, f32 b) { return fmaxf(a, b); });
            if (warp::lane() == 0) atomicOr(&board.nan, 1u);
        }
        return __reduce_max_sync(0xffffffff, key::of(key::clean(best)));
    }
    template <class Fold> __device__ __forceinline__ f32 folded(Fold fold) const {
        f32 most[4] = {rest, x[0], x[1], x[2]};
#pragma unroll
        for (int i = 3; i < COUNT; ++i) most[i % 4] = fold(most[i % 4], x[i]);
        return fold(fold(most[0], most[1]), fold(most[2], most[3]));
    }

    // --- the exchanges ---

    // The k-th largest of all warps' maxima, found by comparing each with each.
    __device__ __forceinline__ u32 find_bound(int k) {
        const u32 mine = board.most[threadIdx.x / LANES];
        const uint4* all = reinterpret_cast<const uint4*>(board.most);
        u32 larger = 0;
#pragma unroll 8
        for (int j = threadIdx.x % LANES; j < UNITS / 4; j += LANES) {
            const uint4 m = all[j];
            larger += (m.x > mine) + (m.y > mine) + (m.z > mine) + (m.w > mine);
        }
#pragma unroll
        for (int i = 1; i < LANES; i *= 2) larger += __shfl_xor_sync(0xffffffff, larger, i);
        const u32 least = __reduce_min_sync(0xffffffff, larger < u32(k) ? mine : 0xffffffff);
        const u32 top = __reduce_max_sync(0xffffffff, mine);
        if (warp::lane() == 0) atomicMin(&board.bound, least), atomicMax(&board.top, top);
        __syncthreads();
        row.top = board.top;
        return board.bound;
    }

    // Sends what reaches the limit to CTA 0, and its number to all.
    __device__ __forceinline__ void send(f32 limit) {
        if (__any_sync(0xffffffff, best >= limit)) {
#pragma unroll
            for (int part = 0; part < COUNT; part += 32) list(&x[part], part, limit);
            if (rest >= limit) put(rest, last());
        }
        __syncthreads();
        if (const u32 to = threadIdx.x; to < CLUSTER) {
            const u32 listed = to ? 0 : min(board.found, u32(SmallBoard::ROOM));
            mbarrier::arrive_and_expect_remote(&s.told[1], to, (1 + listed) * sizeof(u64));
            dsmem::store_async(dsmem::at(&board.sent[row.rank], to), u64(board.nan) << 32 | board.found,
                               dsmem::at(&s.told[1], to));
        }
    }

    // Of 32 of this lane's logits.
    __device__ __forceinline__ void list(const f32* logits, int at, f32 limit) {
        u32 hits = 0;
#pragma unroll
        for (int i = 0; i < 32; ++i) hits |= (logits[i] >= limit ? 1u : 0u) << i;
        for (; hits; hits &= hits - 1) {
            const int i = __ffs(hits) - 1;
            put(chosen<16>(logits, i), first + (at + i) / VEC * STEP + i % VEC);
        }
    }

    // x[i] of registers, which have no index: by the bits of i.
    template <int HALF> __device__ __forceinline__ static f32 chosen(const f32* x, int i) {
        f32 half[HALF];
#pragma unroll
        for (int j = 0; j < HALF; ++j) half[j] = i & HALF ? x[j + HALF] : x[j];
        if constexpr (HALF == 1) return half[0];
        else return chosen<HALF / 2>(half, i);
    }

    __device__ __forceinline__ void put(f32 x, u32 token) {
        const u32 at = atomicAdd(&board.found, 1u);
        if (at < SmallBoard::ROOM)
            dsmem::store_async(dsmem::at(&board.list[row.rank][at], 0),
                               u64(key::of(key::clean(x))) << 32 | token, dsmem::at(&s.told[1], 0));
    }

    // Whether CTA 0 was sent all that may be kept; there the list, and how long it is.
    __device__ __forceinline__ bool receive(int& n) const {
        bool whole = true, nan = false;
        int from = 0, at = threadIdx.x;  // where this thread's token is
#pragma unroll
        for (int r = 0; r < CLUSTER; ++r) {
            const uint2 sent = board.sent[r];
            if (int(threadIdx.x) >= n) from = r, at = int(threadIdx.x) - n;
            n += sent.x, whole &= sent.x <= SmallBoard::ROOM, nan |= sent.y != 0;
        }
        if (!whole || n > FEW) return false;
        if (row.rank == 0 && int(threadIdx.x) < n) {
            const uint2 pair = board.list[from][at];
            s.token[threadIdx.x] = pair.x, s.key[threadIdx.x] = pair.y;
        }
        if (threadIdx.x == 0) s.nan = nan;
        return true;
    }
};
