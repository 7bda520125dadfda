// Factors of blocks in the order in which Blackwell's tensor core wants them.
//
// src [rows, blocks] holds a byte for each row and block of K, any strides. The tensor core takes chunks
// of 512 bytes: four blocks of 128 rows, byte b of word c of lane l (16 bytes each) is block b of row
// 32 c + l. dst is [tile][step][group][chunk] of such chunks: tiles of `tile_rows` rows, each rounded up
// to `chunks` of 128; steps of 128 bytes of K with `groups` of four blocks. So what a stage of the
// matmul needs is contiguous. What no row or block is given gets zeros: zeros meet them.
//
// Traffic: rows x blocks bytes read, as many written, 4 bytes per thread.
#include "common/types.cuh"

struct Place {
    i64 row;
    i32 block;
};

// Row and first block of a word of dst.
__device__ __forceinline__ Place place(i64 word, i32 tile_rows, i32 steps, i32 groups, i32 chunks) {
    const i32 column = word % 4, lane = word / 4 % 32;
    i64 chunk = word / 128;
    const i32 of_tile = chunk % chunks;
    chunk /= chunks;
    const i32 group = chunk % (groups * steps);
    const i64 tile = chunk / (groups * steps);
    const i32 row = of_tile * 128 + column * 32 + lane;
    return {row < tile_rows ? tile * tile_rows + row : -1, group * 4};
}

__global__ void __launch_bounds__(256)
pack_scales(const u8* src, u32* dst, i64 words, i64 rows, i32 blocks, i64 src_row, i64 src_block,
            i32 tile_rows, i32 steps, i32 groups, i32 chunks) {
    const i64 word = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (word >= words) return;
    const Place at = place(word, tile_rows, steps, groups, chunks);
    u32 value = 0;
    if (at.row >= 0 && at.row < rows) {
        const u8* from = src + at.row * src_row + at.block * src_block;
#pragma unroll
        for (i32 i = 0; i < 4; i++)
            if (at.block + i < blocks) value |= u32(from[i * src_block]) << 8 * i;
    }
    dst[word] = value;
}
