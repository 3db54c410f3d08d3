// Kernels for the tests of the emulator.
#include "primitives.cuh"

template <int WIDTH>
__device__ __forceinline__ int warp_sum(int value) {
    for (int step = WIDTH / 2; step > 0; step >>= 1) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    return value;
}

extern "C" __global__ void __launch_bounds__(256, 2)
block_sum_kernel(const int* __restrict__ x, int n, int* out) {
    __shared__ int parts[8], total;
    extern __shared__ __align__(16) unsigned char shared_memory[];
    int* staged = reinterpret_cast<int*>(shared_memory);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    staged[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    int sum = warp_sum<32>(staged[blockDim.x - 1 - threadIdx.x]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        total = 0;
        for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
        out[blockIdx.x] = total;
    }
}

extern "C" __global__ void shuffle_kernel(double* out) {
    const unsigned all = 0xFFFFFFFFu;
    int lane = threadIdx.x;
    out[lane] = __shfl_sync(all, double(lane), 7);
    out[32 + lane] = __shfl_xor_sync(all, float(lane), 5);
    out[64 + lane] = double(__shfl_up_sync(all, (unsigned long long)(lane), 3));
    out[96 + lane] = __shfl_down_sync(all, lane, 2, 8);
    out[128 + lane] = double(__shfl_sync(all, (long long)(lane), 1, 8));
}

extern "C" __global__ void vote_kernel(unsigned* out) {
    int lane = threadIdx.x;
    if (lane % 2) {
        out[lane] = __ballot_sync(0xAAAAAAAAu, lane > 10);
        __syncwarp(0xAAAAAAAAu);
    } else {
        out[lane] = __ballot_sync(0x55555555u, lane % 3 == 0);
    }
    if (!__any_sync(0xFFFFFFFFu, lane == 31) || __all_sync(0xFFFFFFFFu, lane < 31)) out[lane] = 0;
}

extern "C" __global__ void barrier_vote_kernel(int* out) {
    int t = threadIdx.x;
    out[3 * t] = __syncthreads_or(t == 95) != 0;
    out[3 * t + 1] = __syncthreads_and(t < 95) != 0;
    out[3 * t + 2] = __syncthreads_count(t < 33);
}

extern "C" __global__ void atomic_kernel(u64* out) {
    u64 i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&out[0], 1);
    atomicMin(&out[1], i);
    atomicMax(&out[2], i);
    atomicOr(&out[3], 1ull << (i % 64));
    atomicCAS(&out[4], 5, 6);
}

extern "C" __global__ void race_kernel(int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

extern "C" __global__ void garbage_kernel(unsigned* out) {
    __shared__ unsigned one;
    extern __shared__ __align__(16) unsigned char shared_memory[];
    unsigned* other = reinterpret_cast<unsigned*>(shared_memory);
    out[2 * blockIdx.x] = one;
    out[2 * blockIdx.x + 1] = *other;
    one = *other = 0;
}

extern "C" __global__ void copy_kernel(const unsigned* x, unsigned* out) {
    __shared__ __align__(16) unsigned to[8];
    for (int i = 0; i < 8; ++i) to[i] = 1;
    copy_async_16(to, x);
    copy_async_commit();
    copy_async_16(to + 4, x + 4);
    copy_async_commit();
    for (int i = 0; i < 8; ++i) out[i] = to[i];
    copy_async_wait<1>();
    for (int i = 0; i < 8; ++i) out[8 + i] = to[i];
    copy_async_wait<0>();
    for (int i = 0; i < 8; ++i) out[16 + i] = to[i];
}

extern "C" __global__ void half_kernel(const float* x, half_bits* out, int n, const half_bits* halves, float* wide) {
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = half_from_float(x[i]);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 65536; i += step) wide[i] = float_from_half(halves[i]);
}

#define ROUND_KERNEL(NAME, T, P, FMA, TO_FLOAT)                                                                       \
    extern "C" __global__ void NAME(const T* a, const T* b, const T* c, T* out, int n) {                              \
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {                     \
            T x = a[i], y = b[i], z = c[i], positive = x < 0 ? -x : x;                                                \
            T results[7][4] = {                                                                                       \
                {P##add_rn(x, y), P##add_rd(x, y), P##add_ru(x, y), P##add_rz(x, y)},                                 \
                {P##sub_rn(x, y), P##sub_rd(x, y), P##sub_ru(x, y), P##sub_rz(x, y)},                                 \
                {P##mul_rn(x, y), P##mul_rd(x, y), P##mul_ru(x, y), P##mul_rz(x, y)},                                 \
                {P##div_rn(x, y), P##div_rd(x, y), P##div_ru(x, y), P##div_rz(x, y)},                                 \
                {FMA##_rn(x, y, z), FMA##_rd(x, y, z), FMA##_ru(x, y, z), FMA##_rz(x, y, z)},                         \
                {P##sqrt_rn(positive), P##sqrt_rd(positive), P##sqrt_ru(positive), P##sqrt_rz(positive)},             \
                {TO_FLOAT##_rn(x * y), TO_FLOAT##_rd(x * y), TO_FLOAT##_ru(x * y), TO_FLOAT##_rz(x * y)}};            \
            for (int j = 0; j < 28; ++j) out[28 * i + j] = results[j / 4][j % 4];                                     \
        }                                                                                                             \
    }
ROUND_KERNEL(round_float_kernel, float, __f, __fmaf, __double2float)
ROUND_KERNEL(round_double_kernel, double, __d, __fma, __double2float)

extern "C" __global__ void mma_kernel(const unsigned* a, const unsigned* b, float* c) {
    int lane = threadIdx.x;
    unsigned of_a[4], of_b[2];
    float of_c[4];
    for (int i = 0; i < 4; ++i) of_a[i] = a[4 * lane + i], of_c[i] = c[4 * lane + i];
    for (int i = 0; i < 2; ++i) of_b[i] = b[2 * lane + i];
    mma_m16n8k16(of_c, of_a, of_b);
    for (int i = 0; i < 4; ++i) c[4 * lane + i] = of_c[i];
}

extern "C" __global__ void load_matrix_kernel(const half_bits* tiles, unsigned* out) {
    __shared__ __align__(16) half_bits rows[32][8];
    for (int i = threadIdx.x; i < 256; i += 32) rows[i / 8][i % 8] = tiles[i];
    __syncwarp();
    unsigned r[4];
    load_matrix_x4(r, rows[threadIdx.x]);
    for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = r[i];
}

extern "C" __global__ void types_kernel(const float* x, u64* y, int n, float f, float4* z) {}

extern "C" __global__ void mistake_kernel(int which, int* out) {
    __shared__ int table[32];
    extern __shared__ __align__(16) unsigned char shared_memory[];
    int t = threadIdx.x;
    table[t] = t;
    if (which == 1 && t < 3) __syncthreads();
    if (which == 2 && t == 0) return;
    if (which == 3 && t == 4) __syncwarp(0xFu);
    if (which == 4) {
        if (t % 2) __ballot_sync(0xFFFFFFFFu, 1);
        else __syncwarp();
    }
    if (which == 5) out[t + 1] = t;
    if (which == 6) table[t + 1] = 0;
    if (which == 7) out[0] = 1 << (t + 1);
    if (which == 8 && t == 0) shared_memory[21] = 0;
    if (which == 9 && t < 8) __shfl_sync(0xFFu, t, 9);
    if (which == 10) {
        if (t < 5) __syncthreads();
        else __syncthreads();
    }
    if (which == 11 && t == 0) shared_memory[100] = 0;
    if (which == 12 && t == 0) out[-1] = 0;
    __syncwarp();
    out[t] = table[t];
}
