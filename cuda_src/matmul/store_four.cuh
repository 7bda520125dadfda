// Stores of four neighbours of a row of C.
#pragma once

#include "common/types.cuh"

template <class OUT> struct alignas(4 * sizeof(OUT)) Four { OUT lane[4]; };

// Rounded; in one instruction where the address allows it, else as many as the row has left.
template <class OUT>
__device__ __forceinline__ void store_four(OUT* c, const f32 (&x)[4], i32 left) {
    const Four<OUT> four = {from_f32<OUT>(x[0]), from_f32<OUT>(x[1]), from_f32<OUT>(x[2]),
                            from_f32<OUT>(x[3])};
    if (left >= 4 && reinterpret_cast<u64>(c) % sizeof(four) == 0) {
        *reinterpret_cast<Four<OUT>*>(c) = four;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (j < left) c[j] = four.lane[j];
    }
}
