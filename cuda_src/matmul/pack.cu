// Copies of a matrix that TMA can read: row-major, rows at multiples of 16 bytes, zero padding.
// The source may have any strides.
//
// pack_rows: the source's rows are contiguous, at any address. Every thread makes 16-byte chunks of
// the destination. A chunk's source lies across two aligned 16-byte words; the thread reads both and
// shifts. Its neighbour reads one of them too, but that is a hit in L1: HBM sees each byte once. Only
// at the ends of the source, where an aligned word would reach beyond it, bytes are read one by one.
//
// pack_tiled: anything else, the transpose above all. A CTA reads a tile of 128 bytes by 128 bytes'
// worth of rows along the source's faster dimension, VEC elements a load, and writes it along rows.
// The tile in shared memory has rows of 33 words: walking down a column meets every bank once.
//
// Traffic: n reads + n writes. Loads in flight: 64 KB on an SM of either kernel.
#include "common/once.cuh"

namespace pack {

constexpr int THREADS = 256, CHUNK = 16;

// Bytes [shift, shift + 16) of two neighbouring words.
__device__ __forceinline__ uint4 shifted(uint4 low, uint4 high, u32 shift) {
    u32 w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = shift & 4 ? w[i + 1] : w[i];
    const u32 bits = shift % 4 * 8;
    return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
            __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

// The first `count` bytes of a word, or of a chunk; zeros after them.
__device__ __forceinline__ u32 first_bytes(u32 word, i32 count) {
    return count >= 4 ? word : count <= 0 ? 0 : word & ((1u << 8 * count) - 1);
}
__device__ __forceinline__ uint4 first_bytes(uint4 v, i32 count) {
    return {first_bytes(v.x, count), first_bytes(v.y, count - 4), first_bytes(v.z, count - 8),
            first_bytes(v.w, count - 12)};
}

__device__ __noinline__ uint4 gather(const u8* from, i32 count) {
    u32 w[4] = {};
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
        if (i < count) w[i / 4] |= u32(from[i]) << 8 * (i % 4);
    return {w[0], w[1], w[2], w[3]};
}

// The addresses from which two aligned words can be read without leaving [begin, end).
struct Inside {
    u64 low, span;

    __device__ __forceinline__ Inside(const u8* begin, const u8* end) {
        low = (reinterpret_cast<u64>(begin) + CHUNK - 1) / CHUNK * CHUNK;
        const u64 high = reinterpret_cast<u64>(end) / CHUNK * CHUNK - CHUNK;
        span = high > low ? high - low : 0;
    }
    __device__ __forceinline__ bool holds(const u8* p) const {
        return reinterpret_cast<u64>(p) - low < span;
    }
};

// One chunk on its way. Its first `count` bytes are the source's; 16 or more: all of it.
struct Chunk {
    const u8* from;
    i32 count;
    bool whole;
    uint4 low, high;

    __device__ __forceinline__ u32 shift() const { return u32(reinterpret_cast<u64>(from)) % CHUNK; }

    __device__ __forceinline__ void fetch(const Inside& inside) {
        const uint4* words = reinterpret_cast<const uint4*>(from - shift());
        whole = inside.holds(from);
        low = once::load_if<Hint::none>(whole && count > 0, words);
        high = once::load_if<Hint::none>(whole && shift() > 0 && count > CHUNK - i32(shift()),
                                         words + 1);
    }

    __device__ __forceinline__ uint4 bytes() const {
        if (!whole && count > 0) return gather(from, count);
        const uint4 v = shifted(low, high, shift());
        return count < CHUNK ? first_bytes(v, count) : v;
    }
};

}  // namespace pack

// A CTA's threads are neighbours, so a thread's next chunk is THREADS further on: `step_rows` rows and
// `step_chunks` chunks, which spares it all divisions but the first. Rows are shorter than 2 GiB.
template <int UNROLL, class INDEX>
__global__ void __launch_bounds__(pack::THREADS)
pack_rows(const u8* src, uint4* dst, i64 rows, i32 row_bytes, i64 src_row, i32 row_chunks,
          i32 step_rows, i32 step_chunks) {
    const i64 reach = (rows - 1) * src_row;
    const pack::Inside inside(src + (reach < 0 ? reach : 0),
                              src + (reach > 0 ? reach : 0) + row_bytes);
    const INDEX first = INDEX(blockIdx.x) * (pack::THREADS * UNROLL) + threadIdx.x;
    INDEX row = first / row_chunks;
    i32 column = i32(first - row * row_chunks);

    pack::Chunk chunk[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        chunk[u].from = src + i64(row) * src_row + column * pack::CHUNK;
        chunk[u].count = row < rows ? row_bytes - column * pack::CHUNK : 0;
        chunk[u].fetch(inside);
        row += step_rows, column += step_chunks;
        if (column >= row_chunks) column -= row_chunks, ++row;
    }
    const i64 chunks = rows * row_chunks;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const i64 i = i64(first) + u * pack::THREADS;
        if (i < chunks) dst[i] = chunk[u].bytes();
    }
}

// DOWN: the source runs fastest down its columns, else along its rows. Strides are in elements;
// VEC > 1 asks for a stride of 1 there, aligned vectors and a length that VEC divides.
template <class T, int VEC, bool DOWN>
__global__ void __launch_bounds__(pack::THREADS)
pack_tiled(const T* src, uint4* dst, i64 rows, i64 cols, i64 src_r, i64 src_c, i64 row_chunks) {
    constexpr int SIDE = 128 / sizeof(T), PITCH = SIDE + 4 / sizeof(T);
    constexpr int ACROSS = SIDE / VEC, STEP = pack::THREADS / ACROSS;  // threads side by side; below
    constexpr int LOADS = SIDE / STEP, BATCH = LOADS < 16 ? LOADS : 16;
    using W = typename Word<VEC * sizeof(T)>::type;
    __shared__ __align__(16) T tile[SIDE * PITCH];
    const u32 tiles_r = u32((rows + SIDE - 1) / SIDE);
    const i64 r0 = i64(blockIdx.x % tiles_r) * SIDE, c0 = i64(blockIdx.x / tiles_r) * SIDE;

    const int fast = threadIdx.x % ACROSS * VEC, slow = threadIdx.x / ACROSS;
    const i64 r = r0 + (DOWN ? fast : slow), c = c0 + (DOWN ? slow : fast);
    const T* from = src + r * src_r + c * src_c;
    const i64 step = STEP * (DOWN ? src_c : src_r);
    const i64 left = DOWN ? (r < rows ? cols - c : 0) : (c < cols ? rows - r : 0);
    T* to = DOWN ? tile + fast * PITCH + slow : tile + slow * PITCH + fast;
    for (int done = 0; done < LOADS; done += BATCH) {
        W word[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i, from += step)
            word[i] = once::load_if<Hint::none>((done + i) * STEP < left,
                                                reinterpret_cast<const W*>(from));
        __syncwarp();  // all loads, then all stores
#pragma unroll
        for (int i = 0; i < BATCH; ++i, to += STEP * (DOWN ? 1 : PITCH))
#pragma unroll
            for (int v = 0; v < VEC; ++v)
                to[v * (DOWN ? PITCH : 1)] = reinterpret_cast<const T*>(&word[i])[v];
    }
    __syncthreads();

    constexpr u32 PER_ROW = 128 / pack::CHUNK;
    const i64 chunk0 = i64(blockIdx.x / tiles_r) * PER_ROW;
#pragma unroll
    for (u32 j = threadIdx.x; j < SIDE * PER_ROW; j += pack::THREADS) {
        const u32 y = j / PER_ROW, chunk = j % PER_ROW;
        const u32* w = reinterpret_cast<const u32*>(tile + y * PITCH) + chunk * 4;
        if (r0 + y < rows && chunk0 + chunk < row_chunks)
            dst[(r0 + y) * row_chunks + chunk0 + chunk] = make_uint4(w[0], w[1], w[2], w[3]);
    }
}
