// Points as the filter sees them: distinct rows in spatial order, in panels, as offsets from a centre of their own.
//
// Every number the filter works with comes from a map of the data that never lengthens a distance ("embedding"):
// the leading p rotated coordinates with the norm of the rest as one more, or all coordinates. A point is kept as
// centre + offset (offset float32), and `residual` bounds how far that lies from its true place. So
//   |embedded distance - true distance| only errs downward, by at most the two residuals,
// which is all that an exclusion needs.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "collapse.h"
#include "exact.h"
#include "kernels.h"
#include "order.h"
#include "projection.h"
#include "workers.h"

namespace mreach {

constexpr int LOW_DIMENSION = 16;     // up to here the boxes hold all coordinates and nothing is rotated
constexpr int FIRST_PREFIX = 8;       // rotated coordinates of the two early-outs: 8 and 28 cost least on
constexpr int SECOND_PREFIX = 28;     // spike clips for their cost; a scan drops those that do not pay
constexpr int ORDER_COORDINATES = 16;        // leading coordinates that the order of the rows looks at
constexpr int MIN_ROWS_SECOND_PREFIX = 512;  // fewer rows do not repay finding so many directions
constexpr double PREFIX_SHARE = 0.6;  // a prefix longer than this share of all coordinates is not worth a pass
constexpr double OFFSET_ROUNDING = 0x1.1p-23;  // float32 rounding of an offset and of moving it to another frame

struct Stage {
  int n_coordinates = 0;
  Buffer<float> offsets;    // (panels, n_coordinates, PANEL)
  Buffer<double> centres;   // (panels, n_coordinates)
  Buffer<float> residuals;  // (panels * PANEL), rounded up

  double coordinate(std::int64_t position, int f) const {
    const std::int64_t panel = position / PANEL;
    return centres[panel * n_coordinates + f] +
           static_cast<double>(offsets[(panel * n_coordinates + f) * PANEL + position % PANEL]);
  }
};

// Implicit tree over the panels: FANOUT consecutive ones to a node, level by level.
struct BoxTree {
  int n_coordinates = 0;
  std::vector<std::int64_t> count;        // nodes of each level; level 0 are the panels
  std::vector<Buffer<double>> boxes;      // (groups of FANOUT, n_coordinates, lower/upper, FANOUT)

  std::int64_t n_points = 0;

  int n_levels() const { return static_cast<int>(count.size()); }
  // What stands directly below a node: points below a panel, nodes of the level beneath below any other.
  struct Range {
    std::int64_t begin, end;
  };
  Range below(int level, std::int64_t node) const {
    const std::int64_t width = level == 0 ? PANEL : FANOUT, all = level == 0 ? n_points : count[level - 1];
    return {node * width, std::min(all, (node + 1) * width)};
  }
  const double* group(int level, std::int64_t g) const {
    return boxes[level].data() + g * n_coordinates * 2 * FANOUT;
  }
  // First coordinate of one node's box; lower and upper stand FANOUT apart, coordinates 2 * FANOUT.
  const double* node(int level, std::int64_t i) const { return group(level, i / FANOUT) + i % FANOUT; }
};

template <class Value>
class Points {
 public:
  // X: (n_rows, n_features) finite values, rows in the user's order.
  Points(const Value* X, std::int64_t n_rows, int n_features, const Measure& measure, Workers& workers)
      : collapsed(collapse_equal_rows(X, n_rows, n_features, workers)), measure(measure), n_features_(n_features) {
    n = static_cast<std::int64_t>(collapsed.representatives.size());
    n_panels = (n + PANEL - 1) / PANEL;
    const bool low = low_dimension();
    const int width = low ? n_features : std::min(n < MIN_ROWS_SECOND_PREFIX ? FIRST_PREFIX : SECOND_PREFIX, n_features);
    projection_ = find_projection(X, collapsed.representatives.data(), n, n_features, low ? 0 : width, workers);
    Buffer<double> embedded(n * width), squared_norm(n);
    std::vector<std::int32_t> order;
    {
      const int order_width = std::min(width, ORDER_COORDINATES);
      Buffer<float> rounded(n * order_width);
      embed(X, width, order_width, embedded, squared_norm, rounded, workers);
      order = SpatialOrder(rounded.data(), n, order_width, !low, workers).take();
    }
    if (workers.checkpoint(0)) throw Cancelled();
    row_of.resize(n);
    multiplicity.resize(n);
    position_of_representative.resize(n);
    for (std::int64_t p = 0; p < n; ++p) {
      row_of[p] = collapsed.representatives[order[p]];
      multiplicity[p] = collapsed.multiplicity[order[p]];
      position_of_representative[order[p]] = static_cast<std::int32_t>(p);
    }
    std::vector<int> prefixes;
    if (!low) {
      for (int prefix : {FIRST_PREFIX, SECOND_PREFIX})
        if (prefix <= width && prefix + 1 <= PREFIX_SHARE * n_features) prefixes.push_back(prefix);
      if (prefixes.empty()) prefixes.push_back(FIRST_PREFIX);
    }
    stages.resize(prefixes.size() + 1);
    for (std::size_t s = 0; s < stages.size(); ++s)
      allocate(stages[s], s < prefixes.size() ? prefixes[s] + 1 : n_features);
    values_.resize_discard(n * n_features);
    workers.run(n_panels, 8, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<double> y(static_cast<std::size_t>(PANEL) * n_features), z(static_cast<std::size_t>(PANEL) * (SECOND_PREFIX + 1));
      std::vector<double> errors(PANEL);
      for (std::int64_t panel = begin; panel < end; ++panel) {
        const int count = rows_in(panel);
        for (int c = 0; c < count; ++c) {
          const std::int64_t p = panel * PANEL + c;
          const Value* x = X + static_cast<std::int64_t>(row_of[p]) * n_features;
          std::copy_n(x, n_features, &values_[p * n_features]);
          projection_.centred(x, &y[static_cast<std::size_t>(c) * n_features]);
        }
        for (std::size_t s = 0; s < prefixes.size(); ++s) {
          for (int c = 0; c < count; ++c) {
            const std::int64_t i = order[panel * PANEL + c];
            errors[c] = prefix_embedding(&embedded[i * width], squared_norm[i], prefixes[s],
                                         &z[static_cast<std::size_t>(c) * stages[s].n_coordinates]);
          }
          fill_panel(stages[s], panel, count, z.data(), errors.data());
        }
        for (int c = 0; c < count; ++c) errors[c] = 0x1p-51 * std::sqrt(squared_norm[order[panel * PANEL + c]]);
        fill_panel(stages.back(), panel, count, y.data(), errors.data());
      }
    });
    box_stage = low ? 0 : static_cast<int>(prefixes.size()) - 1;
    build_tree(workers);
  }

  int n_features() const { return n_features_; }
  bool low_dimension() const { return n_features_ <= LOW_DIMENSION; }
  double scale() const { return projection_.scale; }
  const Value* value(std::int64_t position) const { return values_.data() + position * n_features_; }
  int rows_in(std::int64_t panel) const { return static_cast<int>(std::min<std::int64_t>(PANEL, n - panel * PANEL)); }

  Collapsed collapsed;
  const Measure measure;
  std::int64_t n = 0, n_panels = 0;        // distinct rows
  std::vector<std::int32_t> row_of;        // the user's row at each position: the smallest of its copies
  std::vector<std::int32_t> multiplicity;  // of the row at each position
  std::vector<std::int32_t> position_of_representative;
  std::vector<Stage> stages;               // cheapest first; the last one holds all coordinates
  int box_stage = 0;
  BoxTree tree;

 private:
  int n_features_;
  Projection projection_;
  Buffer<Value> values_;  // (n, n_features) the user's values in spatial order

  void allocate(Stage& stage, int n_coordinates) {
    stage.n_coordinates = n_coordinates;
    stage.offsets.resize_discard(n_panels * n_coordinates * PANEL);
    stage.centres.resize_discard(n_panels * n_coordinates);
    stage.residuals.resize_discard(n_panels * PANEL);
  }

  void embed(const Value* X, int width, int order_width, Buffer<double>& embedded, Buffer<double>& squared_norm,
             Buffer<float>& rounded, Workers& workers) {
    workers.run(n, 512, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<double> y(n_features_);
      for (std::int64_t i = begin; i < end; ++i) {
        projection_.centred(X + static_cast<std::int64_t>(collapsed.representatives[i]) * n_features_, y.data());
        double* out = &embedded[i * width];
        double norm = 0;
        for (int f = 0; f < n_features_; ++f) norm += y[f] * y[f];
        squared_norm[i] = norm;
        if (low_dimension()) std::copy(y.begin(), y.end(), out);
        else projection_.rotate(y.data(), out);
        for (int k = 0; k < order_width; ++k) rounded[i * order_width + k] = static_cast<float>(out[k]);
      }
    });
  }

  // Leading coordinates and the norm of the rest; returns a bound of the error's norm.
  double prefix_embedding(const double* rotated, double squared_norm, int prefix, double* z) const {
    double rest = squared_norm;
    for (int k = 0; k < prefix; ++k) {
      z[k] = rotated[k];
      rest -= rotated[k] * rotated[k];
    }
    z[prefix] = rest > 0 ? std::sqrt(rest) : 0;
    const double norm = std::sqrt(squared_norm);
    // rest is off by at most `off`; its root by at most sqrt(off), and by off / root where the root is known larger.
    const double off = (projection_.skew + (n_features_ + SECOND_PREFIX + 8) * 0x1p-51) * squared_norm;
    const double root_error = z[prefix] > 0 ? std::min(std::sqrt(off), off / z[prefix]) : std::sqrt(off);
    const double coordinate_error = (n_features_ + 4) * 0x1p-52 * norm;
    return root_error + coordinate_error * std::sqrt(static_cast<double>(prefix)) + 0x1p-51 * norm;
  }

  // coordinates: (count, n_coordinates). The centre is the middle one of three rows, side by side: one row far out
  // cannot take the precision of the others.
  void fill_panel(Stage& stage, std::int64_t panel, int count, const double* coordinates, const double* errors) {
    const int w = stage.n_coordinates;
    double* centre = &stage.centres[panel * w];
    float* offsets = &stage.offsets[panel * w * PANEL];
    for (int f = 0; f < w; ++f) {
      const double a = coordinates[f], b = coordinates[static_cast<std::size_t>(count / 2) * w + f],
                   c = coordinates[static_cast<std::size_t>(count - 1) * w + f];
      centre[f] = std::max(std::min(a, b), std::min(std::max(a, b), c));
      for (int k = 0; k < PANEL; ++k)
        offsets[f * PANEL + k] = k < count ? static_cast<float>(coordinates[static_cast<std::size_t>(k) * w + f] - centre[f]) : 0.f;
    }
    for (int k = 0; k < PANEL; ++k) {
      double norm = 0;
      for (int f = 0; f < w; ++f) norm += static_cast<double>(offsets[f * PANEL + k]) * offsets[f * PANEL + k];
      const double residual = (k < count ? errors[k] : 0) + OFFSET_ROUNDING * std::sqrt(norm) + 0x1p-70;
      stage.residuals[panel * PANEL + k] = static_cast<float>(residual * (1 + 0x1p-20));
    }
  }

  void build_tree(Workers& workers) {
    const Stage& stage = stages[box_stage];
    const int w = stage.n_coordinates;
    tree.n_coordinates = w;
    tree.n_points = n;
    std::int64_t nodes = n_panels;
    for (int level = 0; level < 16; ++level) {
      const std::int64_t groups = (nodes + FANOUT - 1) / FANOUT;
      tree.count.push_back(nodes);
      tree.boxes.emplace_back(groups * w * 2 * FANOUT);
      double* boxes = tree.boxes.back().data();
      workers.run(groups, 16, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t g = begin; g < end; ++g)
          for (int c = 0; c < FANOUT; ++c)
            for (int f = 0; f < w; ++f) {
              const std::int64_t node = g * FANOUT + c;
              double low = 0x1p200, high = -0x1p200;  // places without a node: never reached, never near
              if (node < nodes && level == 0) {
                for (auto [p, end] = tree.below(0, node); p < end; ++p) {
                  const double x = stage.coordinate(p, f), e = stage.residuals[p];
                  low = std::min(low, x - e), high = std::max(high, x + e);
                }
              } else if (node < nodes) {
                const double* children = tree.group(level - 1, node) + static_cast<std::int64_t>(f) * 2 * FANOUT;
                for (int k = 0; k < FANOUT; ++k)
                  low = std::min(low, children[k]), high = std::max(high, children[FANOUT + k]);
              }
              double* at = boxes + (g * w + f) * 2 * FANOUT + c;
              at[0] = low;
              at[FANOUT] = high;
            }
      });
      if (nodes <= FANOUT) break;
      nodes = groups;
    }
  }
};

}  // namespace mreach
