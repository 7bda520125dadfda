// Transposing 8-bit values in memory, once and not for every tile of queries: see fp8_shape.cuh.
//
// A warp takes 16 keys of a head. It reads rows, 32 bytes at a time, and writes what lies there in the
// order in which attention.sm90.k6 wants it in shared memory, 128 bytes at a time. Rows beyond the last
// key are zeros. Grid: (rows / 16 / WARPS, heads, batch).
#include "common/mma.cuh"
#include "common/warp.cuh"

using namespace warp;

template <int DV, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
fp8_values(const u8* v, i64 token, i64 head, i64 batch, u8* out, i32 keys, i32 rows) {
    constexpr int PITCH = DV + 16;  // eight rows of 16 bytes in as many banks
    __shared__ __align__(16) u8 memory[WARPS][16 * PITCH];
    u8* mine = memory[index()];
    const i32 first = (blockIdx.x * WARPS + index()) * 16, key = first + lane() % 16;
    if (first >= rows) return;
    const u8* from = v + blockIdx.z * batch + blockIdx.y * head + i64(key) * token;
    u8* row = mine + lane() % 16 * PITCH;
#pragma unroll
    for (int column = lane() / 16 * 16; column < DV; column += 32)
        *reinterpret_cast<uint4*>(row + column) =
            key < keys ? *reinterpret_cast<const uint4*>(from + column) : make_uint4(0, 0, 0, 0);
    __syncwarp();
    const u32 start = __cvta_generic_to_shared(row) + lane() / 16 * 16;
    u32* to = reinterpret_cast<u32*>(out + ((i64(blockIdx.z) * gridDim.y + blockIdx.y) * rows + first) * DV);
#pragma unroll
    for (int u = 0; u < DV / 32; u++) {
        u32 x[4];
        mma::load_matrices<true>(x, start + 32 * u);
        u32* part = to + u * 128 + lane();
        part[0] = __byte_perm(x[0], x[1], 0x6420), part[32] = __byte_perm(x[0], x[1], 0x7531);
        part[64] = __byte_perm(x[2], x[3], 0x6420), part[96] = __byte_perm(x[2], x[3], 0x7531);
    }
}
