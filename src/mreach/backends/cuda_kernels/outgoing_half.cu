#include "half_sums.cuh"
#include "scan.cuh"
#ifdef MREACH_WARPGROUP
#include "warpgroup_tiles.cuh"
#define HALF_TILES WarpgroupTiles
#else
#include "half_tiles.cuh"
#define HALF_TILES HalfTiles
#endif
#include "outgoing.cuh"

#define OUTGOING_KERNEL(NAME, ONE_SLAB)                                                                                 \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) NAME(                                                   \
      const half_bits* row_halves, const float* row_start, const float* row_norm, const float* row_residual, const      \
      float* row_reliable, const float* row_tile_norm, const float* row_tile_residual, const half_bits* column_halves,  \
      const float* column_start, const float* column_norm, const float* column_residual, const float* column_reliable,  \
      const float* column_tile_norm, const float* column_tile_residual, int width, float accumulation, const float*     \
      row_low, const float* row_high, int n_row_tiles, const float* column_low, const float* column_high, int           \
      n_column_tiles, int n_leading, const void* values, i64 pitch, int is_double, const int* row_of, const double*     \
      core, const int* component, double alpha, double scale, float distance_slack, u64* best, u64* queue, unsigned     \
      queue_capacity, u64* queue_count, u64* pair, unsigned* smallest, const int* row_position, i64 n_rows, const int*        \
      column_position, const float* column_core, const int* column_component, i64 n_columns, const int*                 \
      column_tile_component, const double* column_tile_core, float box_factor, int first_row_tile, int phase, int       \
      blocks_of_tile, i64 places_of_block, i64 first, i64 end, u64* statistics) {                                       \
    extern __shared__ __align__(16) unsigned char shared_memory[];                                                      \
    HALF_TILES<ONE_SLAB> tiles;                                                                                         \
    tiles.rows = HalfRows{row_halves, row_start, row_norm, row_residual, row_reliable, row_tile_norm,                   \
        row_tile_residual};                                                                                             \
    tiles.columns = HalfRows{column_halves, column_start, column_norm, column_residual, column_reliable,                \
        column_tile_norm, column_tile_residual};                                                                        \
    tiles.row_tile = first_row_tile + static_cast<int>(blockIdx.x) / blocks_of_tile;                                    \
    const i64 first_place = first + static_cast<i64>(static_cast<int>(blockIdx.x) % blocks_of_tile) * places_of_block;  \
    const i64 end_place = min(end, first_place + places_of_block);                                                      \
    tiles.width = width;                                                                                                \
    tiles.accumulation = accumulation;                                                                                  \
    const Forest forest{values, pitch, is_double, row_of, core, component, alpha, scale, distance_slack, best,          \
        queue, queue_capacity, queue_count, pair, smallest};                                                                  \
    search_outgoing(tiles, shared_memory, Boxes{row_low, row_high, n_row_tiles, n_leading}, Boxes{column_low,           \
        column_high, n_column_tiles, n_leading}, forest, row_position, n_rows, column_position, column_core,            \
        column_component, n_columns, column_tile_component, column_tile_core, box_factor, phase, first_place,           \
        end_place, statistics);                                                                                         \
  }

OUTGOING_KERNEL(outgoing_half_kernel, true)
OUTGOING_KERNEL(outgoing_half_slabs_kernel, false)
