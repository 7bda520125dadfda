// C = A * B^T in bf16 with float accumulators, the way Hopper wants it: a producer warp keeps a ring of
// tiles filled by TMA, two consumer warpgroups multiply them by wgmma.
//
// A is [M, K], B is [N, K], both K-major, C is [M, N]; M and N are multiples of 128, K of 64. A CTA
// makes 128 x 128 of C; each stage of the ring holds 64 columns (of K) of its rows of A and B, 128
// bytes a row, which TMA writes with the 128B swizzle that wgmma reads without bank conflicts.
//
// Launch: grid (N / 128, M / 128), 384 threads, STAGES * 32768 + 1024 bytes of dynamic shared memory;
// boxes of both tensor maps are 128 rows of 64 elements.
#include "hopper.cuh"

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 4;
constexpr int CONSUMER_WARPS = 8, THREADS = 128 + CONSUMER_WARPS * 32;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2, STAGE_BYTES = A_BYTES + B_BYTES;

struct Ring {
  unsigned char* tiles;  // STAGES times A, then B
  u64 *full, *empty;
};

// Rows of 128 bytes, 128B swizzle: groups of 8 rows are 1024 bytes apart.
__device__ u64 descriptor(const void* tile) {
  return (shared_address(tile) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// D (+)= A * B^T for 64 rows of A, 128 of B and 16 of K.
__device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

__device__ void produce(const Ring& ring, const TensorMap& a, const TensorMap& b, int K) {
  int stage = 0, parity = 1;  // the first pass through the ring finds every stage empty
  for (int k = 0; k < K; k += BK) {
    unsigned char* tile = ring.tiles + stage * STAGE_BYTES;
    wait(&ring.empty[stage], parity);
    arrive_and_expect(&ring.full[stage], STAGE_BYTES);
    tma_load(tile, a, k, blockIdx.y * BM, &ring.full[stage]);
    tma_load(tile + A_BYTES, b, k, blockIdx.x * BN, &ring.full[stage]);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}

// Multiplies a whole row of tiles; one wgmma group stays in flight while the next tile is awaited.
__device__ void multiply(const Ring& ring, float (&d)[64], int group, int K) {
  const bool elected = threadIdx.x % 32 == 0;
  int stage = 0, parity = 0, before = 0;
  for (int k = 0; k < K; k += BK) {
    const unsigned char* tile = ring.tiles + stage * STAGE_BYTES;
    const u64 a = descriptor(tile + group * 64 * BK * 2), b = descriptor(tile + A_BYTES);
    wait(&ring.full[stage], parity);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < BK / 16; j++) wgmma(d, a + 2 * j, b + 2 * j, k + j > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (k > 0 && elected) arrive(&ring.empty[before]);  // the previous tile has been read
    before = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// A thread holds pairs of columns, in two rows that are 8 apart.
__device__ void store(const float (&d)[64], float* c, int N) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  c += static_cast<u64>(warp * 16 + lane / 4) * N + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 64; i += 2)
    *reinterpret_cast<float2*>(c + i / 2 % 2 * 8 * N + i / 4 * 8) = make_float2(d[i], d[i + 1]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int N,
       int K) {
  extern __shared__ __align__(1024) unsigned char tiles[];
  __shared__ u64 full[STAGES], empty[STAGES];
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;  // -1: the producer's
  const Ring ring{tiles, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) init(&full[i], 1), init(&empty[i], CONSUMER_WARPS);
    fence_init();
  }
  __syncthreads();
  if (group < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) produce(ring, a, b, K);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64];
    multiply(ring, d, group, K);
    store(d, c + (static_cast<u64>(blockIdx.y) * BM + group * 64) * N + blockIdx.x * BN, N);
  }
}
