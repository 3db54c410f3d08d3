// Tile pairs in single precision, by differences, each tile in a frame of its own.
//
// A row is x = centre of its tile + offset (float32) + residual. For tiles I, J the shift D = centre_I - centre_J is
// rounded once, and the difference of two rows is (offset_x + D) - offset_y: what rounding costs is relative to
// the tiles and to the distance, never to the norm of the rows. That serves few features, where boxes exclude nearly
// everything, and tight groups far apart, where halves exclude nothing.
#pragma once
#include "common.cuh"
#include "scan.cuh"

struct FrameRows {  // a set of rows in tiles
  const float* offsets;     // (n_tiles, n_features, TILE); infinite for padding
  const double* centre;     // (n_tiles, n_features), scaled
  const float* residual;    // (n_tiles * TILE), rounded up, with 2^-22 of |offset| in it
  const float* tile_residual;
};

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory and no sum is kept across a barrier.
template <bool ONE_SLAB_>
struct FrameTiles {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr bool WARPS_SKIP = true;
  static constexpr int STAGES = 2;
  static constexpr int SLAB = 16;   // features at once
  static constexpr int EDGE = 8;    // a thread's share: 8 rows x 8 columns
  static constexpr int SIDE = TILE / EDGE;
  // Which rows of the warp a lane has sums of: lane_row() + i * ROW_STEP, i < LANE_ROWS; ROW_LANES lanes share a row.
  static constexpr int LANE_ROWS = EDGE, ROW_STEP = 1, ROW_LANES = SIDE;
  struct RowMargin {
    float residual;
  };
  using TileMargin = RowMargin;
  using List = TileList<TileMargin>;
  using Ring = BarrierRing<FrameTiles>;

  FrameRows rows, columns;
  int row_tile, width, n_slabs;  // width: features
  float accumulation;            // relative error of a squared distance: (features + 8) 2^-24
  float* shared_columns;         // [STAGES][SLAB][TILE]
  float* shared_rows;            // [ONE_SLAB ? 1 : STAGES][SLAB][TILE]
  float* shared_shift;           // [STAGES][SLAB]
  int* shared_count;             // [STAGES], features of the slab
  float sum[EDGE][EDGE];

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : (width + SLAB - 1) / SLAB;
    shared_shift = reinterpret_cast<float*>(shared);
    shared_columns = shared_shift + STAGES * SLAB;
    shared_rows = shared_columns + STAGES * SLAB * TILE;
    shared_count = reinterpret_cast<int*>(shared_rows + (ONE_SLAB ? 1 : STAGES) * SLAB * TILE);
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

  __device__ __forceinline__ void issue(int stage, int column_tile, int slab) const {
    copy_slab(shared_columns + stage * SLAB * TILE, columns.offsets, column_tile, slab);
    if (!ONE_SLAB) copy_slab(shared_rows + stage * SLAB * TILE, rows.offsets, row_tile, slab);
    if (threadIdx.x < features_of(slab)) {
      const i64 f = slab * SLAB + threadIdx.x;
      shared_shift[stage * SLAB + threadIdx.x] = __double2float_rn(
          __dsub_rn(rows.centre[static_cast<i64>(row_tile) * width + f], columns.centre[static_cast<i64>(column_tile) * width + f]));
    }
    if (threadIdx.x == 0) shared_count[stage] = features_of(slab);
  }

  // A half warp has 8 rows of the warp's and all columns: c .. c+3 and c+64 .. c+67, so that sixteen threads read 256
  // bytes in a row.
  __device__ __forceinline__ static int lane_row() { return threadIdx.x % LANES / SIDE * EDGE; }
  __device__ __forceinline__ static int lane_column(int j) { return threadIdx.x % SIDE * 4 + j % 4 + j / 4 * (TILE / 2); }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage) {
    if (FIRST) {
#pragma unroll
      for (int i = 0; i < EDGE; ++i)
#pragma unroll
        for (int j = 0; j < EDGE; ++j) sum[i][j] = 0.f;
    }
    const float* a = shared_rows + (ONE_SLAB ? 0 : stage * SLAB * TILE) + threadIdx.x / LANES * WARP_ROWS + lane_row();
    const float* b = shared_columns + stage * SLAB * TILE + lane_column(0);
    const int n_features = ONE_SLAB ? width : shared_count[stage];
    for (int f = 0; f < n_features; ++f) {
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

  // Calls hit(i, column of the tile, squared distance) for what its row's threshold(row of the warp) does
  // not exclude. A sum may be NaN (infinity minus infinity): NaN is a hit.
  template <class Threshold, class Visitor>
  __device__ __forceinline__ void visit(const Threshold& threshold, Visitor& visitor, int column_tile) {
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const float most = threshold(lane_row() + i);
      bool any = false;
#pragma unroll
      for (int j = 0; j < EDGE; ++j) any |= !(sum[i][j] > most);
      if (!any) continue;
#pragma unroll
      for (int j = 0; j < EDGE; ++j)
        if (!(sum[i][j] > most)) visitor.hit(i, column_tile, lane_column(j), sum[i][j]);
    }
  }

  // The same hits as bits, for a visitor that needs no values: the sums are dead when it looks at them.
  template <class Threshold>
  __device__ __forceinline__ u64 hits(const Threshold& threshold) const {
    u64 bits = 0;
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const float most = threshold(lane_row() + i);
      unsigned part = 0;
#pragma unroll
      for (int j = 0; j < EDGE; ++j) part |= !(sum[i][j] > most) ? 1u << j : 0u;
      bits |= static_cast<u64>(part) << (i * EDGE);
    }
    return bits;
  }
  // Of some hits the lightest, as good as the sums tell it: the largest of its squared distance and the least that its
  // row and its column allow, row_floor(row of the warp) and column_floor(column of the tile). Returns that, and its bit.
  template <class RowFloor, class ColumnFloor>
  __device__ __forceinline__ float lightest_of(u64 bits, const RowFloor& row_floor, const ColumnFloor& column_floor, int& lightest_bit) const {
    float lightest = float_infinity(), floors[EDGE];
    lightest_bit = 0;
#pragma unroll
    for (int j = 0; j < EDGE; ++j) floors[j] = column_floor(lane_column(j));
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const float floor = row_floor(lane_row() + i);
#pragma unroll
      for (int j = 0; j < EDGE; ++j) {
        const float squared = fmaxf(sum[i][j], fmaxf(floor, floors[j]));
        if (bits >> (i * EDGE + j) & 1ull && squared < lightest) lightest = squared, lightest_bit = i * EDGE + j;
      }
    }
    return lightest;
  }
  // The bits of columns that `mask` (a bit for each column of the tile) lets through.
  __device__ __forceinline__ static u64 bits_of_columns(const unsigned (&mask)[TILE / 32]) {
    const int c = lane_column(0);
    const unsigned low = (c < 32 ? mask[0] : mask[1]) >> c % 32 & 15u, high = (c < 32 ? mask[2] : mask[3]) >> c % 32 & 15u;
    return static_cast<u64>(low | high << 4) * 0x0101010101010101ull;
  }
  __device__ __forceinline__ static u64 bits_of_row(int i) { return 0xffull << (i * EDGE); }
  __device__ __forceinline__ static int row_of_bit(int bit) { return lane_row() + bit / EDGE; }
  __device__ __forceinline__ static int column_of_bit(int bit) { return lane_column(bit % EDGE); }

  __device__ __forceinline__ RowMargin row_margin(int row) const {
    return {rows.residual[static_cast<i64>(row_tile) * TILE + row]};
  }
  __device__ __forceinline__ TileMargin tile_margin(int column_tile) const {
    return {columns.tile_residual[column_tile]};
  }

  // How far a distance of at most `distance` may be from the computed one (before the relative error of the sum):
  // |D| <= distance + both |offset|s + both residuals, and D and offset + D are each rounded once: to 2^-22 of all that.
  __device__ __forceinline__ static float slack(const RowMargin& x, const RowMargin& y, float distance) {
    const float residuals = __fadd_ru(x.residual, y.residual);
    return __fmaf_ru(0x1p-22f, __fmaf_ru(2.f, residuals, distance), residuals);
  }

  // The largest sum that a distance of at most `reach` can have; reach < 0: nothing is searched.
  __device__ __forceinline__ float threshold_of(const RowMargin& row, const TileMargin& tile, float reach) const {
    const float t = __fadd_ru(reach, slack(row, tile, reach));
    return reach < 0.f ? -1.f : __fmul_ru(__fmul_ru(t, t), 1.f + 4.f * accumulation);
  }

  __device__ __forceinline__ RowMargin margin_of(const FrameRows& of, i64 i) const { return {of.residual[i]}; }

  // An upper bound of the distance, from the sum.
  __device__ __forceinline__ float upper(i64 x, i64 y, float squared) const {
    if (!(squared < float_infinity())) return float_infinity();
    const float root = root_above(__fmul_ru(squared, 1.f + 4.f * accumulation));
    return __fadd_ru(root, slack(margin_of(rows, x), margin_of(columns, y), __fmul_ru(root, 1.001f)));
  }

  // A lower bound of the distance, from its upper bound.
  __device__ __forceinline__ float lower(i64 x, i64 y, float upper) const {
    if (upper == float_infinity()) return 0.f;
    const float off = __fmul_ru(2.f, slack(margin_of(rows, x), margin_of(columns, y), upper));
    return __fsub_rd(__fmul_rd(upper, 1.f - 8.f * accumulation), off);
  }
};
