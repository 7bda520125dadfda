// Attention kernel 4, Blackwell: a warp or warpgroup for each of the five things that have to be done.
//
// Tensor Memory takes the sums, and the weights on their way to the second product, out of the registers:
// so the softmax needs a warpgroup per tile, but products and rescaling need not be its business. A CTA
// has two tiles of 128 queries:
//   loader         a warp. Takes jobs, brings queries, and keys and values alternately (load.cuh)
//   multiplier     a warp. Starts S = Q K^T and O += P V of both tiles in turns (multiply.cuh)
//   softmax 0, 1   a warpgroup each, a thread a row. S from Tensor Memory, P back (weigh.cuh)
//   correction     a warpgroup. Rescales O where a maximum has grown; at the end divides by the sums and
//                  sends the output off in pieces by TMA (correct.cuh)
// While the softmax of one tile runs, the tensor core works for the other; which barrier says what to whom
// is in shared.cuh. No role waits for the end of a job: products of the next one start behind those of
// this one, while its output leaves. Jobs are taken longest first, by cluster launch control.
//
// Rescaling is lazy (row_softmax.cuh): only where a weight would pass 2^SLACK. POLY of 8 pairs of
// exponentials go to the FMA pipe.
//
// Napkin (d 128, N 128), clk per tile and block: products 2 x 2 x 128^3 FLOP / 8192 = 1024; 16384 ex2 at
// 16 a clk also 1024: without polynomials two limits would meet, with POLY 2 768 are left. Instructions
// of a warp, one a clk for each of four schedulers: scale 64 (f32x2), maximum 63 (of three), sums 68
// (f32x2), rounding 64, ex2 96, polynomials 16 pairs x 11, rows in and out 8: 540. What it costs to go
// through Tensor Memory is not published, and not counted.
//   tensor core      d / 16 + N / 16 = 16 instructions of 128 x 128 x 16 per tile and block
//   registers        2 x 128 x 192 + 128 x 80 + 128 x 48 = 65536, all that an SM has
//   shared memory    queries 2 x 32 KB, 4 blocks of 32 KB, pieces 16 KB: 208 KB
//   Tensor Memory    2 x 128 columns of scores, 2 x 128 of sums: 512, all of it. Per tile and block 64 KB
//                    of scores are read and 32 KB of weights written; O, 64 KB, only at the end
//   from L2          64 KB a block of keys, for 2048 clk of products: 32 bytes a clk
//
// Limits: the next job's products wait until both tiles of this one are done with theirs. A head has at
// most 192 columns of q and 128 of v.
//
// State: emulator-verified, not hardware-verified.
//
// Any lengths; rows start at multiples of 16 bytes. Grid: a CTA for each tile of 256 rows; 512 threads.
#include "attention/sm100/correct.cuh"
#include "attention/sm100/load.cuh"
#include "attention/sm100/multiply.cuh"
#include "attention/sm100/weigh.cuh"

using namespace attention;

constexpr int CORRECTION = 2, OTHERS = 3;     // warpgroups; those before do a softmax
constexpr int MULTIPLIER = 12, LOADER = 13;   // warps

// By all: barriers, and all of Tensor Memory.
template <class S>
__device__ __forceinline__ Columns<S> set_up(const Roles<S>& shared, const Maps& maps) {
    if (warp::index() == MULTIPLIER) {
        tcgen05::alloc<1>(shared.tmem(), tcgen05::COLUMNS);
        tcgen05::relinquish<1>();
    }
    if (threadIdx.x == 0) {
        tma::prefetch(maps.q), tma::prefetch(maps.k), tma::prefetch(maps.v);
        tma::prefetch(maps.out);
        shared.init();
    }
    tcgen05::fence_before();
    __syncthreads();
    tcgen05::fence_after();
    return {*shared.tmem()};
}

template <class T, int D, int DV, int N, int STAGES, Mask MASK, Keys KEYS, u32 TERMS, int SLACK,
          int POLY>
__global__ void __cluster_dims__(1, 1, 1) __launch_bounds__(512, 1)
k4_roles(const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
         const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_out, f32* lse,
         i64 lse_token, i64 lse_head, i64 lse_batch, i32 queries, i32 keys, i32 m_tiles, i32 heads,
         i32 batch, i32 section, i32 group, i32 share, f32 scale, i32 top_left, i32 left, i32 right,
         i32 chunk, const f32* sinks, f32 softcap, const f32* slopes, i64 slopes_batch, const T* bias,
         i64 bias_batch, i64 bias_head, i64 bias_query, i64 bias_key, const T* relative,
         i64 relative_batch, i64 relative_query, i64 relative_head, i32 extent,
         const u32* q_offsets, const u32* q_lengths, const u32* k_offsets, const u32* k_lengths,
         const u32* table, i32 table_batch, i32 page, i32 page_box) {
    using S = TensorShape<T, D, DV, N, 2, STAGES>;
    using Job = Work<S, MASK, KEYS>;
    extern __shared__ __align__(1024) u8 memory[];
    const Roles<S> shared{memory};
    const Call call{{queries, keys, q_offsets, q_lengths, k_offsets, k_lengths},
                    {m_tiles, heads, batch, section, nullptr},
                    __ffs(group) - 1, share, top_left, left, right, chunk,
                    {table, page, page_box}, table_batch};
    const Maps maps{map_q, map_k, map_v, map_out};
    const f32 c = TERMS ? LOG2E : scale * LOG2E;

    const Columns<S> columns = set_up(shared, maps);

    const auto for_each_job = [&](auto&& role) {
        shared.ticket().for_each([&](const Tile& tile) { role.run(Job(call, tile, 0)); });
    };
    if (warp::group() == OTHERS) {
        warp::give_registers<48>();
        if (warp::index() == LOADER) {
            Loader<S, MASK, KEYS> loader{shared, maps, call};
            lead(shared, call.schedule, [&](const Tile& tile) { loader.run(Job(call, tile, 0)); });
            loader.await_all();
        } else if (warp::index() == MULTIPLIER) {
            for_each_job(Multiplier<S, MASK, KEYS>{shared, call, columns, warp::elect()});
        }
    } else if (warp::group() == CORRECTION) {
        warp::give_registers<80>();
        for_each_job(Corrector<S, MASK, KEYS>{
            shared, maps, call, columns, {lse, lse_token, lse_head, lse_batch, sinks}, c});
        if (warp::lane() == 0) tma::wait_all();
    } else {
        warp::take_registers<192>();
        const Terms<T> terms{scale, softcap, slopes, slopes_batch, bias, bias_batch, bias_head,
                             bias_query, bias_key, relative, relative_batch, relative_query,
                             relative_head, extent};
        for_each_job(Weigher<S, MASK, KEYS, TERMS, SLACK, POLY>{shared, call, terms, columns,
                                                                warp::group(), c});
    }
    __syncwarp();

    tcgen05::fence_before();
    __syncthreads();  // all have read their sums
    if (warp::index() == MULTIPLIER) tcgen05::dealloc<1>(columns.base, tcgen05::COLUMNS);
}
