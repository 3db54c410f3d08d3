// Tile pairs of halves by the tensor cores of a warp: 32 rows x 64 columns of a tile pair each.
#pragma once
#include "half_margins.cuh"

#ifndef MREACH_SLAB_STEPS
#define MREACH_SLAB_STEPS 4  // products 16 deep that one slab of features takes
#endif
#ifndef MREACH_STAGES
#define MREACH_STAGES 3  // slabs in shared memory: one in use, the others under way
#endif

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory and no sum is kept across a barrier.
template <bool ONE_SLAB_>
struct HalfTiles : HalfMargins {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr int STAGES = MREACH_STAGES;
  static constexpr int SLAB = MREACH_SLAB_STEPS * 16;
  static constexpr int PITCH = SLAB + 8;  // in halves: the eight rows of a fragment then lie in different banks
  static constexpr int ROW_FRAGMENTS = 2, COLUMN_FRAGMENTS = 8;  // a warp's share: 32 rows x 64 columns
  half_bits* shared_columns;  // [STAGES][TILE][PITCH]
  half_bits* shared_rows;     // [ONE_SLAB ? 1 : STAGES][TILE][PITCH]
  float* shared_start;        // [STAGES][TILE]
  float sum[ROW_FRAGMENTS][COLUMN_FRAGMENTS][4];

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : (width + SLAB - 1) / SLAB;
    shared_start = reinterpret_cast<float*>(shared);
    shared_columns = reinterpret_cast<half_bits*>(shared_start + STAGES * TILE);
    shared_rows = shared_columns + STAGES * TILE * PITCH;
    if (ONE_SLAB) copy_slab(shared_rows, rows.halves, row_tile, 0);
  }

  __device__ __forceinline__ void copy_slab(half_bits* into, const half_bits* from, i64 tile, int slab) const {
    constexpr int CHUNKS = SLAB / 8;                  // of 16 bytes in a row
    constexpr int AT_ONCE = SCAN_THREADS / CHUNKS;    // rows that all threads copy together
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const half_bits* source = from + (tile * TILE + row) * width + slab * SLAB + chunk * 8;
    half_bits* target = into + row * PITCH + chunk * 8;
#pragma unroll
    for (int i = 0; i < TILE / AT_ONCE; ++i) copy_async_16(target + i * AT_ONCE * PITCH, source + i * AT_ONCE * width);
  }

  __device__ __forceinline__ static void publish() {}  // the barrier alone makes copies visible

  // Start copying a slab of a column tile (and of the rows, where they do not fit at once).
  __device__ __forceinline__ void issue(int stage, int column_tile, int slab) const {
    copy_slab(shared_columns + stage * TILE * PITCH, columns.halves, column_tile, slab);
    if (!ONE_SLAB) copy_slab(shared_rows + stage * TILE * PITCH, rows.halves, row_tile, slab);
    if (slab == 0 && threadIdx.x < TILE / 4)
      copy_async_16(shared_start + stage * TILE + threadIdx.x * 4,
                    columns.start + static_cast<i64>(column_tile) * TILE + threadIdx.x * 4);
  }

  __device__ __forceinline__ int warp_row() const { return (threadIdx.x / LANES % 4) * 32; }
  __device__ __forceinline__ int warp_column() const { return (threadIdx.x / LANES / 4) * 64; }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage, int slab) {
    const int lane = threadIdx.x % LANES;
    if (FIRST) {
#pragma unroll
      for (int n = 0; n < COLUMN_FRAGMENTS; ++n) {
        const float2 start = *reinterpret_cast<const float2*>(shared_start + stage * TILE + warp_column() + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int m = 0; m < ROW_FRAGMENTS; ++m) sum[m][n][0] = sum[m][n][2] = start.x, sum[m][n][1] = sum[m][n][3] = start.y;
      }
    }
    // Row fragments: lanes 0-15 address the 16 rows at the first 8 features, lanes 16-31 at the next 8.
    const half_bits* a_row = shared_rows + (ONE_SLAB ? 0 : stage * TILE * PITCH) +
                             (warp_row() + lane % 16) * PITCH + lane / 16 * 8;
    // Column fragments: 16 columns x 16 features; lanes 0-15 the first 8 columns, lanes 8-15 and 24-31 the features from 8.
    const half_bits* b_row = shared_columns + stage * TILE * PITCH +
                             (warp_column() + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int step = 0; step < MREACH_SLAB_STEPS; ++step) {
      unsigned a[ROW_FRAGMENTS][4];
#pragma unroll
      for (int m = 0; m < ROW_FRAGMENTS; ++m) load_matrix_x4(a[m], a_row + m * 16 * PITCH + step * 16);
#pragma unroll
      for (int n = 0; n < COLUMN_FRAGMENTS; n += 2) {
        unsigned b[4];
        load_matrix_x4(b, b_row + n * 8 * PITCH + step * 16);
        const unsigned b_low[2] = {b[0], b[1]}, b_high[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < ROW_FRAGMENTS; ++m) {
          mma_m16n8k16(sum[m][n], a[m], b_low);
          mma_m16n8k16(sum[m][n + 1], a[m], b_high);
        }
      }
    }
  }

  // Calls hit(row in tile, column in tile, sum) for each sum that its row's threshold does not exclude. Hits are
  // rare: one maximum over a row's columns decides whether to look at them one by one. (No sum is NaN.)
  template <class Visitor>
  __device__ __forceinline__ void visit(const float* threshold, Visitor& visitor, int column_tile) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int m = 0; m < ROW_FRAGMENTS; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp_row() + m * 16 + h * 8 + lane / 4;
        float most = sum[m][0][2 * h];
#pragma unroll
        for (int n = 0; n < COLUMN_FRAGMENTS; ++n) most = fmaxf(most, fmaxf(sum[m][n][2 * h], sum[m][n][2 * h + 1]));
        const float least = threshold[row];
        if (most < least) continue;
#pragma unroll
        for (int n = 0; n < COLUMN_FRAGMENTS; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (!(sum[m][n][2 * h + e] < least))
              visitor.hit(*this, row, column_tile, warp_column() + n * 8 + lane % 4 * 2 + e, sum[m][n][2 * h + e]);
      }
  }

  // The same hits as bits, for a visitor that needs no values: the sums are dead when it looks at them.
  template <class Threshold>
  __device__ __forceinline__ u64 hits(const Threshold& threshold) const {
    const int lane = threadIdx.x % LANES;
    u64 bits = 0;
#pragma unroll
    for (int m = 0; m < ROW_FRAGMENTS; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float least = threshold(warp_row() + m * 16 + h * 8 + lane / 4);
        unsigned part = 0;
#pragma unroll
        for (int n = 0; n < COLUMN_FRAGMENTS; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) part |= !(sum[m][n][2 * h + e] < least) ? 1u << (n * 2 + e) : 0u;
        bits |= static_cast<u64>(part) << ((m * 2 + h) * 16);
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
    for (int m = 0; m < ROW_FRAGMENTS; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row_of_bit((m * 2 + h) * 16);
        const float norm = rows.norm[static_cast<i64>(row_tile) * TILE + row], floor = row_floor(row);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const int bit = (m * 2 + h) * 16 + i;
          const float squared = fmaxf(norm * norm - 2.f * sum[m][i / 2][2 * h + i % 2], fmaxf(floor, column_floor(column_of_bit(bit))));
          if (bits >> bit & 1ull && squared < lightest) lightest = squared, lightest_bit = bit;
        }
      }
    return lightest;
  }
  // The bits of columns that `mask` (a bit for each column of the tile) lets through.
  __device__ __forceinline__ u64 bits_of_columns(const unsigned* mask) const {
    const unsigned* words = mask + warp_column() / 32;
    const u64 own = (static_cast<u64>(words[1]) << 32 | words[0]) >> (threadIdx.x % 4 * 2);
    u64 bits = 0;
#pragma unroll
    for (int n = 0; n < COLUMN_FRAGMENTS; ++n) bits |= (own >> (n * 8) & 3ull) << (n * 2);
    return bits * 0x0001000100010001ull;
  }
  __device__ __forceinline__ int row_of_bit(int bit) const { return warp_row() + bit / 16 * 8 + threadIdx.x % LANES / 4; }
  __device__ __forceinline__ int column_of_bit(int bit) const {
    return warp_column() + bit % 16 / 2 * 8 + threadIdx.x % 4 * 2 + bit % 2;
  }
};
