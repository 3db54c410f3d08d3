// From the user's rows to tiles: equal rows, leading coordinates, spatial order, values in that order.
#include "common.cuh"

constexpr int LEADING = 64;   // leading coordinates of a row at most, and their pitch while they are computed
constexpr int ROWS_AT_ONCE = 32;
constexpr int FEATURES_AT_ONCE = 32;
constexpr int SPLIT_SAMPLE = 256;
constexpr int SPLIT_STEPS = 3;
constexpr int SPLIT_WIDTH = 16;  // coordinates that splits look at

__device__ __forceinline__ u64 mixed(u64 x) {  // a bijection that spreads every bit (Steele et al. 2014, variant 13)
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// A hash of each row; equal rows (-0 equals 0) have equal hashes. One warp a row.
template <class T>
__device__ __forceinline__ void hash_rows(const T* X, i64 n, int d, u64* hashes) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  if (row >= n) return;
  u64 hash = 0;
  for (int f = lane; f < d; f += LANES) {
    const double value = widened(X[row * d + f]) + 0.0;  // -0 + 0 = 0
    hash += mixed(weight_bits(value) + static_cast<u64>(f) * 0x9e3779b97f4a7c15ull);
  }
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) hash += __shfl_xor_sync(ALL_LANES, hash, step);
  if (lane == 0) hashes[row] = hash;
}

// Rows in the order of their hashes: 1 where a row differs from the one before it. Rows that share a hash and are not
// equal may hide equal ones from one another: those then stand as two rows at distance 0, which is right as well.
template <class T>
__device__ __forceinline__ void mark_distinct(const T* X, i64 n, int d, const u64* hashes, const i64* order, i64* distinct) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  bool differs = i == 0 || hashes[order[i]] != hashes[order[i - 1]];
  if (!differs)
    for (int f = 0; f < d; ++f)
      if (widened(X[order[i] * d + f]) != widened(X[order[i - 1] * d + f])) differs = true;
  distinct[i] = differs;
}

// leading = basis' * scale (x - centre) in float64, rounded to float; norms = |scale (x - centre)|, rounded up.
template <class T>
__device__ __forceinline__ void project_rows(const T* X, const int* rows, i64 n, int d, const double* centre, double scale,
                                             const double* basis, int n_leading, float limit, float* leading, float* norms) {
  __shared__ double values[ROWS_AT_ONCE][FEATURES_AT_ONCE + 1];
  __shared__ double directions[FEATURES_AT_ONCE][LEADING];
  const i64 first = static_cast<i64>(blockIdx.x) * ROWS_AT_ONCE;
  const int own_row = threadIdx.x / 8, own_column = threadIdx.x % 8 * 8;  // 256 threads: 32 rows x 8 x 8 coordinates
  double sum[8] = {}, squared = 0;
  for (int start = 0; start < d; start += FEATURES_AT_ONCE) {
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS_AT_ONCE * FEATURES_AT_ONCE; i += SCAN_THREADS) {
      const int r = i / FEATURES_AT_ONCE, f = i % FEATURES_AT_ONCE;
      const bool valid = first + r < n && start + f < d;
      const i64 row = valid ? (rows ? rows[first + r] : first + r) : 0;
      values[r][f] = valid ? scale * (widened(X[row * d + start + f]) - centre[start + f]) : 0.0;
    }
    for (int i = threadIdx.x; i < FEATURES_AT_ONCE * LEADING; i += SCAN_THREADS) {
      const int f = i / LEADING, c = i % LEADING;
      directions[f][c] = start + f < d && c < n_leading ? basis[static_cast<i64>(start + f) * n_leading + c] : 0.0;
    }
    __syncthreads();
    if (own_column < n_leading)
      for (int f = 0; f < FEATURES_AT_ONCE; ++f) {
        const double value = values[own_row][f];
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[c] += value * directions[f][own_column + c];
      }
    if (threadIdx.x % 8 == 0)
      for (int f = 0; f < FEATURES_AT_ONCE; ++f) squared += values[own_row][f] * values[own_row][f];
  }
  const i64 row = first + own_row;
  if (row >= n) return;
  for (int c = 0; c < 8; ++c)
    if (own_column + c < n_leading)
      leading[row * n_leading + own_column + c] = fminf(fmaxf(__double2float_rn(sum[c]), -limit), limit);
  if (threadIdx.x % 8 == 0) norms[row] = __double2float_ru(__dsqrt_rn(squared) * (1.0 + 0x1p-38));
}

// How to split each segment of `segment_rows` positions in two: the direction between the centres of a 2-means on a
// sample (many coordinates), or the widest side (few). ranges: lowest projection and 1 / width, for the keys.
extern "C" __global__ void split_segments_kernel(const float* leading, int n_leading, const int* order, i64 n, i64 segment_rows,
                                                 int two_means, float* directions, float* ranges) {
  __shared__ float sample[SPLIT_SAMPLE][SPLIT_WIDTH + 1];
  __shared__ float centre[2][SPLIT_WIDTH], partial[2][8][SPLIT_WIDTH], far[SPLIT_SAMPLE];
  __shared__ int members[2], chosen, nearest_centre[SPLIT_SAMPLE];
  const i64 begin = static_cast<i64>(blockIdx.x) * segment_rows;
  const i64 size = min(segment_rows, n - begin);
  const int count = static_cast<int>(min(size, static_cast<i64>(SPLIT_SAMPLE)));
  const int width = min(n_leading, SPLIT_WIDTH), tid = threadIdx.x;  // 128 threads
  for (int i = tid; i < count * SPLIT_WIDTH; i += blockDim.x) {
    const int r = i / SPLIT_WIDTH, c = i % SPLIT_WIDTH;
    sample[r][c] = c < width ? leading[static_cast<i64>(order[begin + size * r / count]) * n_leading + c] : 0.f;
  }
  __syncthreads();
  // Sums of the sample's coordinates: thread (c, part) adds every eighth row.
  const int c = tid % SPLIT_WIDTH, part = tid / SPLIT_WIDTH;
  float low = 3.0e38f, high = -3.0e38f, total = 0.f;
  for (int r = part; r < count; r += 8) low = fminf(low, sample[r][c]), high = fmaxf(high, sample[r][c]), total += sample[r][c];
  partial[0][part][c] = low, partial[1][part][c] = high;
  __syncthreads();
  if (tid < SPLIT_WIDTH) {
    for (int p = 1; p < 8; ++p) low = fminf(low, partial[0][p][c]), high = fmaxf(high, partial[1][p][c]);
    far[c] = high - low;
  }
  __syncthreads();
  if (tid == 0) {
    chosen = 0;
    for (int i = 1; i < width; ++i)
      if (far[i] > far[chosen]) chosen = i;
  }
  partial[0][part][c] = total;
  __syncthreads();
  if (tid < SPLIT_WIDTH) {
    float mean = 0.f;
    for (int p = 0; p < 8; ++p) mean += partial[0][p][c];
    centre[0][c] = mean / static_cast<float>(count);
    centre[1][c] = centre[0][c] + (c == chosen ? 1.f : 0.f);  // the widest side, unless a 2-means says better
  }
  __syncthreads();
  if (two_means) {
    for (int end = 0; end < 2; ++end) {  // the two ends: farthest from the mean, then farthest from that one
      for (int r = tid; r < count; r += blockDim.x) {
        float squared = 0.f;
        for (int i = 0; i < width; ++i) squared += (sample[r][i] - centre[0][i]) * (sample[r][i] - centre[0][i]);
        far[r] = squared;
      }
      __syncthreads();
      if (tid < LANES) {
        float most = -1.f;
        int at = 0;
        for (int r = tid; r < count; r += LANES)
          if (far[r] > most) most = far[r], at = r;
        for (int step = LANES / 2; step > 0; step /= 2) {
          const float other = __shfl_xor_sync(ALL_LANES, most, step);
          const int other_at = __shfl_xor_sync(ALL_LANES, at, step);
          if (other > most || (other == most && other_at < at)) most = other, at = other_at;
        }
        if (tid == 0) chosen = at;
      }
      __syncthreads();
      if (tid < SPLIT_WIDTH) centre[1][c] = centre[0][c], centre[0][c] = sample[chosen][c];
      __syncthreads();
      if (end == 0 && tid < SPLIT_WIDTH) centre[1][c] = centre[0][c];
      __syncthreads();
    }
    for (int step = 0; step < SPLIT_STEPS; ++step) {
      if (tid < 2) members[tid] = 0;
      __syncthreads();
      for (int r = tid; r < count; r += blockDim.x) {
        float to[2] = {0.f, 0.f};
        for (int i = 0; i < width; ++i)
          for (int e = 0; e < 2; ++e) to[e] += (sample[r][i] - centre[e][i]) * (sample[r][i] - centre[e][i]);
        nearest_centre[r] = to[1] < to[0];
        atomicAdd(&members[to[1] < to[0]], 1);
      }
      __syncthreads();
      float sums[2] = {0.f, 0.f};
      for (int r = part; r < count; r += 8) sums[nearest_centre[r]] += sample[r][c];
      partial[0][part][c] = sums[0], partial[1][part][c] = sums[1];
      __syncthreads();
      if (tid < SPLIT_WIDTH && members[0] && members[1])
        for (int e = 0; e < 2; ++e) {
          float sum = 0.f;
          for (int p = 0; p < 8; ++p) sum += partial[e][p][c];
          centre[e][c] = sum / static_cast<float>(members[e]);
        }
      __syncthreads();
    }
  }
  if (tid < SPLIT_WIDTH) directions[static_cast<i64>(blockIdx.x) * SPLIT_WIDTH + c] = centre[1][c] - centre[0][c];
  for (int r = tid; r < count; r += blockDim.x) {
    float key = 0.f;
    for (int i = 0; i < width; ++i) key += sample[r][i] * (centre[1][i] - centre[0][i]);
    far[r] = key;
  }
  __syncthreads();
  if (tid < LANES) {
    float least = 3.0e38f, most = -3.0e38f;
    for (int r = tid; r < count; r += LANES) least = fminf(least, far[r]), most = fmaxf(most, far[r]);
    most = warp_max(most), least = -warp_max(-least);
    if (tid == 0) {
      ranges[blockIdx.x * 2] = least;
      ranges[blockIdx.x * 2 + 1] = most > least ? 1.f / (most - least) : 0.f;
    }
  }
}

// Keys that sort the rows of each segment along its direction: the segment above, the place in its range below.
extern "C" __global__ void split_keys_kernel(const float* leading, int n_leading, const int* order, i64 n, i64 segment_rows, int level,
                                             const float* directions, const float* ranges, unsigned* keys) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const i64 segment = i / segment_rows;
  const float* point = leading + static_cast<i64>(order[i]) * n_leading;
  float key = 0.f;
  for (int c = 0; c < min(n_leading, SPLIT_WIDTH); ++c) key += point[c] * directions[segment * SPLIT_WIDTH + c];
  const float share = fminf(fmaxf((key - ranges[segment * 2]) * ranges[segment * 2 + 1], 0.f), 1.f);
  const int bits = 32 - level;
  const unsigned place = static_cast<unsigned>(share * (static_cast<float>(1u << min(bits, 24)) - 1.f));
  keys[i] = (level ? static_cast<unsigned>(segment) << bits : 0u) | place << max(0, bits - 24);
}

extern "C" __global__ void permute_kernel(const int* order, const i64* by_key, i64 n, int* permuted) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) permuted[i] = order[by_key[i]];
}

extern "C" __global__ void permute_u64_kernel(const u64* values, const i64* order, i64 n, u64* permuted) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) permuted[i] = values[order[i]];
}

// 0, 1, ... n - 1, then -1.
extern "C" __global__ void count_up_kernel(i64 n, i64 n_padded, int* numbers) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n_padded) numbers[i] = i < n ? static_cast<int>(i) : -1;
}

extern "C" __global__ void invert_kernel(const int* order, i64 n, int* place_of) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) place_of[order[i]] = static_cast<int>(i);
}

// to[rows[i]] = from[positions[i]].
extern "C" __global__ void scatter_kernel(const double* from, const int* positions, const int* rows, i64 n, double* to) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[rows[i]] = from[positions[i]];
}

// Rows in the order of their hashes, `number` the running count of distinct ones: the representative of each group (its
// first, the smallest row), the group of each row, how many there are, and the other rows with their groups.
extern "C" __global__ void collect_groups_kernel(const i64* order, const i64* distinct, const i64* number, i64 n, int* representative,
                                                 int* multiplicity, int* copy_row, int* copy_group) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const i64 group = number[i] - 1;
  atomicAdd(&multiplicity[group], 1);
  if (distinct[i]) {
    representative[group] = static_cast<int>(order[i]);
  } else {  // i + 1 - number[i] rows before and up to this one were copies
    const i64 at = i - number[i];
    copy_row[at] = static_cast<int>(order[i]);
    copy_group[at] = static_cast<int>(group);
  }
}

extern "C" __global__ void take_int_kernel(const int* values, const int* places, i64 n, int* taken) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) taken[i] = values[places[i]];
}

// Rows of `width` floats or doubles in a new order; rows past n are zeros.
template <class T>
__device__ __forceinline__ void gather_rows(const T* X, i64 width, const int* rows, i64 n, i64 n_padded, i64 pitch, T* gathered) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n_padded * pitch) return;
  const i64 row = i / pitch, f = i % pitch;
  gathered[i] = row < n && f < width ? X[rows[row] * width + f] : T(0);
}

#define PREPARE_KERNELS(SUFFIX, T)                                                                                             \
  extern "C" __global__ void hash_rows_##SUFFIX##_kernel(const T* X, i64 n, int d, u64* hashes) { hash_rows(X, n, d, hashes); } \
  extern "C" __global__ void mark_distinct_##SUFFIX##_kernel(const T* X, i64 n, int d, const u64* hashes, const i64* order,     \
                                                             i64* distinct) {                                                  \
    mark_distinct(X, n, d, hashes, order, distinct);                                                                           \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS)                                                                   \
      project_rows_##SUFFIX##_kernel(const T* X, const int* rows, i64 n, int d, const double* centre, double scale,             \
                                     const double* basis, int n_leading, float limit, float* leading, float* norms) {          \
    project_rows(X, rows, n, d, centre, scale, basis, n_leading, limit, leading, norms);                                       \
  }                                                                                                                            \
  extern "C" __global__ void gather_rows_##SUFFIX##_kernel(const T* X, i64 width, const int* rows, i64 n, i64 n_padded,         \
                                                           i64 pitch, T* gathered) {                                           \
    gather_rows(X, width, rows, n, n_padded, pitch, gathered);                                                                 \
  }

PREPARE_KERNELS(float32, float)
PREPARE_KERNELS(float64, double)
