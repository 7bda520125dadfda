// C = A * B^T in bf16 with float accumulators, the way Hopper wants it: a producer warp keeps a ring
// of tiles filled by TMA, two consumer warpgroups multiply them by wgmma.
//
// A is [M, K], B is [N, K], both K-major, C is [M, N]; M is a multiple of 128, N of 256, K of 64. A
// CTA makes 128 x 256 of C; each stage of the ring holds 64 columns (of K) of its rows of A and B,
// 128 bytes a row, which TMA writes with the 128B swizzle that wgmma reads without bank conflicts.
//
// Launch: grid (N / 256, M / 128), 384 threads, STAGES * 49152 bytes of dynamic shared memory;
// boxes of 64 elements of K, 128 rows for A and 256 for B.
#include "hopper.cuh"

constexpr int BM = 128, BN = 256, BK = 64, STAGES = 4;
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

#define F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)

// D (+)= A * B^T for 64 rows of A, 256 of B and 16 of K.
__device__ __forceinline__ void wgmma(float (&d)[BN / 2], u64 a, u64 b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, add, 1, 1, 0, 0; }"
      : F16(0), F16(16), F16(32), F16(48), F16(64), F16(80), F16(96), F16(112)
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
__device__ void multiply(const Ring& ring, float (&d)[BN / 2], int group, int K) {
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
__device__ void store(const float (&d)[BN / 2], float* c, int N) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  c += static_cast<u64>(warp * 16 + lane / 4) * N + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < BN / 2; i += 2)
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
    float d[BN / 2];
    multiply(ring, d, group, K);
    store(d, c + (static_cast<u64>(blockIdx.y) * BM + group * 64) * N + blockIdx.x * BN, N);
  }
}
