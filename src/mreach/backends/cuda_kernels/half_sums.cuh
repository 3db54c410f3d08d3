// A warp's sums of a tile pair of halves, 16 rows x 128 columns, and the hits among them.
#pragma once
#include "half_margins.cuh"

// What instructions of every size leave in a lane: fragment n holds columns 8n + lane % 4 * 2 + {0, 1} of row lane / 4,
// then of row lane / 4 + 8. A warp owns its rows: nobody else looks at what it keeps of them.
struct HalfSums : HalfMargins {
  static constexpr int FRAGMENTS = TILE / 8;
  static constexpr int TOGETHER = 4;  // fragments that one maximum stands for
  // Which rows of the warp a lane has sums of: lane_row() + h * ROW_STEP, h < LANE_ROWS; ROW_LANES lanes share a row.
  static constexpr int LANE_ROWS = 2, ROW_STEP = 8, ROW_LANES = 4;

  float sum[FRAGMENTS * 4];

  __device__ __forceinline__ static int lane_row() { return threadIdx.x % LANES / 4; }
  __device__ __forceinline__ static int lane_column() { return threadIdx.x % 4 * 2; }

  __device__ __forceinline__ void begin(const float* start) {
#pragma unroll
    for (int n = 0; n < FRAGMENTS; ++n) {
      const float2 both = *reinterpret_cast<const float2*>(start + n * 8 + lane_column());
      sum[n * 4] = sum[n * 4 + 2] = both.x, sum[n * 4 + 1] = sum[n * 4 + 3] = both.y;
    }
  }

  // Calls hit(h, column of the tile, sum) for each sum that its row's threshold(row of the warp) does not
  // exclude. Hits are rare: maxima over a row's columns decide whether to look at them one by one. (No sum is NaN.)
  template <class Threshold, class Visitor>
  __device__ __forceinline__ void visit(const Threshold& threshold, Visitor& visitor, int column_tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float least = threshold(lane_row() + h * ROW_STEP);
      float most[FRAGMENTS / TOGETHER], all = -float_infinity();
#pragma unroll
      for (int g = 0; g < FRAGMENTS / TOGETHER; ++g) {
        most[g] = fmaxf(sum[g * TOGETHER * 4 + 2 * h], sum[g * TOGETHER * 4 + 2 * h + 1]);
#pragma unroll
        for (int n = g * TOGETHER + 1; n < (g + 1) * TOGETHER; ++n)
          most[g] = fmaxf(most[g], fmaxf(sum[n * 4 + 2 * h], sum[n * 4 + 2 * h + 1]));
        all = fmaxf(all, most[g]);
      }
      if (all < least) continue;
#pragma unroll
      for (int g = 0; g < FRAGMENTS / TOGETHER; ++g) {
        if (most[g] < least) continue;
#pragma unroll
        for (int n = g * TOGETHER; n < (g + 1) * TOGETHER; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (!(sum[n * 4 + 2 * h + e] < least))
              visitor.hit(h, column_tile, n * 8 + lane_column() + e, sum[n * 4 + 2 * h + e]);
      }
    }
  }

  // The same hits as bits, for a visitor that needs no values: the sums are dead when it looks at them.
  template <class Threshold>
  __device__ __forceinline__ u64 hits(const Threshold& threshold) const {
    u64 bits = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float least = threshold(lane_row() + h * 8);
      unsigned part = 0;
#pragma unroll
      for (int i = 0; i < 2 * FRAGMENTS; ++i) part |= !(sum[i / 2 * 4 + 2 * h + i % 2] < least) ? 1u << i : 0u;
      bits |= static_cast<u64>(part) << (h * 32);
    }
    return bits;
  }
  // Of some hits the lightest, as good as the sums tell it: the largest of its squared distance and the least that its
  // row and its column allow, row_floor(row of the warp) and column_floor(column of the tile). Returns that, and its bit.
  template <class RowFloor, class ColumnFloor>
  __device__ __forceinline__ float lightest_of(u64 bits, const RowFloor& row_floor, const ColumnFloor& column_floor, int& lightest_bit) const {
    float lightest = float_infinity();
    lightest_bit = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane_row() + h * 8;
      const float norm = rows.norm[first_row_of_warp() + row], floor = row_floor(row);
#pragma unroll
      for (int i = 0; i < 2 * FRAGMENTS; ++i) {
        const float squared = fmaxf(norm * norm - 2.f * sum[i / 2 * 4 + 2 * h + i % 2], fmaxf(floor, column_floor(column_of_bit(i))));
        if (bits >> (h * 32 + i) & 1ull && squared < lightest) lightest = squared, lightest_bit = h * 32 + i;
      }
    }
    return lightest;
  }
  // The bits of columns that `mask` (a bit for each column of the tile) lets through.
  __device__ __forceinline__ static u64 bits_of_columns(const unsigned (&mask)[TILE / 32]) {
    unsigned bits = 0;
#pragma unroll
    for (int n = 0; n < FRAGMENTS; ++n) bits |= (mask[n / 4] >> (n % 4 * 8 + lane_column()) & 3u) << (n * 2);
    return static_cast<u64>(bits) << 32 | bits;
  }
  __device__ __forceinline__ static u64 bits_of_row(int h) { return 0xffffffffull << (h * 32); }
  __device__ __forceinline__ static int row_of_bit(int bit) { return lane_row() + bit / 32 * 8; }
  __device__ __forceinline__ static int column_of_bit(int bit) { return bit % 32 / 2 * 8 + lane_column() + bit % 2; }
};
