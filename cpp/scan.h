// One search: a group of rows against the tree of panels, near panels first, everything measured in a frame of the
// group's own. In that frame coordinates are as small as the distances searched, so float32 loses nothing that
// matters, however far from the origin or from each other the groups of the data lie.
//
// A pair is excluded only where  q/2 - E - (1 + 1/ETA)(r_x^2 + r_y^2) > (1 + ETA) T^2 / 2,  q the squared distance
// of the float32 points in the frame, E the bound of the error of its sum, r the residuals, T the row's bound:
// by (a + b)^2 <= (1 + ETA) a^2 + (1 + 1/ETA) b^2 that implies a true distance above T.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exact.h"
#include "points.h"

namespace mreach {

constexpr double ETA = 0x1p-18;  // small: whole clusters can lie at nearly equal distances from each other
constexpr double RESIDUAL_WEIGHT = 2 * (1 + 1 / ETA);  // the 2: what moving to the frame adds to a residual
constexpr double BOUND_SLACK = (1 + ETA) * (1 + 0x1p-22);
constexpr double BOX_SLACK = 1 - 0x1p-30;
constexpr float UNDERFLOW_SLACK = 0x1p-100f;  // above what float32 underflow can take from a sum
constexpr double FLOAT_UNIT = 0x1p-24;
constexpr int TRIAL_WALKS = 8;        // one walk in so many tries every stage, also those that did not pay lately
constexpr double STAGE_MEMORY = 0.9;  // weight of the walks before in what a stage is thought to let through

// Bound of the relative error of a filter sum (see docs/filter.md): |start|, the products and the two squared
// norms, each summed in float32 in any order, fused or not.
inline double accumulation_error(int n_coordinates) { return 2.0 * (n_coordinates + 16) * FLOAT_UNIT; }

// What a search distance is to the filter: a row asks for nothing above it.
struct FilterBound {
  double squared = std::numeric_limits<double>::infinity();  // of the scaled distance; negative: asks for nothing
  float sum = -FLT_MAX;                                      // what a filter sum must reach
  // The same for a squared distance in float32, with room for its rounding.
  float limit() const {
    const double wide = squared * (1 + 0x1p-17) + (squared < 0 ? 0.0f : UNDERFLOW_SLACK);
    return wide < FLT_MAX ? static_cast<float>(wide) : std::numeric_limits<float>::infinity();
  }
};

inline FilterBound filter_bound(const Measure& measure, double distance, double scale) {
  const double scaled = search_bound(measure, distance) * scale, squared = scaled * scaled;
  const double sum = -0.5 * BOUND_SLACK * squared * (1 + 0x1p-22) - UNDERFLOW_SLACK;
  return {squared, sum > -FLT_MAX ? static_cast<float>(sum) : -FLT_MAX};
}

inline int lowest_bit(std::uint32_t mask) { return __builtin_ctz(mask); }

template <class Value>
class RowGroup {
 public:
  explicit RowGroup(const Points<Value>& points) : points_(points) {
    for (const Stage& stage : points.stages) {
      rows.emplace_back(static_cast<std::size_t>(stage.n_coordinates) * GROUP_STRIDE);
      starts.emplace_back(static_cast<std::size_t>(GROUP_STRIDE));
      frames.emplace_back(stage.n_coordinates);
    }
    boxes.resize_discard(static_cast<std::size_t>(points.tree.n_coordinates) * 2 * MAX_BLOCKS);
    lower.resize(points.tree.n_coordinates);
    upper.resize(points.tree.n_coordinates);
  }

  // positions[0..count): the rows, count <= GROUP_STRIDE. Bounds start at infinity.
  void build(const std::int32_t* positions, int count) {
    n_rows = count;
    n_blocks = (count + ROW_BLOCK - 1) / ROW_BLOCK;
    for (std::size_t s = 0; s < points_.stages.size(); ++s) place(static_cast<int>(s), positions);
    const Stage& stage = points_.stages[points_.box_stage];
    for (int f = 0; f < stage.n_coordinates; ++f) {
      double* side = &boxes[static_cast<std::size_t>(f) * 2 * MAX_BLOCKS];
      lower[f] = 0x1p200, upper[f] = -0x1p200;
      for (int b = 0; b < MAX_BLOCKS; ++b) {
        double low = 0x1p200, high = -0x1p200;
        for (int r = b * ROW_BLOCK; r < std::min(n_rows, (b + 1) * ROW_BLOCK); ++r) {
          const double x = stage.coordinate(positions[r], f), e = stage.residuals[positions[r]];
          low = std::min(low, x - e), high = std::max(high, x + e);
        }
        side[b] = low, side[MAX_BLOCKS + b] = high;
        lower[f] = std::min(lower[f], low), upper[f] = std::max(upper[f], high);
      }
    }
    for (int r = 0; r < n_blocks * ROW_BLOCK; ++r) {
      squared_bound[r] = r < n_rows ? std::numeric_limits<double>::infinity() : -1;
      row_bound[r] = r < n_rows ? -FLT_MAX : FLT_MAX;
      row_limit[r] = r < n_rows ? std::numeric_limits<float>::infinity() : -1;
    }
    row_reach = row_residual = 0;
    for (int r = 0; r < n_rows && points_.low_dimension(); ++r) {
      row_residual = std::max(row_residual, static_cast<double>(stage.residuals[positions[r]]));
      for (int f = 0; f < stage.n_coordinates; ++f)
        row_reach = std::max(row_reach, std::fabs(static_cast<double>(rows[points_.box_stage][static_cast<std::size_t>(f) * GROUP_STRIDE + r])));
    }
    for (int b = 0; b < MAX_BLOCKS; ++b) block_bound[b] = -1;
    for (int b = 0; b < n_blocks; ++b) refresh(b);
  }

  // Row r asks for nothing above this distance (the user's units).
  void set_bound(int r, double distance) { set_bound(r, filter_bound(points_.measure, distance, points_.scale())); }
  void set_bound(int r, const FilterBound& bound) {
    squared_bound[r] = bound.squared;
    row_bound[r] = bound.sum;
    row_limit[r] = bound.limit();
  }
  void refresh(int block) {
    double most = -1;
    for (int r = block * ROW_BLOCK; r < (block + 1) * ROW_BLOCK; ++r) most = std::max(most, squared_bound[r]);
    block_bound[block] = most;
    group_bound = *std::max_element(block_bound, block_bound + MAX_BLOCKS);
  }

  int n_rows = 0, n_blocks = 0;
  std::vector<Buffer<float>> rows, starts;     // per stage: (n_coordinates, GROUP_STRIDE), (GROUP_STRIDE)
  std::vector<std::vector<double>> frames;     // per stage: where the frame's origin lies
  Buffer<double> boxes;                        // (n_coordinates, lower/upper, MAX_BLOCKS)
  std::vector<double> lower, upper;            // the box of all rows
  double squared_bound[GROUP_STRIDE], block_bound[MAX_BLOCKS], group_bound = 0;
  double row_reach = 0, row_residual = 0;      // largest coordinate and residual of the rows (low dimension only)
  alignas(64) float row_bound[GROUP_STRIDE], row_limit[GROUP_STRIDE];

 private:
  void place(int s, const std::int32_t* positions) {
    const Stage& stage = points_.stages[s];
    const int w = stage.n_coordinates;
    double norm[GROUP_STRIDE] = {};
    for (int f = 0; f < w; ++f) {
      const double a = stage.coordinate(positions[0], f), b = stage.coordinate(positions[n_rows / 2], f),
                   c = stage.coordinate(positions[n_rows - 1], f);
      const double origin = std::max(std::min(a, b), std::min(std::max(a, b), c));
      frames[s][f] = origin;
      float* out = &rows[s][static_cast<std::size_t>(f) * GROUP_STRIDE];
      for (int r = 0; r < n_blocks * ROW_BLOCK; ++r) {
        out[r] = r < n_rows ? static_cast<float>(stage.coordinate(positions[r], f) - origin) : 0.f;
        norm[r] += static_cast<double>(out[r]) * out[r];
      }
    }
    const double gamma = accumulation_error(w);
    for (int r = 0; r < n_blocks * ROW_BLOCK; ++r) {
      const double residual = r < n_rows ? static_cast<double>(stage.residuals[positions[r]]) : 0;
      starts[s][r] = static_cast<float>((gamma - 0.5) * norm[r] + RESIDUAL_WEIGHT * residual * residual) + UNDERFLOW_SLACK;
    }
  }

  const Points<Value>& points_;
};

constexpr int MAX_STAGES = 3;

struct ScanCounts {
  std::int64_t panels = 0, blocks = 0, hits = 0, exact = 0;
  std::int64_t tiles[MAX_STAGES] = {};  // register tiles computed at each stage

  void add(const ScanCounts& other) {
    panels += other.panels, blocks += other.blocks, hits += other.hits, exact += other.exact;
    for (int s = 0; s < MAX_STAGES; ++s) tiles[s] += other.tiles[s];
  }
};

// Points of a panel that ask for nothing themselves: no bound is below theirs.
struct NoColumnBounds {
  NoColumnBounds() { std::fill(values, values + PANEL, FLT_MAX); }
  alignas(64) float values[PANEL];
};

// A thread's search. The visitor says which nodes and columns matter and takes the hits:
//   bool node(int level, int64 node)             false: nothing below matters to any row of the group
//   uint32 columns(int64 panel)                  the panel's points that may matter
//   double node_bound(int level, int64 node)     squared scaled distance up to which the points below ask for rows of
//                                                the group in their turn; negative: they do not ask
//   const float* column_bounds(int64 panel)      the same for each point of a panel, as FilterBound::sum
//   void hits(int row, int64 panel, uint32 mask) evaluate exactly; may lower bounds (set_bound)
template <class Value>
class Scan {
 public:
  Scan(const Points<Value>& points, const Kernels& kernels) : group(points), points_(points), kernels_(kernels) {
    for (const Stage& stage : points.stages) {
      moved_.emplace_back(static_cast<std::size_t>(stage.n_coordinates) * PANEL);
      column_starts_.emplace_back(static_cast<std::size_t>(PANEL));
      shift_.resize(std::max<std::size_t>(shift_.size(), stage.n_coordinates));
    }
    in_use_.assign(points.stages.size(), true);
    tested_.assign(points.stages.size(), 0);
    passed_.assign(points.stages.size(), 0);
  }

  // Walks all panels. `checkpoint` is asked between panels and ends the walk by returning true.
  template <class Visitor, class Checkpoint>
  void walk(Visitor& visitor, Checkpoint&& checkpoint) {
    stopped_ = false;
    choose_stages();
    descend(points_.tree.n_levels() - 1, 0, visitor, checkpoint);
  }

  template <class Visitor>
  void visit(std::int64_t panel, Visitor& visitor) {
    visit(panel, visitor, 0, group.n_blocks);
  }
  // The row blocks [first_block, end_block) against one panel.
  template <class Visitor>
  void visit(std::int64_t panel, Visitor& visitor, int first_block, int end_block) {
    const int count = points_.rows_in(panel);
    const std::uint32_t all = count == PANEL ? 0xffffffffu : (1u << count) - 1u;
    const std::uint32_t columns = visitor.columns(panel) & all;
    if (!columns) return;
    ++counts.panels;
    alignas(64) double distances[MAX_BLOCKS];
    kernels_.block_distances(group.boxes.data(), points_.tree.node(0, panel), points_.tree.n_coordinates, distances);
    const double panel_bound = visitor.node_bound(0, panel);
    const float* column_bounds = visitor.column_bounds(panel);
    const int n_stages = static_cast<int>(points_.stages.size());
    const std::uint32_t all_tiles = static_cast<std::uint32_t>((std::uint64_t(1) << kernels_.n_tiles) - 1);
    std::uint32_t is_moved = 0;
    const bool by_rows = points_.low_dimension();
    if (by_rows) move_box(panel);
    for (int b = first_block; b < end_block; ++b) {
      const double bound = std::max(group.block_bound[b], panel_bound);
      if (distances[b] * BOX_SLACK > bound || bound < 0) continue;
      ++counts.blocks;
      std::uint32_t hits[ROW_BLOCK], tiles = by_rows ? near_tiles(b, panel_bound) : all_tiles;
      for (auto& h : hits) h = columns;
      for (int s = 0; s < n_stages && tiles; ++s) {
        if (!in_use_[s]) continue;
        if (!(is_moved >> s & 1)) {
          move(s, panel);
          is_moved |= 1u << s;
        }
        counts.tiles[s] += __builtin_popcount(tiles);
        tested_[s] += __builtin_popcount(tiles);
        tiles = kernels_.filter_block(group.rows[s].data() + b * ROW_BLOCK, moved_[s].data(),
                                      points_.stages[s].n_coordinates, group.starts[s].data() + b * ROW_BLOCK,
                                      group.row_bound + b * ROW_BLOCK, column_starts_[s].data(), column_bounds, tiles, hits);
        passed_[s] += __builtin_popcount(tiles);
      }
      if (!tiles) continue;
      bool any = false;
      const int last = std::min(ROW_BLOCK, group.n_rows - b * ROW_BLOCK);
      for (int r = 0; r < last; ++r)
        if (hits[r]) {
          any = true;
          counts.hits += __builtin_popcount(hits[r]);
          visitor.hits(b * ROW_BLOCK + r, panel, hits[r]);
        }
      if (any) group.refresh(b);
    }
  }

  // Exact distances between the row at a position and the points of a panel in `mask`, handed on in batches:
  // take(positions, distances, count).
  template <class Take>
  void evaluate(std::int64_t position, std::int64_t panel, std::uint32_t mask, Take&& take) {
    for (int batch = 0; batch < PANEL && mask; ++batch) {
      std::int32_t at[EXACT_LANES];
      const Value* candidates[EXACT_LANES];
      double distances[EXACT_LANES];
      int count = 0;
      for (; count < EXACT_LANES && mask; mask &= mask - 1, ++count) {
        at[count] = static_cast<std::int32_t>(panel * PANEL + lowest_bit(mask));
        candidates[count] = points_.value(at[count]);
      }
      exact_distances(kernels_, points_.measure, points_.value(position), candidates, count, points_.n_features(), distances);
      counts.exact += count;
      take(at, distances, count);
    }
  }

  RowGroup<Value> group;
  ScanCounts counts;
  const NoColumnBounds no_column_bounds;

 private:
  template <class Visitor, class Checkpoint>
  void descend(int level, std::int64_t g, Visitor& visitor, Checkpoint& checkpoint) {
    alignas(64) double distances[FANOUT];
    kernels_.child_distances(points_.tree.group(level, g), group.lower.data(), group.upper.data(),
                             points_.tree.n_coordinates, distances);
    const int count = static_cast<int>(std::min<std::int64_t>(FANOUT, points_.tree.count[level] - g * FANOUT));
    int order[FANOUT], used = 0;
    for (int c = 0; c < count; ++c) {
      if (too_far(distances[c], level, g * FANOUT + c, visitor) || !visitor.node(level, g * FANOUT + c)) continue;
      int at = used++;
      for (; at > 0 && distances[order[at - 1]] > distances[c]; --at) order[at] = order[at - 1];
      order[at] = c;
    }
    for (int k = 0; k < used && !stopped_; ++k) {
      const int c = order[k];
      if (too_far(distances[c], level, g * FANOUT + c, visitor)) continue;  // bounds fell while nearer ones were visited
      if (level > 0) {
        descend(level - 1, g * FANOUT + c, visitor, checkpoint);
      } else {
        if (checkpoint()) stopped_ = true;
        else visit(g * FANOUT + c, visitor);
      }
    }
  }

  template <class Visitor>
  bool too_far(double squared_distance, int level, std::int64_t node, const Visitor& visitor) const {
    return squared_distance * BOX_SLACK > std::max(group.group_bound, visitor.node_bound(level, node));
  }

  // The panel's box in the group's frame, widened by all that float32 and the rows' residuals can be off.
  void move_box(std::int64_t panel) {
    const int w = points_.tree.n_coordinates;
    const double* node = points_.tree.node(0, panel);
    const double* frame = group.frames[points_.box_stage].data();
    double reach = group.row_reach;
    for (int f = 0; f < w; ++f)
      reach = std::max(reach, std::max(std::fabs(node[f * 2 * FANOUT] - frame[f]), std::fabs(node[f * 2 * FANOUT + FANOUT] - frame[f])));
    const double slack = group.row_residual + 0x1p-21 * reach;
    for (int f = 0; f < w; ++f) {
      box_lower_[f] = static_cast<float>(node[f * 2 * FANOUT] - frame[f] - slack);
      box_upper_[f] = static_cast<float>(node[f * 2 * FANOUT + FANOUT] - frame[f] + slack);
    }
  }
  // Tiles of a row block with a row near enough to the moved box, for its own sake or for the panel's.
  std::uint32_t near_tiles(int block, double panel_bound) const {
    float limits[ROW_BLOCK];
    const float panel_limit = FilterBound{panel_bound, 0}.limit();
    for (int r = 0; r < ROW_BLOCK; ++r) limits[r] = std::max(group.row_limit[block * ROW_BLOCK + r], panel_limit);
    return kernels_.near_tiles(group.rows[points_.box_stage].data() + block * ROW_BLOCK, box_lower_, box_upper_,
                               points_.tree.n_coordinates, limits);
  }

  // The panel's points in the group's frame.
  void move(int s, std::int64_t panel) {
    const Stage& stage = points_.stages[s];
    const int w = stage.n_coordinates;
    const double* centre = &stage.centres[panel * w];
    const double* frame = group.frames[s].data();
    for (int f = 0; f < w; ++f) shift_[f] = static_cast<float>(centre[f] - frame[f]);
    alignas(64) float norms[PANEL];
    kernels_.move_panel(&stage.offsets[panel * w * PANEL], shift_.data(), w, moved_[s].data(), norms);
    const float weight = static_cast<float>(accumulation_error(w) - 0.5);
    const float* residuals = &stage.residuals[panel * PANEL];
    const float residual_weight = static_cast<float>(RESIDUAL_WEIGHT * (1 + 0x1p-20));
    float* starts = column_starts_[s].data();
    for (int c = 0; c < PANEL; ++c)
      starts[c] = weight * norms[c] + residual_weight * residuals[c] * residuals[c] + UNDERFLOW_SLACK;
  }

  // A prefix that lets nearly everything through costs more than it saves. What it lets through differs between the
  // dense and the empty parts of the data, so it is decided anew for every walk. The result does not depend on it.
  void choose_stages() {
    const int n_stages = static_cast<int>(points_.stages.size());
    const bool trial = walks_++ % TRIAL_WALKS == 0;
    double rest = points_.stages[n_stages - 1].n_coordinates;
    for (int s = n_stages - 2; s >= 0; --s) {
      const double pass = tested_[s] > 0 ? passed_[s] / tested_[s] : 0;
      const double with = points_.stages[s].n_coordinates + pass * rest;
      in_use_[s] = trial || with < rest;
      if (with < rest) rest = with;
      if (trial) tested_[s] *= STAGE_MEMORY, passed_[s] *= STAGE_MEMORY;
    }
  }

  const Points<Value>& points_;
  const Kernels& kernels_;
  std::vector<Buffer<float>> moved_, column_starts_;
  std::vector<float> shift_;
  float box_lower_[LOW_DIMENSION], box_upper_[LOW_DIMENSION];
  std::vector<bool> in_use_;
  std::vector<double> tested_, passed_;
  std::int64_t walks_ = 0;
  bool stopped_ = false;
};

}  // namespace mreach
