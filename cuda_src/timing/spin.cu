// Holds every CTA for a given number of SM clock cycles: a kernel whose length is known beforehand.
//
// A timer that claims 2 us must be able to show it. This kernel touches no memory until its end, so
// its duration depends on the SM clock alone: cycles / f plus the start and drain of one wave of
// CTAs (0.3 to 0.6 us). Each CTA writes the cycles it really spent, so that a result can be checked.
//
// Limits: meant for at most one wave of CTAs; a second wave would double the time.
#include "common/types.cuh"

__global__ void spin(i64 cycles, i64* spent) {
    const i64 start = clock64();
    i64 elapsed = 0;
    while (elapsed < cycles) elapsed = clock64() - start;
    if (threadIdx.x == 0) spent[blockIdx.x] = elapsed;
}
