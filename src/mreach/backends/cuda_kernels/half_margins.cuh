// What sums of products of halves prove: thresholds, upper and lower bounds of distances.
//
// For rows x, y rounded to x^, y^ with residuals r >= |x - x^| the sum s = x^.y^ - |y^|^2 / 2 gives
// |x^ - y^|^2 = |x^|^2 - 2 s, and |d(x, y) - |x^ - y^|| <= r_x + r_y. The accumulated s is off by at most
// accumulation * (|x^||y^| + |y^|^2 / 2), with accumulation = (padded features + 16) 2^-22: tensor cores truncate.
// Rows beyond the range of halves are clamped coordinate by coordinate, which lengthens no distance: lower bounds
// hold for them as for all, upper bounds do not ("reliable" is then infinite).
#pragma once
#include "common.cuh"

struct HalfRows {  // a set of rows in tiles
  const half_bits* halves;      // (n_tiles * TILE, width)
  const float* start;           // -|y^|^2 / 2, rounded up; -infinity for padding
  const float* norm;            // |y^|, rounded up
  const float* residual;        // rounded up
  const float* reliable;        // the same, infinite where the row was clamped
  const float* tile_norm;       // the largest of each tile
  const float* tile_residual;
};

struct HalfMargins {
  static constexpr float LOWEST = -3.0e38f;  // threshold of a row that takes every pair, above that of padding

  HalfRows rows, columns;
  int row_tile, width, n_slabs;
  float accumulation;

  __device__ __forceinline__ i64 first_row_of_warp() const {
    return static_cast<i64>(row_tile) * TILE + threadIdx.x / LANES * WARP_ROWS;
  }

  __device__ __forceinline__ float error(float row_norm, float column_norm) const {
    return __fmul_ru(accumulation, __fmul_ru(column_norm, __fmaf_ru(0.5f, column_norm, row_norm)));
  }

  struct RowMargin {
    float start, norm, residual;
  };
  struct TileMargin {
    float norm, residual;
  };
  __device__ __forceinline__ RowMargin row_margin(int row) const {
    const i64 x = static_cast<i64>(row_tile) * TILE + row;
    return {rows.start[x], rows.norm[x], rows.residual[x]};
  }
  __device__ __forceinline__ TileMargin tile_margin(int column_tile) const {
    return {columns.tile_norm[column_tile], columns.tile_residual[column_tile]};
  }

  // What a sum must reach so that a distance of at most `reach` is possible; reach < 0: nothing is searched.
  __device__ __forceinline__ float threshold_of(const RowMargin& row, const TileMargin& tile, float reach) const {
    const float t = __fadd_ru(reach, __fadd_ru(row.residual, tile.residual));
    const float least = 0.5f * __fsub_rd(-2.f * row.start, __fmul_ru(t, t));
    return reach < 0.f ? float_infinity() : fmaxf(LOWEST, __fsub_rd(least, error(row.norm, tile.norm)));
  }

  // An upper bound of the distance, from the sum.
  __device__ __forceinline__ float upper(i64 x, i64 y, float s) const {
    const float norm = rows.norm[x];
    const float low = __fsub_rd(s, error(norm, columns.norm[y]));
    const float squared = __fsub_ru(__fmul_ru(norm, norm), 2.f * low);
    return __fadd_ru(root_above(squared), __fadd_ru(rows.reliable[x], columns.reliable[y]));
  }

  // A lower bound of the distance, from its upper bound. What upper() rounded up is covered: 2^-18 of the square for the
  // root (2^-19), for adding and taking off the residuals and for subtracting; 2^-19 of the norm's for the norm.
  __device__ __forceinline__ float lower(i64 x, i64 y, float upper) const {
    if (upper == float_infinity()) return 0.f;
    const float norm = rows.norm[x], both = __fadd_ru(rows.residual[x], columns.residual[y]);
    const float wide = fmaxf(0.f, __fsub_rd(upper, both));
    const float off = __fmaf_ru(4.f, error(norm, columns.norm[y]), __fmul_ru(norm, __fmul_ru(norm, 0x1p-19f)));
    const float squared = __fsub_rd(__fmul_rd(wide, __fmul_rd(wide, 1.f - 0x1p-18f)), off);
    return __fsub_rd(root_below(squared), both);
  }
};
