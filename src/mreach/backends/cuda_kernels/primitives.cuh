// The machine below CUDA C++: tensor core products, shared memory fragments, asynchronous copies, half rounding.
// The only file with inline PTX. Everything else is plain CUDA C++.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short half_bits;

__device__ __forceinline__ half_bits half_from_float(float x) {  // nearest even, subnormals kept
  half_bits h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}

__device__ __forceinline__ float float_from_half(half_bits h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

// A value as float64. CuPy compiles with subnormal floats flushed to zero (-ftz=true), plain conversions and comparisons
// too; this one keeps them. Filters may flush: their margins say so. The user's values must go through here.
__device__ __forceinline__ double widened(float x) {
  double y;
  asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ double widened(double x) { return x; }

// c[0..4) += a * b for a 16 x 16 tile a (row major), a 16 x 8 tile b (column major); halves in, float sums.
__device__ __forceinline__ void mma_m16n8k16(float* c, const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else  // Turing multiplies 8 deep
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

// Reductions over a whole warp.
__device__ __forceinline__ int warp_sum(int x) {
#if __CUDA_ARCH__ >= 800
  int sum;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(sum) : "r"(x));
  return sum;
#else
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
#endif
}
__device__ __forceinline__ unsigned warp_max(unsigned x) {
#if __CUDA_ARCH__ >= 800
  unsigned most;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(x));
  return most;
#else
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
#endif
}
__device__ __forceinline__ unsigned warp_min(unsigned x) { return ~warp_max(~x); }

// Square roots that are not below (not above) the true one, and at most 2^-20 off: PTX has sqrt.approx right to 2^-22.
// Roots below 2^-50 are not told from it: float32 loses squares that small.
__device__ __forceinline__ float root_above(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(fmaxf(x, 0x1p-100f)));
  return root * (1.f + 0x1p-21f);
}
__device__ __forceinline__ float root_below(float x) {
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return x < 0x1p-100f ? 0.f : root * (1.f - 0x1p-21f);
}

// Four 8 x 8 matrices of halves; lanes 0-7 give the addresses of the rows of the first, 8-15 of the second, ...
__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], const void* shared_row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Copies of 16 bytes that are under way while the thread goes on. Turing copies at once.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}

__device__ __forceinline__ void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {  // until at most PENDING of the latest commits are under way
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

constexpr int GROUP_THREADS = 128;  // a warpgroup

// c += a * b' for 64 rows of a and 128 of b, 64 deep: rows of 128 bytes in shared memory, swizzled, 1024 bytes aligned.
// All threads of a warpgroup call it together; c is theirs when it returns.
#ifdef MREACH_WARPGROUP
__device__ __forceinline__ void warpgroup_multiply_64x128x64(float (&c)[64], const void* a, const void* b) {
  // Where the factor starts, 1024 bytes from eight rows to the next eight, the swizzle over 128 bytes.
  constexpr u64 LAYOUT = 1ull << 62 | 64ull << 32 | 1ull << 16;
  const u64 a_address = static_cast<u64>(__cvta_generic_to_shared(a)), b_address = static_cast<u64>(__cvta_generic_to_shared(b));
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(c[i])::"memory");  // all sums are set before the products begin
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    asm volatile(
        "{ .reg .pred p; setp.eq.u32 p, 1, 1; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0; }"
        :
        "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
        "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
        "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
        "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
        "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
        "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
        "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "l"(LAYOUT | (a_address + step * 32) >> 4 & 0x3fffull), "l"(LAYOUT | (b_address + step * 32) >> 4 & 0x3fffull));
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(c[i])::"memory");  // and nobody reads one before they end
}

// Barriers in shared memory that count arrivals and bytes: a turn ends when both have come.
constexpr int MAX_TRIES = 1 << 28;  // of a wait that never ends otherwise: far longer than any launch should take

__device__ __forceinline__ unsigned shared_address(const void* shared) { return static_cast<unsigned>(__cvta_generic_to_shared(shared)); }
__device__ __forceinline__ void barrier_open(u64* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void barrier_expect(u64* barrier, unsigned bytes) {  // an arrival that announces bytes
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* barrier, unsigned parity) {  // until the turn of that parity has ended
  for (int tries = 0; tries < MAX_TRIES; ++tries) {
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    if (done) return;
  }
  __trap();
}
// The copy engine writes `bytes` and tells the barrier. Addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, unsigned bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
#endif
