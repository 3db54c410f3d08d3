// Tile pairs in single precision, by differences, each tile in a frame of its own.
//
// A row is x = centre of its tile + offset (float32) + residual. For tiles I, J the shift D = centre_I - centre_J is
// rounded once, and the difference of two rows is (offset_x + D) - offset_y: what rounding costs is relative to
// the tiles and to the distance, never to the norm of the rows. That serves few features, where boxes exclude nearly
// everything, and tight groups far apart, where halves exclude nothing.
#pragma once
#include "common.cuh"

struct FrameRows {  // a set of rows in tiles
  const float* offsets;     // (n_tiles, n_features, TILE); infinite for padding
  const double* centre;     // (n_tiles, n_features), scaled
  const float* residual;    // (n_tiles * TILE), rounded up
  const float* radius;      // (n_tiles), the largest |offset|, rounded up
  const float* tile_residual;
};

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory and no sum is kept across a barrier.
template <bool ONE_SLAB_>
struct FrameTiles {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr int STAGES = 2;
  static constexpr int SLAB = 16;   // features at once
  static constexpr int EDGE = 8;    // a thread's share: 8 rows x 8 columns
  static constexpr int SIDE = TILE / EDGE;

  FrameRows rows, columns;
  int row_tile, width, n_slabs;  // width: features
  float accumulation;            // relative error of a squared distance: (features + 8) 2^-24
  float* shared_columns;         // [STAGES][SLAB][TILE]
  float* shared_rows;            // [ONE_SLAB ? 1 : STAGES][SLAB][TILE]
  float* shared_shift;           // [STAGES][SLAB]
  float sum[EDGE][EDGE];

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : (width + SLAB - 1) / SLAB;
    shared_shift = reinterpret_cast<float*>(shared);
    shared_columns = shared_shift + STAGES * SLAB;
    shared_rows = shared_columns + STAGES * SLAB * TILE;
    if (ONE_SLAB) copy_slab(shared_rows, rows.offsets, row_tile, 0);
  }

  __device__ __forceinline__ int features_of(int slab) const { return min(SLAB, width - slab * SLAB); }

  __device__ __forceinline__ void copy_slab(float* into, const float* from, i64 tile, int slab) const {
    const float* source = from + (tile * width + slab * SLAB) * TILE;
    const int chunks = features_of(slab) * (TILE / 4);  // of 16 bytes
#pragma unroll
    for (int i = 0; i < SLAB * TILE / 4 / SCAN_THREADS; ++i) {
      const int chunk = static_cast<int>(threadIdx.x) + i * SCAN_THREADS;
      if (chunk < chunks) copy_async_16(into + chunk * 4, source + chunk * 4);
    }
  }

  __device__ __forceinline__ static void publish() {}  // the barrier alone makes copies visible

  __device__ __forceinline__ void issue(int stage, int column_tile, int slab) const {
    copy_slab(shared_columns + stage * SLAB * TILE, columns.offsets, column_tile, slab);
    if (!ONE_SLAB) copy_slab(shared_rows + stage * SLAB * TILE, rows.offsets, row_tile, slab);
    if (threadIdx.x < features_of(slab)) {
      const i64 f = slab * SLAB + threadIdx.x;
      shared_shift[stage * SLAB + threadIdx.x] = __double2float_rn(
          __dsub_rn(rows.centre[static_cast<i64>(row_tile) * width + f], columns.centre[static_cast<i64>(column_tile) * width + f]));
    }
  }

  __device__ __forceinline__ int thread_row() const { return static_cast<int>(threadIdx.x) / SIDE * EDGE; }
  // Columns c .. c+3 and c+64 .. c+67: sixteen threads then read 256 bytes in a row.
  __device__ __forceinline__ int thread_column(int j) const {
    return static_cast<int>(threadIdx.x) % SIDE * 4 + j % 4 + j / 4 * (TILE / 2);
  }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage, int slab) {
    if (FIRST) {
#pragma unroll
      for (int i = 0; i < EDGE; ++i)
#pragma unroll
        for (int j = 0; j < EDGE; ++j) sum[i][j] = 0.f;
    }
    const float* a = shared_rows + (ONE_SLAB ? 0 : stage * SLAB * TILE) + thread_row();
    const float* b = shared_columns + stage * SLAB * TILE + thread_column(0);
    for (int f = 0; f < features_of(slab); ++f) {
      const float shift = shared_shift[stage * SLAB + f];
      const float4 a0 = *reinterpret_cast<const float4*>(a + f * TILE), a1 = *reinterpret_cast<const float4*>(a + f * TILE + 4);
      const float4 b0 = *reinterpret_cast<const float4*>(b + f * TILE), b1 = *reinterpret_cast<const float4*>(b + f * TILE + TILE / 2);
      const float x[EDGE] = {a0.x + shift, a0.y + shift, a0.z + shift, a0.w + shift, a1.x + shift, a1.y + shift, a1.z + shift, a1.w + shift};
      const float y[EDGE] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
      for (int i = 0; i < EDGE; ++i)
#pragma unroll
        for (int j = 0; j < EDGE; ++j) {
          const float t = x[i] - y[j];
          sum[i][j] = __fmaf_rn(t, t, sum[i][j]);
        }
    }
  }

  // Calls hit(row in tile, column in tile, squared distance) for what its row's threshold does not exclude. A sum may
  // be NaN (infinity minus infinity): NaN stays, also in the minimum, which is kept apart from it.
  template <class Visitor>
  __device__ __forceinline__ void visit(const float* threshold, Visitor& visitor, int column_tile) {
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const int row = thread_row() + i;
      const float most = threshold[row];
      bool any = false;
#pragma unroll
      for (int j = 0; j < EDGE; ++j) any |= !(sum[i][j] > most);
      if (!any) continue;
#pragma unroll
      for (int j = 0; j < EDGE; ++j)
        if (!(sum[i][j] > most)) visitor.hit(*this, row, column_tile, thread_column(j), sum[i][j]);
    }
  }

  // The same hits as bits, for a visitor that needs no values: the sums are dead when it looks at them.
  template <class Threshold>
  __device__ __forceinline__ u64 hits(const Threshold& threshold) const {
    u64 bits = 0;
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const float most = threshold(thread_row() + i);
      unsigned part = 0;
#pragma unroll
      for (int j = 0; j < EDGE; ++j) part |= !(sum[i][j] > most) ? 1u << j : 0u;
      bits |= static_cast<u64>(part) << (i * EDGE);
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
    for (int bit = 0; bit < EDGE * EDGE; ++bit) {
      const float floor = fmaxf(row_floor(row_of_bit(bit)), column_floor(column_of_bit(bit)));
      const float squared = fmaxf(sum[bit / EDGE][bit % EDGE], floor);
      if (bits >> bit & 1ull && squared < lightest) lightest = squared, lightest_bit = bit;
    }
    return lightest;
  }
  // The bits of columns that `mask` (a bit for each column of the tile) lets through.
  __device__ __forceinline__ u64 bits_of_columns(const unsigned* mask) const {
    const int c = thread_column(0);
    const unsigned low = mask[c / 32] >> c % 32 & 15u, high = mask[c / 32 + 2] >> c % 32 & 15u;
    return static_cast<u64>(low | high << 4) * 0x0101010101010101ull;
  }
  __device__ __forceinline__ int row_of_bit(int bit) const { return thread_row() + bit / EDGE; }
  __device__ __forceinline__ int column_of_bit(int bit) const { return thread_column(bit % EDGE); }

  // How far a distance of at most `distance` may be from the computed one (before the relative error of the sum):
  // |D| <= distance + both radii + both residuals, and D and offset + D are each rounded once.
  __device__ __forceinline__ float slack(i64 x, i64 y_tile, float y_residual, float distance) const {
    const float residuals = __fadd_ru(rows.residual[x], y_residual);
    const float size = __fadd_ru(__fmaf_ru(2.f, residuals, distance), __fadd_ru(rows.radius[x / TILE], columns.radius[y_tile]));
    return __fmaf_ru(0x1p-22f, size, residuals);
  }

  __device__ __forceinline__ float threshold_of(int row, int column_tile, float reach) const {
    const i64 x = static_cast<i64>(row_tile) * TILE + row;
    if (reach < 0.f) return -1.f;
    const float t = __fadd_ru(reach, slack(x, column_tile, columns.tile_residual[column_tile], reach));
    return __fmul_ru(__fmul_ru(t, t), 1.f + 4.f * accumulation);
  }

  __device__ __forceinline__ float upper(int row, i64 y, float squared) const {
    const i64 x = static_cast<i64>(row_tile) * TILE + row;
    if (!(squared < float_infinity())) return float_infinity();
    const float root = __fsqrt_ru(__fmul_ru(squared, 1.f + 4.f * accumulation));
    return __fadd_ru(root, slack(x, y / TILE, columns.residual[y], __fmul_ru(root, 1.001f)));
  }

  __device__ __forceinline__ float lower(int row, i64 y, float upper) const {
    const i64 x = static_cast<i64>(row_tile) * TILE + row;
    if (upper == float_infinity()) return 0.f;
    const float off = __fmul_ru(2.f, slack(x, y / TILE, columns.residual[y], upper));
    return __fsub_rd(__fmul_rd(upper, 1.f - 8.f * accumulation), off);
  }
};
