#include "half_sums.cuh"
#include "scan.cuh"
#ifdef MREACH_WARPGROUP
#include "warpgroup_tiles.cuh"
#define HALF_TILES WarpgroupTiles
#else
#include "half_tiles.cuh"
#define HALF_TILES HalfTiles
#endif
#include "nearest.cuh"

#define NEAREST_KERNEL(NAME, ONE_SLAB)                                                                                       \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) NAME(                                                        \
      const half_bits* halves, const float* start, const float* norm, const float* residual, const float* reliable, const float* tile_norm, const float* tile_residual, \
      int width, float accumulation, const float* box_low, const float* box_high, int n_tiles, int n_leading, i64 n_columns, \
      const int* row_tiles, i64 first_place, i64 end_place, int k, int limit, int capacity, float distance_slack,            \
      float box_factor, float* reach, int* counts, u64* entries, u64* statistics) {                                \
    extern __shared__ __align__(16) unsigned char shared_memory[];                                                           \
    HALF_TILES<ONE_SLAB> tiles;                                                                                               \
    tiles.rows = tiles.columns = HalfRows{halves, start, norm, residual, reliable, tile_norm, tile_residual}; \
    tiles.row_tile = row_tiles[blockIdx.x];                                                                                  \
    tiles.width = width;                                                                                                     \
    tiles.accumulation = accumulation;                                                                                       \
    search_nearest(tiles, shared_memory, Boxes{box_low, box_high, n_tiles, n_leading}, n_columns,                            \
                   first_place, end_place, k, limit, capacity, distance_slack, box_factor, reach, counts, entries,           \
                   statistics);                                                                                   \
  }

NEAREST_KERNEL(nearest_half_kernel, true)
NEAREST_KERNEL(nearest_half_slabs_kernel, false)
