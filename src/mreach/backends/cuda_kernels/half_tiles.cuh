// Tile pairs of halves by the tensor cores of single warps (Turing and later).
#pragma once
#include "half_sums.cuh"
#include "scan.cuh"

#ifndef MREACH_SLAB_STEPS
#define MREACH_SLAB_STEPS 4  // products 16 deep that one slab of features takes
#endif
#ifndef MREACH_STAGES
#define MREACH_STAGES 3  // slabs in shared memory: one in use, the others under way
#endif

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory and no sum is kept across a barrier.
template <bool ONE_SLAB_>
struct HalfTiles : HalfSums {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr bool WARPS_SKIP = true;
  static constexpr int STAGES = MREACH_STAGES;
  static constexpr int SLAB = MREACH_SLAB_STEPS * 16;
  static constexpr int PITCH = SLAB + 8;  // in halves: the eight rows of a fragment then lie in different banks
  using List = TileList<TileMargin>;
  using Ring = BarrierRing<HalfTiles>;

  half_bits* shared_columns;  // [STAGES][TILE][PITCH]
  half_bits* shared_rows;     // [ONE_SLAB ? 1 : STAGES][TILE][PITCH]
  float* shared_start;        // [STAGES][TILE]

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : (width + SLAB - 1) / SLAB;
    shared_start = reinterpret_cast<float*>(shared);
    shared_columns = reinterpret_cast<half_bits*>(shared_start + STAGES * TILE);
    shared_rows = shared_columns + STAGES * TILE * PITCH;
    if (ONE_SLAB) copy_slab(shared_rows, rows.halves, row_tile, 0);
  }

  __device__ __forceinline__ void copy_slab(half_bits* into, const half_bits* from, i64 tile, int slab) const {
    constexpr int CHUNKS = SLAB / 8;                // of 16 bytes in a row
    constexpr int AT_ONCE = SCAN_THREADS / CHUNKS;  // rows that all threads copy together
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const half_bits* source = from + (tile * TILE + row) * width + slab * SLAB + chunk * 8;
    half_bits* target = into + row * PITCH + chunk * 8;
#pragma unroll
    for (int i = 0; i < TILE / AT_ONCE; ++i) copy_async_16(target + i * AT_ONCE * PITCH, source + i * AT_ONCE * width);
  }

  // Start copying a slab of a column tile (and of the rows, where they do not fit at once).
  __device__ __forceinline__ void issue(int stage, int column_tile, int slab) const {
    copy_slab(shared_columns + stage * TILE * PITCH, columns.halves, column_tile, slab);
    if (!ONE_SLAB) copy_slab(shared_rows + stage * TILE * PITCH, rows.halves, row_tile, slab);
    if (slab == 0 && threadIdx.x < TILE / 4)
      copy_async_16(shared_start + stage * TILE + threadIdx.x * 4,
                    columns.start + static_cast<i64>(column_tile) * TILE + threadIdx.x * 4);
  }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage) {
    const int lane = threadIdx.x % LANES;
    if (FIRST) begin(shared_start + stage * TILE);
    // Row fragments: lanes 0-15 address the 16 rows at the first 8 features, lanes 16-31 at the next 8.
    const half_bits* a_row = shared_rows + (ONE_SLAB ? 0 : stage * TILE * PITCH) +
                             (threadIdx.x / LANES * WARP_ROWS + lane % 16) * PITCH + lane / 16 * 8;
    // Column fragments: 16 columns x 16 features; lanes 0-15 the first 8 columns, lanes 8-15 and 24-31 the features from 8.
    const half_bits* b_row = shared_columns + stage * TILE * PITCH + (lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
    for (int step = 0; step < MREACH_SLAB_STEPS; ++step) {
      unsigned a[4];
      load_matrix_x4(a, a_row + step * 16);
#pragma unroll
      for (int n = 0; n < FRAGMENTS; n += 2) {
        unsigned b[4];
        load_matrix_x4(b, b_row + n * 8 * PITCH + step * 16);
        const unsigned b_low[2] = {b[0], b[1]}, b_high[2] = {b[2], b[3]};
        mma_m16n8k16(&sum[n * 4], a, b_low);
        mma_m16n8k16(&sum[(n + 1) * 4], a, b_high);
      }
    }
  }
};
