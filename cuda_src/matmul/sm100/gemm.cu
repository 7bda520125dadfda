// The library's Blackwell matmul: kernel 8 of the ladder for every type, layout, tile and epilogue.
//
// C[M, N] = act(alpha A[M, K] B[N, K]^T ...). Clusters steal the tiles of those that have not started,
// Tensor Memory holds a ring of sums, so that the tensor core multiplies the next tile under this one's
// write-out (k8_clc.cu says who waits for whom). Beyond it:
//
//   types      f16, bf16, tf32, 8-bit floats; mxfp8 and nvfp4, whose factors of blocks travel with the
//              stage and are copied to TMEM in front of its MMAs. They come packed (pack_scales.cu).
//   CTAS       2: pairs of CTAs, MMAs of 256 rows. 1: MMAs of 128 rows, where there is too little for
//              pairs.
//   CLUSTER    CTAs along M, of which each loads a part of B's tile for all.
//   BN         16 to 256 columns, 192 and 224 among them, which often fill the SMs best.
//   transpose  for few rows of C (or where TMA cannot write C) the host swaps A and B: weights on the
//              tensor core's 128 rows, tokens on BN. C then leaves column-major by plain stores.
//   slices     of K where there are too few tiles: each gives sums of its own, [batch, slices, M, N] in
//              f32; epilogue.cu adds them up, always in the same order.
//
// A and B may run along K or, 16-bit types, along M / N.
//
// State: emulator-verified, not hardware-verified.
//
// K, M, N > 0; K counts what tensor maps do, two elements of 4 bits as one. Every slice has at least one
// block of 128 bytes. Grid: tiles of M rounded up to CLUSTER, times tiles of N, matrices and slices; 224
// threads.
#include "matmul/sm100/cta.cuh"
#include "matmul/sm100/write_out.cuh"

// Who shares this CTA's part of B: all CTAs of its parity; one box of K-major rows, or slabs.
template <class G>
__device__ __forceinline__ void load_b(const Shared<G>& shared, const Maps& maps, u32 stage, i32 k,
                                       const Part& part) {
    constexpr bool SHARED = G::GROUPS > 1;
    constexpr u16 PARITY = (G::CTAS == 1 ? 0xFFFF : 0x5555) & ((1 << G::CLUSTER) - 1);
    const u32 rank = cluster::rank(), half = rank % G::CTAS, mine = rank / G::CTAS;
    const i32 n = part.n + half * G::B_ROWS;
    Barrier* full = &shared.full[stage];
    if constexpr (G::B == Major::k) {
        const u32 row = mine * (G::B_ROWS / G::GROUPS);
        tma::load_group<G::CTAS, SHARED>(shared.b(stage) + row * ROW, maps.b, full, PARITY << half, k,
                                         n + row, part.matrix);
    } else {
        constexpr int SLABS = G::B_BYTES / SLAB / G::GROUPS;
#pragma unroll
        for (int i = 0; i < SLABS; i++) {
            const u32 slab = mine * SLABS + i;
            tma::load_group<G::CTAS, SHARED>(shared.b(stage) + slab * SLAB, maps.b, full,
                                             PARITY << half, n + slab * 64, k, part.matrix);
        }
    }
}

template <class G>
__device__ __forceinline__ void load_a(const Shared<G>& shared, const Maps& maps, u32 stage, i32 k,
                                       const Part& part) {
    Barrier* full = &shared.full[stage];
    if constexpr (G::A == Major::k) {
        tma::load_group<G::CTAS, false>(shared.a(stage), maps.a, full, 0, k, part.m, part.matrix);
    } else {
#pragma unroll
        for (int slab = 0; slab < G::BM / 64; slab++)
            tma::load_group<G::CTAS, false>(shared.a(stage) + slab * SLAB, maps.a, full, 0,
                                            part.m + slab * 64, k, part.matrix);
    }
}

// Factors of this CTA's rows, and of all columns of the tile: [tile][block of K] in the packed arrays.
template <class G>
__device__ __forceinline__ void load_factors(const Shared<G>& shared, const Maps& maps, u32 stage,
                                             i32 k_block, i32 k_blocks, const Part& part) {
    Barrier* full = &shared.full[stage];
    const i32 a = part.m / G::BM * k_blocks + k_block, b = part.n / G::BN * k_blocks + k_block;
    tma::load_group<G::CTAS, false>(shared.factors_a(stage), maps.scale_a, full, 0, 0,
                                    a * G::K_CHUNKS, 0);
    tma::load_group<G::CTAS, false>(shared.factors_b(stage), maps.scale_b, full, 0, 0,
                                    b * G::K_CHUNKS * G::B_CHUNKS, 0);
}

// One thread of a CTA fills its ring, and its part of its neighbours'.
template <class G>
__device__ __forceinline__ void fetch(const Shared<G>& shared, const Maps& maps, i32 k_blocks,
                                      const Part& part, Cursor<G::STAGES>& ring) {
    const bool leader = G::CTAS == 1 || cluster::rank() % 2 == 0;
    for (i32 k = part.k_first; k < part.k_last; k++, ring.next()) {
        mbarrier::wait(&shared.empty[ring.at], ring.round ^ 1);
        if (leader)
            mbarrier::arrive_and_expect(&shared.full[ring.at],
                                        G::CTAS * (G::STAGE_BYTES + G::SCALE_BYTES));
        load_a(shared, maps, ring.at, k * G::BK, part);
        load_b(shared, maps, ring.at, k * G::BK, part);
        if constexpr (G::SCALED) load_factors(shared, maps, ring.at, k, k_blocks, part);
    }
}

// Descriptor of 32 bytes of K, the i-th of a stage, of an operand.
template <Major MAJOR> __device__ __forceinline__ u64 operand(const u8* tile, int i) {
    constexpr u32 STEP = MAJOR == Major::k ? 32 : 16 * ROW;
    return tcgen05::advance(
        tcgen05::descriptor(mbarrier::address(tile), MAJOR == Major::k ? 16 : SLAB, 1024,
                            tcgen05::Swizzle::b128), i * STEP);
}

// A stage's factors to TMEM at `to`: A's columns, then B's. MMAs that still read the cells' old
// contents come first in the tensor core's pipe: the ISA does not list the pair, public kernels with
// factors of blocks rely on it, and so does this one.
template <class G>
__device__ __forceinline__ void copy_factors(const Shared<G>& shared, u32 stage, u32 to) {
#pragma unroll
    for (int i = 0; i < G::K_CHUNKS * (1 + G::B_CHUNKS); i++)
        tcgen05::copy_scales<G::CTAS>(to + i * tcgen05::SCALE_COLUMNS,
                                      shared.factors_a(stage) + i * tcgen05::SCALE_CHUNK);
}

// The i-th 32 bytes of K of a stage.
template <class G>
__device__ __forceinline__ void multiply_step(const Shared<G>& shared, u32 stage, int i, u32 sum,
                                              u32 factors, bool add) {
    const u64 a = operand<G::A>(shared.a(stage), i), b = operand<G::B>(shared.b(stage), i);
    if constexpr (!G::SCALED) {
        tcgen05::multiply<G::KIND, G::CTAS>(sum, a, b, G::SHAPE, add);
    } else {  // four steps share the cells of a chunk, or each has a chunk
        constexpr bool SHARED = G::K_CHUNKS == 1;
        const int chunk = SHARED ? 0 : i;
        const u32 at_a = factors + chunk * tcgen05::SCALE_COLUMNS;
        const u32 at_b = factors + (G::K_CHUNKS + chunk * G::B_CHUNKS) * tcgen05::SCALE_COLUMNS;
        tcgen05::multiply_scaled<G::KIND, G::CTAS>(
            sum, a, b, tcgen05::with_scales_at(G::SHAPE, SHARED ? i : 0), at_a, at_b, add);
    }
}

// One arrival at the barrier of that offset in those CTAs, when the MMAs so far are over.
template <class G> __device__ __forceinline__ void commit(Barrier* barrier, u16 mask) {
    if constexpr (G::CLUSTER == 1) tcgen05::commit<1>(barrier);
    else tcgen05::commit_multicast<G::CTAS>(barrier, mask);
}

// One thread of a group multiplies, and says so to those who load or write out.
template <class G>
__device__ __forceinline__ void multiply(const Shared<G>& shared, u32 tmem, const Part& part,
                                         Cursor<G::STAGES>& ring, Cursor<G::SUMS>& sums) {
    const u32 sum = tmem + sums.at * G::STRIDE, factors = tmem + tcgen05::COLUMNS - G::SCALE_COLUMNS;
    mbarrier::wait(&shared.taken[sums.at], sums.round ^ 1);
    for (i32 k = part.k_first; k < part.k_last; k++, ring.next()) {
        mbarrier::wait(&shared.full[ring.at], ring.round);
        tcgen05::fence_after();
        if constexpr (G::SCALED) copy_factors(shared, ring.at, factors);
#pragma unroll
        for (int i = 0; i < 4; i++)
            multiply_step(shared, ring.at, i, sum, factors, k > part.k_first || i > 0);
        commit<G>(&shared.empty[ring.at], (1 << G::CLUSTER) - 1);
    }
    commit<G>(&shared.ready[sums.at], ((1 << G::CTAS) - 1) << cluster::rank());
    sums.next();
}

template <class G>
__device__ __forceinline__ void write_out(const Shared<G>& shared, u32 tmem, const Maps& maps,
                                          const Result<G>& result, const Part& part,
                                          Cursor<G::SUMS>& sums, u32& turn) {
    const u32 from = tmem + sums.at * G::STRIDE;
    mbarrier::wait(&shared.ready[sums.at], sums.round);
    tcgen05::fence_after();
    if constexpr (G::STORE == Store::rows)
        write_rows(shared, sums, from, turn, maps, result, part);
    else write_columns(shared, sums, from, result, part);
    sums.next();
}

// One thread of the cluster's first CTA asks for tiles until there are none.
template <class G> __device__ __forceinline__ void schedule(const Shared<G>& shared) {
    i32 block;
    u32 i = 0;
    do {
        mbarrier::wait(shared.begun, i & 1);
        mbarrier::wait(&shared.heard[i % ANSWERS], i / ANSWERS & 1 ^ 1);
        for (u32 rank = 0; rank < G::CLUSTER; rank++)
            mbarrier::arrive_and_expect_remote(&shared.told[i % ANSWERS], rank, sizeof(clc::Answer));
        clc::ask(&shared.answers[i % ANSWERS], &shared.told[i % ANSWERS]);
    } while (shared.hear(i++, block));
}

// The tiles of this cluster: calls `role(part)` for each. A role is a thread, or warps as a whole
// (WARPS), each of which is heard once.
template <class G, bool WARPS, class Role>
__device__ __forceinline__ void for_each_tile(const Shared<G>& shared, const Work<G>& work, Role role) {
    i32 block = blockIdx.x;
    for (u32 i = 0;; i++) {
        role(part(work, block));
        if (!shared.hear(i, block)) return;
        if (WARPS) __syncwarp();
        if (!WARPS || warp::lane() == 0) mbarrier::arrive_remote(&shared.heard[i % ANSWERS], 0);
    }
}

template <class G>
__device__ __forceinline__ void load(const Shared<G>& shared, const Maps& maps, const Work<G>& work) {
    Cursor<G::STAGES> ring;
    for_each_tile<G, false>(shared, work, [&](const Part& part) {
        if (cluster::rank() == 0) mbarrier::arrive(shared.begun);
        fetch(shared, maps, work.blocks, part, ring);
    });
    // A CTA that is gone could not be told that a stage is empty: stay until all are.
    for (int i = 0; i < G::STAGES; i++, ring.next())
        mbarrier::wait(&shared.empty[ring.at], ring.round ^ 1);
}

template <class G>
__device__ __forceinline__ void run(const Shared<G>& shared, int role, u32 tmem, const Maps& maps,
                                    const Work<G>& work, const Result<G>& result) {
    if (role == SCHEDULER) {
        if (cluster::rank() == 0 && warp::elect()) schedule(shared);
    } else if (role == LOADER) {
        if (warp::elect()) load(shared, maps, work);
    } else if (role == MULTIPLIER) {
        if (cluster::rank() % G::CTAS == 0 && warp::elect()) {
            Cursor<G::STAGES> ring;
            Cursor<G::SUMS> sums;
            for_each_tile<G, false>(shared, work, [&](const Part& part) {
                multiply(shared, tmem, part, ring, sums);
            });
        }
    } else {
        Cursor<G::SUMS> sums;
        u32 turn = 0;
        for_each_tile<G, true>(shared, work, [&](const Part& part) {
            write_out(shared, tmem, maps, result, part, sums, turn);
        });
        if (G::STORE == Store::rows && threadIdx.x == 0) tma::wait_all();
    }
}

template <Format F, class OUT, int BN, int STAGES, int CTAS, int CLUSTER, Major A, Major B, Store STORE,
          Act ACT, bool EXTRAS>
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(224, 1)
gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
     const __grid_constant__ TensorMap map_c, const __grid_constant__ TensorMap map_scale_a,
     const __grid_constant__ TensorMap map_scale_b, OUT* C, i64 c_column, i64 c_batch, i32 M, i32 N,
     i32 K, i32 batch, i32 slices, i32 depth, i32 group, f32 alpha, const OUT* bias, i64 bias_m,
     i64 bias_n, const OUT* residual, i64 residual_m, i64 residual_n, i64 residual_batch,
     const f32* scale_m, const f32* scale_n, i32 scale_m_step, i32 scale_n_step) {
    using G = Gemm<F, OUT, BN, STAGES, CTAS, CLUSTER, A, B, STORE, ACT, EXTRAS>;
    extern __shared__ __align__(1024) u8 memory[];
    const Shared<G> shared(memory);
    const int role = warp::index();
    if (role == MULTIPLIER) {
        tcgen05::alloc<CTAS>(shared.tmem, tcgen05::COLUMNS);
        tcgen05::relinquish<CTAS>();
    }
    const Maps maps{map_a, map_b, map_c, map_scale_a, map_scale_b};
    if (threadIdx.x == 0) set_up(shared, maps);
    cluster::sync();  // the neighbours' barriers and TMEM are ready too
    const u32 tmem = *shared.tmem;

    const Result<G> result{C, c_column, c_batch, M, N, alpha,
                           {bias, bias_m, bias_n, residual, residual_m, residual_n, residual_batch,
                            scale_m, scale_n, scale_m_step, scale_n_step}};
    run(shared, role, tmem, maps, Work<G>(M, N, K, batch, slices, depth, group), result);
    __syncwarp();

    tcgen05::fence_before();
    cluster::sync();  // all have read their sums
    if (role == MULTIPLIER) tcgen05::dealloc<CTAS>(tmem, tcgen05::COLUMNS);
}
