// Counts each row's new token in its CSR list: one more, or the first free slot (token -1).
//
// A warp per row looks through its list 32 entries at a time, finds the token or the first free slot by
// a vote, and one lane writes. Rows are independent; no other warp touches the list.
//
// Limits: a full list loses the token and says so. Tokens outside of 0 .. 2^31 - 1 are none.
#include "common/types.cuh"
#include "common/warp.cuh"

template <int THREADS>
__global__ void __launch_bounds__(THREADS)
update_counts(const i32* offsets, i32* tokens, i32* counts, const i64* drawn, u8* full, i32 rows) {
    const i32 row = blockIdx.x * (THREADS / 32) + warp::index();
    if (row >= rows) return;
    const i64 given = drawn[row];
    const i32 token = given >= 0 && given <= 0x7fffffff ? i32(given) : -1, last = offsets[row + 1];
    i32 found = last, free = last;
    for (i32 base = offsets[row]; base < last && found == last; base += 32) {
        const i32 i = base + warp::lane(), t = i < last ? tokens[i] : -2;
        const u32 same = __ballot_sync(0xffffffff, t == token);
        const u32 empty = __ballot_sync(0xffffffff, t == -1);
        if (same) found = base + __ffs(same) - 1;
        if (empty && free == last) free = base + __ffs(empty) - 1;
    }
    if (warp::lane() != 0) return;
    const bool lost = token >= 0 && found == last && free == last;
    if (full) full[row] = lost;
    if (token < 0 || lost) return;
    if (found < last) counts[found] += 1;
    else tokens[free] = token, counts[free] = 1;
}
