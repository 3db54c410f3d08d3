// The Borůvka rounds' three steps: lightest listed edge out of each component, exact scan for the components that
// the lists do not settle, contraction. The order of edges is (weight, lower row, higher row), the user's rows.
//
// An edge that neither end lists weighs at least b_i = max(core_i, radius_i / alpha) at both ends: row i is active
// while b_i is not above its component's best edge, and a component without active rows is settled.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "best_edges.h"
#include "neighbors.h"
#include "scan.h"
#include "union_find.h"

namespace mreach {

constexpr int OWN_GROUP_ROWS = 12;    // components with as many active rows get groups of their own

template <class Value>
class SpanningTree {
 public:
  SpanningTree(const Points<Value>& points, const NeighborLists& lists, double alpha, const Tuning& tuning,
               const Kernels& kernels, Workers& workers)
      : points_(points), lists_(lists), alpha_(alpha), tuning_(tuning), kernels_(kernels), workers_(workers),
        best_(points.n), component_(points.n), parent_(points.n, -1), first_(points.n, 0), bound_(points.n) {
    const std::int64_t n = points.n;
    roots_.resize(n);
    for (std::int64_t i = 0; i < n; ++i) {
      component_[i] = roots_[i] = static_cast<std::int32_t>(i);
      bound_[i] = std::max(lists.core_distances[i], lists.radii[i] / alpha);
    }
    edges_.reserve(n + points.collapsed.copy.size());
    for (int level = 0; level < points.tree.n_levels(); ++level) {
      lowest_bound_.emplace_back(points.tree.count[level], std::numeric_limits<double>::infinity());
      uniform_.emplace_back(points.tree.count[level], -1);
      for (std::int64_t node = 0; node < points.tree.count[level]; ++node) {
        double low = std::numeric_limits<double>::infinity();
        const std::vector<double>& below = level == 0 ? bound_ : lowest_bound_[level - 1];
        for (auto [c, end] = points.tree.below(level, node); c < end; ++c) low = std::min(low, below[c]);
        lowest_bound_[level][node] = low;
      }
    }
  }

  std::int64_t n_components() const { return static_cast<std::int64_t>(roots_.size()); }

  // The published "neighbour edges": every listed edge serves the components of both its ends.
  void find_listed_edges() {
    for (std::int32_t c : roots_) best_.clear(c);
    workers_.run(points_.n, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Neighbor* list = lists_.of(i);
        const std::int32_t count = lists_.counts[i], own = component_[i];
        std::int32_t k = first_[i];
        for (; k < count && component_[list[k].position] == own; ++k) {
        }
        first_[i] = k;  // components only grow: what is inside stays inside
        Edge lightest{std::numeric_limits<double>::infinity(), -1, -1};
        for (; k < count; ++k) {
          const std::int32_t j = list[k].position, other = component_[j];
          if (other == own) continue;
          const Edge edge = make_edge(
              i, j, edge_weight(lists_.core_distances[i], lists_.core_distances[j], list[k].distance, alpha_));
          if (lightest.lower < 0 || edge < lightest) lightest = edge;
          best_.offer(other, edge);
        }
        if (lightest.lower >= 0) best_.offer(own, lightest);
      }
    });
  }

  // Exact scan for the active rows. The component with the most of them is left out: the others hook onto it.
  // Returns the number of active rows.
  std::int64_t scan_active_rows() {
    const std::int64_t n_active = collect_active();
    if (active_.empty()) return n_active;
    mark_uniform_nodes();
    std::vector<std::unique_ptr<Scan<Value>>> scans(workers_.size());
    workers_.run(static_cast<std::int64_t>(groups_.size()) - 1, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      if (!scans[thread]) scans[thread] = std::make_unique<Scan<Value>>(points_, kernels_);
      Scan<Value>& scan = *scans[thread];
      for (std::int64_t g = begin; g < end; ++g) {
        OutEdgeVisitor visitor(*this, scan, &active_[groups_[g]], static_cast<int>(groups_[g + 1] - groups_[g]));
        scan.walk(visitor, [&] { return workers_.checkpoint(thread); });
      }
    });
    for (const auto& scan : scans)
      if (scan) counts.add(scan->counts);
    return n_active;
  }

  // Hooks every scanned component along its lightest edge and relabels. Returns how many components are left.
  std::int64_t contract() {
    if (position_of_row_.empty()) {
      position_of_row_.resize(points_.collapsed.representatives.empty() ? 0 : points_.collapsed.representatives.back() + 1);
      for (std::int64_t i = 0; i < points_.n; ++i) position_of_row_[points_.row_of[i]] = static_cast<std::int32_t>(i);
    }
    for (std::int32_t c : roots_) {
      if (c == skipped_ || !best_.known(c)) continue;
      const Edge edge = best_.edge(c);
      const std::int32_t a = find(position_of_row_[edge.lower]), b = find(position_of_row_[edge.higher]);
      if (a == b) continue;  // the other end chose the same edge
      parent_[std::max(a, b)] = std::min(a, b);
      edges_.push_back(edge);
    }
    std::vector<std::int32_t> left;
    for (std::int32_t c : roots_)
      if (find(c) == c) left.push_back(c);
    roots_.swap(left);
    for (std::int64_t i = 0; i < points_.n; ++i) component_[i] = find(static_cast<std::int32_t>(i));
    return n_components();
  }

  // The tree of all rows: of the distinct ones, and for every copy x the edge to the smallest representative j with
  // core_j <= core_x and d(j, x) / alpha <= core_x (cycle property, see docs/filter.md).
  std::vector<Edge> take_edges() {
    const Collapsed& collapsed = points_.collapsed;
    std::vector<std::int32_t> with_copies;
    for (std::size_t r = 0; r < collapsed.multiplicity.size(); ++r)
      if (collapsed.multiplicity[r] > 1) with_copies.push_back(points_.position_of_representative[r]);
    std::sort(with_copies.begin(), with_copies.end());
    std::vector<std::int32_t> partner(points_.n, -1);
    std::vector<std::unique_ptr<Scan<Value>>> scans(workers_.size());
    workers_.run(static_cast<std::int64_t>(with_copies.size()), 8, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t w = begin; w < end; ++w) {
        const std::int32_t i = with_copies[w];
        partner[i] = listed_partner(i);
        if (bound_[i] > lists_.core_distances[i] && tuning_.prune) continue;  // the list holds all that count
        if (!scans[thread]) scans[thread] = std::make_unique<Scan<Value>>(points_, kernels_);
        PartnerVisitor visitor(*this, *scans[thread], i, partner[i]);
        scans[thread]->walk(visitor, [&] { return workers_.checkpoint(thread); });
        partner[i] = visitor.smallest_row;
      }
    });
    for (std::size_t c = 0; c < collapsed.copy.size(); ++c) {
      const std::int32_t i = points_.position_of_representative[collapsed.copy_of[c]], x = collapsed.copy[c], j = partner[i];
      edges_.push_back({lists_.core_distances[i], std::min(j, x), std::max(j, x)});
    }
    return std::move(edges_);
  }

  ScanCounts counts;

 private:
  Edge make_edge(std::int64_t i, std::int64_t j, double weight) const {
    const std::int32_t a = points_.row_of[i], b = points_.row_of[j];
    return {weight, std::min(a, b), std::max(a, b)};
  }
  std::int32_t find(std::int32_t i) { return find_root(parent_.data(), i); }
  bool is_active(std::int64_t i) const { return !tuning_.prune || bound_[i] <= best_.weight(component_[i]); }

  // Active rows grouped by component; groups_ holds where each group starts and the end. Returns how many rows are
  // active, those of the component left out too.
  std::int64_t collect_active() {
    const std::int64_t n = points_.n;
    std::vector<std::int32_t> count(n, 0);
    std::vector<std::int32_t> found;
    for (std::int64_t i = 0; i < n; ++i)
      if (is_active(i)) {
        ++count[component_[i]];
        found.push_back(static_cast<std::int32_t>(i));
      }
    skipped_ = -1;
    std::int32_t most = 0;
    if (tuning_.prune)
      for (std::int32_t c : roots_)
        if (count[c] > most) most = count[c], skipped_ = c;
    active_.clear();
    groups_.assign(1, 0);
    const std::int64_t stride = group_rows(tuning_, points_.n_features(), static_cast<std::int64_t>(found.size()), workers_.size());
    // Rows of large components, each in spatial order; then the rest together.
    std::vector<std::int32_t> large;
    for (std::int32_t i : found)
      if (component_[i] != skipped_ && count[component_[i]] >= OWN_GROUP_ROWS) large.push_back(i);
    std::stable_sort(large.begin(), large.end(),
                     [&](std::int32_t a, std::int32_t b) { return component_[a] < component_[b]; });
    auto add = [&](std::int32_t i, bool fresh) {
      if (static_cast<std::int64_t>(active_.size()) - groups_.back() == stride || (fresh && static_cast<std::int64_t>(active_.size()) > groups_.back()))
        groups_.push_back(static_cast<std::int64_t>(active_.size()));
      active_.push_back(i);
    };
    for (std::size_t k = 0; k < large.size(); ++k) add(large[k], k > 0 && component_[large[k]] != component_[large[k - 1]]);
    bool fresh = true;
    for (std::int32_t i : found)
      if (component_[i] != skipped_ && count[component_[i]] < OWN_GROUP_ROWS) {
        add(i, fresh);
        fresh = false;
      }
    if (!active_.empty()) groups_.push_back(static_cast<std::int64_t>(active_.size()));
    return static_cast<std::int64_t>(found.size());
  }

  // uniform_[level][node]: the component of all its points, or -1.
  void mark_uniform_nodes() {
    for (int level = 0; level < points_.tree.n_levels(); ++level)
      workers_.run(points_.tree.count[level], 4096, [&, level](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t node = begin; node < end; ++node) {
          const std::vector<std::int32_t>& below = level == 0 ? component_ : uniform_[level - 1];
          auto [c, end] = points_.tree.below(level, node);
          std::int32_t same = below[c];
          for (; c < end; ++c)
            if (below[c] != same) same = -1;
          uniform_[level][node] = same;
        }
      });
  }

  double reach(double weight) const {
    return tuning_.prune ? weight_reach(weight, alpha_) : std::numeric_limits<double>::infinity();
  }

  class OutEdgeVisitor {
   public:
    OutEdgeVisitor(SpanningTree& tree, Scan<Value>& scan, const std::int32_t* rows, int count)
        : tree_(tree), scan_(scan), rows_(rows), count_(count) {
      scan.group.build(rows, count);
      component_ = tree.component_[rows[0]];
      for (int r = 1; r < count; ++r)
        if (tree.component_[rows[r]] != component_) component_ = -1;
      lower_bounds(-1);
    }
    double node_bound(int, std::int64_t) const { return -1; }
    const float* column_bounds(std::int64_t) const { return scan_.no_column_bounds.values; }
    bool node(int level, std::int64_t node) const {
      if (!tree_.tuning_.prune) return true;
      const std::int32_t same = tree_.uniform_[level][node];
      return (same < 0 || same != component_) && !(tree_.lowest_bound_[level][node] > heaviest_);
    }
    std::uint32_t columns(std::int64_t panel) const {
      std::uint32_t mask = 0;
      const std::int64_t base = panel * PANEL;
      const int count = tree_.points_.rows_in(panel);
      for (int c = 0; c < count; ++c) {
        const bool inside = tree_.component_[base + c] == component_;
        const bool heavy = tree_.tuning_.prune && tree_.bound_[base + c] > heaviest_;
        mask |= static_cast<std::uint32_t>(!inside && !heavy) << c;
      }
      return mask;
    }
    void hits(int row, std::int64_t panel, std::uint32_t mask) {
      const std::int32_t i = rows_[row], own = tree_.component_[i];
      const double* cores = tree_.lists_.core_distances.data();
      // An edge weighs at least both core distances: often enough to know without its length.
      std::uint32_t open = 0;
      for (double best = tree_.best_.weight(own); mask; mask &= mask - 1) {
        const std::int64_t j = panel * PANEL + lowest_bit(mask);
        const double least = std::max(cores[i], cores[j]);
        if (tree_.component_[j] == own || least > best) continue;
        if (least == best && !tree_.best_.may_improve(own, tree_.make_edge(i, j, least))) continue;
        open |= mask & -mask;
      }
      bool improved = false;
      scan_.evaluate(i, panel, open, [&](const std::int32_t* at, const double* distances, int count) {
        for (int k = 0; k < count; ++k) {
          const double weight = edge_weight(cores[i], cores[at[k]], distances[k], tree_.alpha_);
          if (weight <= tree_.best_.weight(own)) improved |= tree_.best_.offer(own, tree_.make_edge(i, at[k], weight));
        }
      });
      if (improved) lower_bounds(own);
    }

   private:
    // Takes over what is known of component `changed` (-1: of all) since the bounds were last set.
    void lower_bounds(std::int32_t changed) {
      heaviest_ = 0;
      for (int r = 0; r < count_; ++r) {
        const std::int32_t c = tree_.component_[rows_[r]];
        const double weight = tree_.best_.weight(c);
        if (changed < 0 || c == changed) scan_.group.set_bound(r, tree_.reach(weight));
        heaviest_ = std::max(heaviest_, weight);
      }
      for (int b = 0; b < scan_.group.n_blocks; ++b) scan_.group.refresh(b);
    }
    SpanningTree& tree_;
    Scan<Value>& scan_;
    const std::int32_t* rows_;
    int count_;
    std::int32_t component_;
    double heaviest_ = 0;
  };

  // Smallest row j with core_j <= core_i and d(i, j) / alpha <= core_i.
  class PartnerVisitor {
   public:
    PartnerVisitor(SpanningTree& tree, Scan<Value>& scan, std::int32_t row, std::int32_t known)
        : smallest_row(known), tree_(tree), scan_(scan), row_(row), core_(tree.lists_.core_distances[row]) {
      scan.group.build(&row_, 1);
      scan.group.set_bound(0, tree.reach(core_));
      scan.group.refresh(0);
    }
    double node_bound(int, std::int64_t) const { return -1; }
    const float* column_bounds(std::int64_t) const { return scan_.no_column_bounds.values; }
    bool node(int, std::int64_t) const { return true; }
    std::uint32_t columns(std::int64_t panel) const {
      std::uint32_t mask = 0;
      for (int c = 0; c < tree_.points_.rows_in(panel); ++c) {
        const std::int64_t j = panel * PANEL + c;
        mask |= static_cast<std::uint32_t>(tree_.points_.row_of[j] < smallest_row && tree_.lists_.core_distances[j] <= core_) << c;
      }
      return mask;
    }
    void hits(int, std::int64_t panel, std::uint32_t mask) {
      for (; mask; mask &= mask - 1) {
        const std::int64_t j = panel * PANEL + lowest_bit(mask);
        if (tree_.points_.row_of[j] >= smallest_row) continue;
        const double d = exact_distance(tree_.points_.measure, tree_.points_.value(row_), tree_.points_.value(j), tree_.points_.n_features());
        ++scan_.counts.exact;
        if (d / tree_.alpha_ <= core_) smallest_row = tree_.points_.row_of[j];
      }
    }
    std::int32_t smallest_row;

   private:
    SpanningTree& tree_;
    Scan<Value>& scan_;
    std::int32_t row_;
    double core_;
  };

  std::int32_t listed_partner(std::int32_t i) const {
    std::int32_t smallest = points_.row_of[i];
    const double core = lists_.core_distances[i];
    for (std::int32_t k = 0; k < lists_.counts[i]; ++k) {
      const std::int32_t j = lists_.of(i)[k].position;
      if (lists_.of(i)[k].distance / alpha_ > core) break;
      if (lists_.core_distances[j] <= core) smallest = std::min(smallest, points_.row_of[j]);
    }
    return smallest;
  }

  const Points<Value>& points_;
  const NeighborLists& lists_;
  const double alpha_;
  const Tuning tuning_;
  const Kernels& kernels_;
  Workers& workers_;
  BestEdges best_;
  std::vector<std::int32_t> component_, parent_, roots_;
  std::vector<std::int32_t> first_;   // of each list: the first entry that may lead out of the component
  std::vector<double> bound_;         // b_i above
  std::vector<std::vector<double>> lowest_bound_;        // of the points below each node
  std::vector<std::vector<std::int32_t>> uniform_;
  std::vector<std::int32_t> active_, position_of_row_;
  std::vector<std::int64_t> groups_;
  std::vector<Edge> edges_;
  std::int32_t skipped_ = -1;
};

}  // namespace mreach
