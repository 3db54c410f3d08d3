// Tile pairs of halves by Hopper's warpgroup products: 64 rows x 128 columns for each of two groups of four warps.
//
// Both factors are read from shared memory, rows of 128 bytes whose 16-byte chunks stand at (chunk XOR row % 8): the
// "128B swizzle" of the hardware, which lets eight rows be read without a bank conflict. Each row of the tile belongs to
// four lanes of one warp.
#pragma once
#include "half_margins.cuh"

#ifndef MREACH_STAGES
#define MREACH_STAGES 4  // slabs in shared memory: one in use, the others under way
#endif

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory and no sum is kept across a barrier.
template <bool ONE_SLAB_>
struct WarpgroupTiles : HalfMargins {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr int STAGES = MREACH_STAGES;
  static constexpr int SLAB = 64;           // features: 128 bytes, the width of the swizzle
  static constexpr int ALIGNMENT = 1024;    // of a slab, which the swizzle repeats after
  static constexpr int GROUP_ROWS = 64;     // rows of a warpgroup
  static constexpr int FRAGMENTS = TILE / 8;

  half_bits* shared_rows;     // [ONE_SLAB ? 1 : STAGES][TILE][SLAB], swizzled
  half_bits* shared_columns;  // [STAGES][TILE][SLAB], swizzled
  float* shared_start;        // [STAGES][TILE]
  float sum[FRAGMENTS * 4];   // fragment n: columns 8n + lane % 4 * 2 + {0, 1} of row lane / 4, then of row lane / 4 + 8

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : width / SLAB;
    const unsigned long long base = (reinterpret_cast<unsigned long long>(shared) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    shared_rows = reinterpret_cast<half_bits*>(base);
    shared_columns = shared_rows + (ONE_SLAB ? 1 : STAGES) * TILE * SLAB;
    shared_start = reinterpret_cast<float*>(shared_columns + STAGES * TILE * SLAB);
    if (ONE_SLAB) copy_slab(shared_rows, rows.halves, row_tile, 0);
  }

  __device__ __forceinline__ void copy_slab(half_bits* into, const half_bits* from, i64 tile, int slab) const {
    constexpr int CHUNKS = SLAB / 8;                // of 16 bytes in a row
    constexpr int AT_ONCE = SCAN_THREADS / CHUNKS;  // rows that all threads copy together: a multiple of 8
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const half_bits* source = from + (tile * TILE + row) * width + slab * SLAB + chunk * 8;
    half_bits* target = into + row * SLAB + (chunk ^ row % 8) * 8;
#pragma unroll
    for (int i = 0; i < TILE / AT_ONCE; ++i) copy_async_16(target + i * AT_ONCE * SLAB, source + i * AT_ONCE * width);
  }

  // Start copying a slab of a column tile (and of the rows, where they do not fit at once).
  __device__ __forceinline__ void issue(int stage, int column_tile, int slab) const {
    copy_slab(shared_columns + stage * TILE * SLAB, columns.halves, column_tile, slab);
    if (!ONE_SLAB) copy_slab(shared_rows + stage * TILE * SLAB, rows.halves, row_tile, slab);
    if (slab == 0 && threadIdx.x < TILE / 4)
      copy_async_16(shared_start + stage * TILE + threadIdx.x * 4,
                    columns.start + static_cast<i64>(column_tile) * TILE + threadIdx.x * 4);
  }
  // The products read shared memory past the caches of the copies: between arrival and barrier.
  __device__ __forceinline__ static void publish() { publish_to_tensor_cores(); }

  __device__ __forceinline__ int first_row() const {
    return static_cast<int>(threadIdx.x) / GROUP_THREADS * GROUP_ROWS + threadIdx.x / LANES % 4 * 16 + threadIdx.x % LANES / 4;
  }
  __device__ __forceinline__ static int first_column() { return threadIdx.x % 4 * 2; }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage, int slab) {
    if (FIRST) {
      const float* start = shared_start + stage * TILE + first_column();
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n) {
        const float2 both = *reinterpret_cast<const float2*>(start + n * 8);
        sum[n * 4] = sum[n * 4 + 2] = both.x, sum[n * 4 + 1] = sum[n * 4 + 3] = both.y;
      }
    }
    const half_bits* a = shared_rows + (ONE_SLAB ? 0 : stage * TILE * SLAB) + threadIdx.x / GROUP_THREADS * GROUP_ROWS * SLAB;
    const half_bits* b = shared_columns + stage * TILE * SLAB;
    warpgroup_multiply_64x128x64(sum, a, b);
  }

  // Calls hit(row in tile, column in tile, sum) for each sum that its row's threshold does not exclude. Hits are
  // rare: one maximum over a row's columns decides whether to look at them one by one. (No sum is NaN.)
  template <class Visitor>
  __device__ __forceinline__ void visit(const float* threshold, Visitor& visitor, int column_tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row() + h * 8;
      float most = sum[2 * h];
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n) most = fmaxf(most, fmaxf(sum[n * 4 + 2 * h], sum[n * 4 + 2 * h + 1]));
      const float least = threshold[row];
      if (most < least) continue;
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (!(sum[n * 4 + 2 * h + e] < least))
            visitor.hit(*this, row, column_tile, n * 8 + first_column() + e, sum[n * 4 + 2 * h + e]);
    }
  }

  // The same hits as bits, for a visitor that needs no values: the sums are dead when it looks at them.
  template <class Threshold>
  __device__ __forceinline__ u64 hits(const Threshold& threshold) const {
    u64 bits = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float least = threshold(first_row() + h * 8);
      unsigned part = 0;
#pragma unroll
      for (int i = 0; i < 2 * FRAGMENTS; ++i) part |= !(sum[i / 2 * 4 + 2 * h + i % 2] < least) ? 1u << i : 0u;
      bits |= static_cast<u64>(part) << (h * 32);
    }
    return bits;
  }
  // Of some hits the lightest, as good as the sums tell it: the largest of its squared distance and the least that its
  // row and its column allow, floor(row in tile) and floor(column in tile). Returns that, and its bit.
  template <class RowFloor, class ColumnFloor>
  __device__ __forceinline__ float lightest_of(u64 bits, const RowFloor& row_floor, const ColumnFloor& column_floor, int& lightest_bit) const {
    float lightest = float_infinity();
    lightest_bit = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row() + h * 8;
      const float norm = rows.norm[static_cast<i64>(row_tile) * TILE + row], floor = row_floor(row);
#pragma unroll
      for (int i = 0; i < 2 * FRAGMENTS; ++i) {
        const float squared = fmaxf(norm * norm - 2.f * sum[i / 2 * 4 + 2 * h + i % 2], fmaxf(floor, column_floor(column_of_bit(i))));
        if (bits >> (h * 32 + i) & 1ull && squared < lightest) lightest = squared, lightest_bit = h * 32 + i;
      }
    }
    return lightest;
  }
  // The bits of columns that `mask` (a bit for each column of the tile) lets through.
  __device__ __forceinline__ u64 bits_of_columns(const unsigned* mask) const {
    unsigned bits = 0;
#pragma unroll
    for (int n = 0; n < FRAGMENTS; ++n) bits |= (mask[n / 4] >> (n % 4 * 8 + first_column()) & 3u) << (n * 2);
    return static_cast<u64>(bits) << 32 | bits;
  }
  __device__ __forceinline__ int row_of_bit(int bit) const { return first_row() + bit / 32 * 8; }
  __device__ __forceinline__ int column_of_bit(int bit) const { return bit % 32 / 2 * 8 + first_column() + bit % 2; }
};
