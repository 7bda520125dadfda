// The ring of shared-memory stages between TMA and the tensor cores, and who fills which part of it.
//
// A stage holds BM rows of A and BN of B, 128 bytes of K each: one 128B-swizzle atom wide. CTAs of a
// cluster that want the same operand tile load a part each and multicast it to the others, so a
// stage may be filled again only when every CTA that gets it has let go of it.
#pragma once

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

namespace ring {

using mbarrier::Barrier;

constexpr int SLAB = 64 * 128;  // bytes of 64 of M or N by 64 of K, for operands along M or N

template <int BM, int BN, Major B> struct Stage {
    static constexpr int A_BYTES = BM * 128;
    static constexpr int B_BYTES = B == Major::k ? BN * 128 : (BN + 63) / 64 * SLAB;
    static constexpr int BYTES = A_BYTES + B_BYTES;
};

// Which stage, and the parity of its current round.
template <int STAGES> struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    // The stage that next() left.
    __device__ __forceinline__ u32 before() const { return (stage == 0 ? STAGES : stage) - 1; }
    __device__ __forceinline__ void skip(u32 count) {
        const u32 to = stage + count;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

// A CTA's place in a cluster of CM x CN CTAs. Those of one row share A's tile, of one column B's.
template <int CM, int CN> struct Place {
    static constexpr int FEEDERS = CM + CN - 1;  // CTAs that load something into this one, itself too
    u32 m, n;

    __device__ __forceinline__ static Place at(u32 rank) { return {rank % CM, rank / CM}; }
    __device__ __forceinline__ u16 row_mask() const {
        u16 mask = 0;
#pragma unroll
        for (int j = 0; j < CN; j++) mask |= 1 << (j * CM);
        return mask << m;
    }
    __device__ __forceinline__ u16 column_mask() const { return ((1 << CM) - 1) << (n * CM); }
    __device__ __forceinline__ u32 feeder(u32 i) const {
        return i < CM ? i + CM * n : m + CM * ((n + 1 + i - CM) % CN);
    }
};

// Loads this CTA's part of an operand tile of ROWS that PARTS CTAs share; `along` is the tile's first
// row (of M or N), k its first element of K. A box of K-major rows is the largest equal part of up to
// 256 rows.
template <int ROWS, int PARTS, Major MAJOR>
__device__ __forceinline__ void load(u8* to, const TensorMap& map, Barrier* full, i32 k, i32 along,
                                     i32 z, u32 part, u16 mask) {
    if constexpr (MAJOR == Major::k) {
        constexpr int MINE = ROWS / PARTS, BOXES = (MINE + 255) / 256, BOX = MINE / BOXES;
        static_assert(ROWS % (8 * PARTS * BOXES) == 0, "whole swizzle atoms per box");
#pragma unroll
        for (int i = 0; i < BOXES; i++) {
            const int row = part * MINE + i * BOX;
            if constexpr (PARTS == 1) tma::load(to + row * 128, map, full, k, along + row, z);
            else tma::load_multicast(to + row * 128, map, full, mask, k, along + row, z);
        }
    } else {
        constexpr int SLABS = (ROWS + 63) / 64, MINE = SLABS / PARTS;
        static_assert(SLABS % PARTS == 0, "whole slabs of 64 per CTA");
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const int slab = part * MINE + i;
            u8* mine = to + slab * SLAB;
            if constexpr (PARTS == 1) tma::load(mine, map, full, along + slab * 64, k, z);
            else tma::load_multicast(mine, map, full, mask, along + slab * 64, k, z);
        }
    }
}

// Descriptor of an operand from `row` on, and how far apart 32 bytes of K are. In either major 8 rows
// of K-major data or 64 rows of a slab are whole swizzle atoms.
template <Major MAJOR> __device__ __forceinline__ u64 operand(const u8* tile, int row) {
    return wgmma::descriptor(mbarrier::address(tile) + row * 128,
                             MAJOR == Major::k ? 16 : SLAB, 1024, wgmma::Swizzle::b128);
}
template <Major MAJOR> constexpr u32 K_STEP = MAJOR == Major::k ? 32 : 16 * 128;

}  // namespace ring
