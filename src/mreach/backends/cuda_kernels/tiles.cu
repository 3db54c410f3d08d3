// Rows in tiles, as the filter reads them: halves, or single precision in a frame of each tile; and their boxes.
#include "common.cuh"

// More than a scaled distance loses to underflow: values and their differences 2^-126 each, where subnormal numbers are
// flushed, and squares, as many as there are features, 2^-126 of the squared distance each.
constexpr float TINY = 0x1p-56f;

// Where the copy engine and Hopper's products want feature f of row i: 64 features of a tile after another, of each row
// eight chunks of 16 bytes, chunk c at c XOR row % 8.
__device__ __forceinline__ i64 swizzled_place(i64 i, int f, int width) {
  const i64 slab = i / TILE * (width / 64) + f / 64;
  return (slab * TILE + i % TILE) * 64 + ((f % 64 / 8) ^ static_cast<int>(i % 8)) * 8 + f % 8;
}

// Rows `positions[i]` of `values` (or i itself) rounded to halves. One warp a row; rows from n on are padding.
template <class T>
__device__ __forceinline__ void round_rows(const T* values, i64 pitch, int d, const int* positions, i64 n, i64 n_padded,
                                           const double* centre, double scale, double clamp, int width, int swizzled, half_bits* halves,
                                           float* start, float* norm, float* residual, float* reliable) {
  const i64 i = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  if (i >= n_padded) return;
  const bool valid = i < n;
  const T* x = values + (valid ? (positions ? positions[i] : i) : 0) * pitch;
  double squared = 0, lost = 0, size = 0;
  int clamped = 0;
  for (int f = lane; f < width; f += LANES) {
    double value = valid && f < d ? scale * (widened(x[f]) - centre[f]) : 0.0;
    size += value * value;
    if (!(fabs(value) <= clamp)) value = value < 0 ? -clamp : clamp, clamped = 1;
    const half_bits h = half_from_float(__double2float_rn(value));
    const double rounded = float_from_half(h);
    halves[swizzled ? swizzled_place(i, f, width) : i * width + f] = h;
    squared += rounded * rounded;
    lost += (value - rounded) * (value - rounded);
  }
  squared = warp_sum(squared), lost = warp_sum(lost), size = warp_sum(size);
  clamped = __any_sync(ALL_LANES, clamped);
  if (lane != 0) return;
  // Sums of squares in float64 are right to width * 2^-53; 2^-38 covers that for every width, and x - centre's rounding.
  const float r = __fadd_ru(__double2float_ru(sqrt(lost) * (1 + 0x1p-38) + sqrt(size) * 0x1p-50), TINY);
  start[i] = valid ? __double2float_ru(-0.5 * squared * (1 - 0x1p-38)) : -float_infinity();
  norm[i] = valid ? __double2float_ru(sqrt(squared) * (1 + 0x1p-38)) : 0.f;
  residual[i] = valid ? (clamped ? __double2float_ru(sqrt(lost) * (1 + 0x1p-38) + clamp * 0x1p-38) : r) : 0.f;
  reliable[i] = valid ? (clamped ? float_infinity() : r) : 0.f;
}

// The largest norm and residual of each tile. A thread a row.
extern "C" __global__ void __launch_bounds__(TILE)
half_bounds_kernel(const float* norm, const float* residual, float* tile_norm, float* tile_residual) {
  __shared__ float most[2][TILE / LANES];
  const i64 i = static_cast<i64>(blockIdx.x) * TILE + threadIdx.x;
  const float largest = warp_max(norm[i]), lost = warp_max(residual[i]);
  if (threadIdx.x % LANES == 0) most[0][threadIdx.x / LANES] = largest, most[1][threadIdx.x / LANES] = lost;
  __syncthreads();
  if (threadIdx.x == 0) {
    tile_norm[blockIdx.x] = fmaxf(fmaxf(most[0][0], most[0][1]), fmaxf(most[0][2], most[0][3]));
    tile_residual[blockIdx.x] = fmaxf(fmaxf(most[1][0], most[1][1]), fmaxf(most[1][2], most[1][3]));
  }
}

// By which factor the margins of halves lengthen what a row of a sampled tile reaches; infinite where the row was given up.
extern "C" __global__ void half_inflation_kernel(const float* reach, const int* tiles, const float* norm, const float* residual,
                                                 float accumulation, i64 n, float* inflation) {
  const i64 row = static_cast<i64>(tiles[blockIdx.x]) * TILE + threadIdx.x, i = static_cast<i64>(blockIdx.x) * TILE + threadIdx.x;
  const float own = reach[i], wide = own + 2.f * residual[min(row, n - 1)], size = norm[min(row, n - 1)];
  inflation[i] = row >= n ? -1.f : own > 0.f ? sqrtf(wide * wide + 6.f * accumulation * size * size) / own : float_infinity();
}

__device__ __forceinline__ double median(double a, double b, double c) { return fmax(fmin(a, b), fmin(fmax(a, b), c)); }

// A frame for each tile: the medians of three of its rows as centre, which a row far out does not move; offsets from it
// in single precision. To a row's residual goes what rounding its offset beside the shift between two tiles costs,
// 2^-22 of the offset. A thread a row.
template <class T>
__device__ __forceinline__ void make_frames(const T* values, i64 pitch, int d, const int* positions, i64 n, double scale,
                                            float* offsets, double* centre, float* residual, float* tile_residual) {
  __shared__ float most[TILE / LANES];
  const i64 tile = blockIdx.x, i = tile * TILE + threadIdx.x;
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const i64 count = min(static_cast<i64>(TILE), n - tile * TILE);
  const bool valid = i < n;
  const auto row = [&](i64 at) { return values + (positions ? positions[at] : at) * pitch; };
  const T* x = row(valid ? i : tile * TILE);
  const T *a = row(tile * TILE + count / 4), *b = row(tile * TILE + count / 2), *c = row(tile * TILE + count * 3 / 4);
  double size = 0, lost = 0;
  for (int f = 0; f < d; ++f) {
    const double middle = median(widened(a[f]), widened(b[f]), widened(c[f]));
    const double off = scale * (widened(x[f]) - middle);
    const float rounded = valid ? __double2float_rn(off) : float_infinity();
    offsets[(tile * d + f) * TILE + threadIdx.x] = rounded;
    if (threadIdx.x == 0) centre[tile * d + f] = scale * middle;
    size += static_cast<double>(rounded) * rounded;
    lost += (off - rounded) * (off - rounded);
  }
  const float r = valid ? __fadd_ru(__double2float_ru(sqrt(lost) * (1 + 0x1p-38) + sqrt(size) * (0x1p-22 * (1 + 0x1p-20))), TINY) : 0.f;
  residual[i] = r;
  const float worst = warp_max(r);
  if (lane == 0) most[warp] = worst;
  __syncthreads();
  if (threadIdx.x == 0) tile_residual[tile] = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
}

// Boxes of the leading coordinates of each tile, rounded outward: a coordinate was rounded to float once (2^-24
// relative), after float64 arithmetic that is right to 2^-39 of the row's norm. One warp a tile, a lane a coordinate.
extern "C" __global__ void box_tiles_kernel(const float* leading, int n_leading, const float* norms, const int* positions, i64 n,
                                            int n_tiles, float* low, float* high) {
  const i64 tile = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
  if (tile >= n_tiles) return;
  for (int c = threadIdx.x % LANES; c < n_leading; c += LANES) {
    float least = float_infinity(), most = -float_infinity();
    for (int r = 0; r < TILE; ++r) {
      const i64 i = tile * TILE + r;
      if (i >= n) break;
      const i64 p = positions ? positions[i] : i;
      const float value = leading[p * n_leading + c];
      const float off = __fadd_ru(__fmaf_ru(fabsf(value), 0x1p-22f, TINY), __fmul_ru(norms[p], 0x1p-38f));
      least = fminf(least, __fsub_rd(value, off)), most = fmaxf(most, __fadd_ru(value, off));
    }
    low[static_cast<i64>(c) * n_tiles + tile] = least;
    high[static_cast<i64>(c) * n_tiles + tile] = most;
  }
}

#define TILE_KERNELS(SUFFIX, T)                                                                                                \
  extern "C" __global__ void round_rows_##SUFFIX##_kernel(const T* values, i64 pitch, int d, const int* positions, i64 n,       \
                                                          i64 n_padded, const double* centre, double scale, double clamp,      \
                                                          int width, int swizzled, half_bits* halves, float* start,            \
                                                          float* norm,                                                         \
                                                          float* residual, float* reliable) {                                  \
    round_rows(values, pitch, d, positions, n, n_padded, centre, scale, clamp, width, swizzled, halves, start, norm, residual, reliable); \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(TILE)                                                                           \
      make_frames_##SUFFIX##_kernel(const T* values, i64 pitch, int d, const int* positions, i64 n, double scale,               \
                                    float* offsets, double* centre, float* residual, float* tile_residual) {                   \
    make_frames(values, pitch, d, positions, n, scale, offsets, centre, residual, tile_residual);                              \
  }

TILE_KERNELS(float32, float)
TILE_KERNELS(float64, double)
