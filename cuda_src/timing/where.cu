// Tells which SM each CTA of a launch runs on, while all of them run.
//
// Bandwidth of "k SMs" is measured with k CTAs, trusting the hardware to spread them. This kernel
// looks: every CTA is held for a number of clock cycles, so that none leaves its SM to a later one,
// and then writes where it was. Launch it with the block size in question: a CTA of 1024 threads
// leaves room for another one of its kind on most GPUs.
//
// Limits: meant for at most one wave of CTAs; `cycles` must outlast the start of all of them.
#include "common/special.cuh"

__global__ void where(i64 cycles, u32* sm) {
    const i64 start = clock64();
    while (clock64() - start < cycles) {}
    if (threadIdx.x == 0) sm[blockIdx.x] = special::smid();
}
