// The filter's inner loops, as plain functions: the same source is compiled for several instruction sets
// (kernels_*.cpp) and one set is chosen at run time. Nothing here validates or allocates, and no header of
// the C++ library is used in those files: the linker might keep their copy of a shared inline function.
#pragma once
#include <stdint.h>

namespace mreach {

constexpr int PANEL = 32;      // points of a panel: the filter's columns
constexpr int ROW_BLOCK = 24;  // rows that share one box test: the filter's rows, a multiple of every tile height
constexpr int FANOUT = 16;     // children of a node in the tree of boxes
constexpr int EXACT_LANES = 8;  // candidates whose exact distances are summed side by side
constexpr int MAX_BLOCKS = 16;  // row blocks of a group; one vector of doubles
constexpr int GROUP_STRIDE = ROW_BLOCK * MAX_BLOCKS;

struct Kernels {
  const char* name;
  int n_tiles;  // register tiles of a row block against a panel

  // Filter of ROW_BLOCK rows against one panel. For row r and column c it forms
  //   row_start[r] + column_start[c] + sum_f rows[f][r] * columns[f][c]
  // and clears bit c of hits[r] where that is less than both row_bound[r] and column_bound[c]; a NaN keeps its bit.
  // Works on the register tiles whose bit is set in `tiles` and returns those that still hold a hit; all-ones asks
  // for every tile.
  uint32_t (*filter_block)(const float* rows, const float* columns, int n_coordinates, const float* row_start,
                           const float* row_bound, const float* column_start, const float* column_bound,
                           uint32_t tiles, uint32_t* hits);

  // Tiles that are left when rows farther from a box (lower[f], upper[f]) than limit[r] are given up: a row stays
  // unless its squared distance is greater.
  uint32_t (*near_tiles)(const float* rows, const float* lower, const float* upper, int n_coordinates,
                         const float* limit);

  // A panel's coordinates in another frame: moved[f][c] = offsets[f][c] + shift[f], with their squared norms.
  void (*move_panel)(const float* offsets, const float* shift, int n_coordinates, float* moved,
                     float* squared_norms);

  // Squared distances between one box (lower[f], upper[f]) and the FANOUT child boxes of a node
  // (children[f][side][child]).
  void (*child_distances)(const double* children, const double* lower, const double* upper, int n_coordinates,
                          double* squared_distances);

  // Squared distances between MAX_BLOCKS row boxes (rows[f][side][block]) and one child box of a node.
  void (*block_distances)(const double* rows, const double* child, int n_coordinates, double* squared_distances);

  // Exact squared distances (exact.h) of EXACT_LANES candidates: compiled apart, without contraction.
  void (*exact_sums_float)(const float* x, const float* const* candidates, int n_features, double* sums);
  void (*exact_sums_double)(const double* x, const double* const* candidates, int n_features, double* sums);
};

// The best set for this processor, or the named one; nullptr if that cannot run here.
const Kernels* select_kernels(const char* name);
// Names of the sets that can run here, best first; at most `capacity` of them. Returns their number.
int available_kernels(const char** names, int capacity);

}  // namespace mreach
