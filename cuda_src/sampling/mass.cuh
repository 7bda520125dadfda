// Probability mass as integers: multiples of 2^-40 of the most probable token's weight, which is 1.
//
// Integer sums do not depend on their order, so the same row draws the same token whatever the number
// of CTAs, threads or the batch around it. V tokens of at most 2^40 each fit 64 bits up to V = 2^23;
// longer rows weigh by a smaller unit.
#pragma once

#include "common/math.cuh"
#include "sampling/key.cuh"

// e^((x - max) / T), within 1e-6 relative down to e^-16: the product with log2(e) / T keeps its low
// part, which ex2's argument would lose.
struct Weigh {
    f32 max, scale, low;  // log2(e) / T in two pieces
    f32 unit;             // what the most probable token weighs, a power of two

    __device__ __forceinline__ Weigh(f32 max, f32 temperature, f32 unit = 1.0f)
        : max(max), unit(unit) {
        const f32 inverse = 1.0f / fminf(temperature, 1e30f);
        scale = 1.44269504f * inverse;
        // What scale lacks: log2(e) = 1.44269504 + 1.925963e-8, and the rounding of both operations.
        const f32 rest = fmaf(-inverse, fminf(temperature, 1e30f), 1.0f) * inverse;
        low = fmaf(1.44269504f, inverse, -scale) + fmaf(1.925963033500995e-8f, inverse,
                                                        1.44269504f * rest);
    }

    // The same where the result is at least 2^-100 and the unit 1.
    __device__ __forceinline__ f32 near(f32 x) const { return at(x - max); }
    __device__ __forceinline__ f32 at(f32 d) const {  // of a distance from the maximum
        const f32 y = d * scale, e = ptx::ex2(y);
        return fmaf(e * 0.693147181f, fmaf(d, low, fmaf(d, scale, -y)), e);
    }

    __device__ __forceinline__ f32 operator()(f32 x) const {
        const f32 d = x - max;
        const f32 y = fmaxf(d * scale, -200.0f);
        const f32 r = fmaf(d, low, fmaf(d, scale, -y));
        const f32 e = ptx::ex2(y);
        return y > -127.0f ? fmaf(e * 0.693147181f, r, e) * unit : 0.0f;
    }
};

// The unit that keeps the mass of V tokens below 2^63.
__device__ __forceinline__ f32 weight_unit(i32 V) {
    const i32 over = max(0, 32 - __clz(V - 1) - 23);
    return __uint_as_float(u32(127 - over) << 23);
}

// Sums weights of 0 to 1 exactly, rounded to multiples of 2^-40 each. Adding 2^6 leaves the multiple
// of 2^-17 in the low bits, adding 1.5 * 2^-17 to the rest that of 2^-40: no conversion instruction,
// of which an SM does few. For up to 500 additions.
struct Mass {
    u32 high = 0;
    i32 low = 0;

    __device__ __forceinline__ static Mass of(f32 e) {
        const f32 shifted = __fadd_rn(e, 64.0f);
        const f32 rest = __fsub_rn(e, __fsub_rn(shifted, 64.0f));
        return {__float_as_uint(shifted) - 0x42800000u,
                __float_as_int(__fadd_rn(rest, 1.1444091796875e-5f)) - 0x37400000};
    }
    __device__ __forceinline__ void add(Mass m) { high += m.high, low += m.low; }
    __device__ __forceinline__ u64 total() const { return (u64(high) << 23) + u64(i64(low)); }
};

__device__ __forceinline__ u64 mass_of(f32 e) { return Mass::of(e).total(); }

constexpr f32 MASS_UNIT = 1099511627776.0f;  // 2^40, the mass of weight 1

// The least mass that is at least the fraction p of `all`, and at least one unit.
__device__ __forceinline__ u64 fraction(f32 p, u64 all) {
    const u64 part = u64(ceil(double(p) * double(all)));
    return max(u64(1), min(part, all));
}
