#include "frame_tiles.cuh"
#include "nearest.cuh"

#define NEAREST_KERNEL(NAME, ONE_SLAB)                                                                                       \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) NAME(                                                        \
      const float* offsets, const double* centre, const float* residual, const float* tile_residual, \
      int width, float accumulation, const float* box_low, const float* box_high, int n_tiles, int n_leading, i64 n_columns, \
      const int* row_tiles, i64 first_place, i64 end_place, int k, int limit, int capacity, float distance_slack,            \
      float box_factor, float* reach, int* counts, u64* entries, u64* statistics) {                                \
    extern __shared__ __align__(16) unsigned char shared_memory[];                                                           \
    FrameTiles<ONE_SLAB> tiles;                                                                                               \
    tiles.rows = tiles.columns = FrameRows{offsets, centre, residual, tile_residual}; \
    tiles.row_tile = row_tiles[blockIdx.x];                                                                                  \
    tiles.width = width;                                                                                                     \
    tiles.accumulation = accumulation;                                                                                       \
    search_nearest(tiles, shared_memory, Boxes{box_low, box_high, n_tiles, n_leading}, n_columns,                            \
                   first_place, end_place, k, limit, capacity, distance_slack, box_factor, reach, counts, entries,           \
                   statistics);                                                                                   \
  }

NEAREST_KERNEL(nearest_frame_kernel, true)
NEAREST_KERNEL(nearest_frame_slabs_kernel, false)
